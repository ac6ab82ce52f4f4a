// How late packets were, as a histogram with buckets a thirty-second of their value wide.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/time.h"

namespace holdfast::lab {

class Lateness {
 public:
  void add(Duration late) {
    const std::uint64_t value = late > 0 ? static_cast<std::uint64_t>(late) : 0;
    ++buckets_[bucket_of(value)];
    ++count_;
    max_ = std::max(max_, value);
  }

  // The upper end of the bucket in which the quantile lies, in microseconds; 0 when there was nothing.
  double quantile_us(double ratio) const {
    if (count_ == 0) return 0;
    const auto rank = static_cast<std::uint64_t>(std::ceil(ratio * static_cast<double>(count_)));
    std::uint64_t seen = 0;
    std::size_t bucket = 0;
    for (; bucket + 1 < buckets_.size(); ++bucket) {
      seen += buckets_[bucket];
      if (seen >= rank) break;
    }
    return std::min(static_cast<double>(end_of(bucket)), static_cast<double>(max_)) / microsecond;
  }
  // Every bucket that holds something: its upper end in microseconds, and how many. What several spans of time add up
  // to.
  std::vector<std::pair<double, std::uint64_t>> counts() const {
    std::vector<std::pair<double, std::uint64_t>> counts;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      if (buckets_[bucket] > 0)
        counts.emplace_back(static_cast<double>(end_of(bucket)) / microsecond, buckets_[bucket]);
    }
    return counts;
  }
  double max_us() const { return static_cast<double>(max_) / microsecond; }

 private:
  static constexpr int fraction_bits = 5;
  static constexpr std::size_t fractions = 1 << fraction_bits;

  static std::size_t bucket_of(std::uint64_t value) {
    if (value < fractions) return value;
    const int exponent = std::bit_width(value) - 1 - fraction_bits;
    return (static_cast<std::size_t>(exponent) << fraction_bits) + (value >> exponent);
  }
  static std::uint64_t end_of(std::size_t bucket) {
    if (bucket < fractions) return bucket;
    const std::size_t exponent = bucket / fractions - 1;
    return ((bucket - (exponent << fraction_bits) + 1) << exponent) - 1;
  }

  std::array<std::uint64_t, (64 - fraction_bits + 1) * fractions> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace holdfast::lab
