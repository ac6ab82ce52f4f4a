// Which transmission numbers have arrived: a window that refuses replays, and ranges to acknowledge.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/wire.h"

namespace holdfast {

// Remembers the last 8,192 numbers bit by bit; whatever is older is refused.
class ReplayWindow {
 public:
  static constexpr std::uint64_t size = 8192;
  enum class Verdict : std::uint8_t { fresh, replayed, too_old };

  Verdict check(std::uint64_t number) const;
  void mark(std::uint64_t number);  // call only for numbers that authenticated

 private:
  static constexpr std::size_t num_words = size / 64;
  std::array<std::uint64_t, num_words> bits_{};
  std::uint64_t next_ = 0;  // one above the highest number marked

  std::uint64_t& word(std::uint64_t number) { return bits_[number / 64 % num_words]; }
};

// Numbers as disjoint ascending ranges, at most `cap` of them: the oldest is forgotten first.
class NumberRanges {
 public:
  explicit NumberRanges(std::size_t cap) : cap_(cap) {}

  // False when the number was there already.
  bool insert(std::uint64_t number);
  bool contains(std::uint64_t number) const;
  // Forgets everything below `number`.
  void forget_below(std::uint64_t number);
  bool empty() const { return ranges_.empty(); }
  std::size_t size() const { return ranges_.size(); }
  // Ascending.
  std::span<const AckRange> ranges() const { return ranges_; }
  std::vector<AckRange> newest_first(std::size_t most) const;

 private:
  std::size_t cap_;
  std::vector<AckRange> ranges_;
};

}  // namespace holdfast
