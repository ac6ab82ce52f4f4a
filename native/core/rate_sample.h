// What one acknowledgement says about a path, in the terms of the rules that set the rate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "core/time.h"

namespace holdfast {

constexpr std::uint64_t min_window_datagrams = 4;
constexpr std::uint64_t initial_window_datagrams = 10;

struct RateSample {
  Time now = 0;
  std::uint64_t acknowledged_bytes = 0;
  std::uint64_t lost_bytes = 0;  // found lost since the last sample
  double bytes_per_second = 0;   // delivery rate; 0: the interval was too short to say
  bool app_limited = false;      // the sender, not the path, set that rate
  bool round_started = false;    // something sent after the last round's end has arrived
  Duration rtt = 0;              // 0: none
  Duration queue = 0;            // what packets wait on their way there, beyond the cards
};

// The largest of the values that were added in the last rounds.
class RecentMaximum {
 public:
  explicit RecentMaximum(std::uint64_t rounds) : rounds_(rounds) {}

  void add(std::uint64_t round, double value) {
    while (!samples_.empty() && samples_.back().value <= value) samples_.pop_back();
    samples_.push_back({round, value});
    while (samples_.front().round + rounds_ < round) samples_.pop_front();
  }
  bool empty() const { return samples_.empty(); }
  double value() const { return samples_.empty() ? 0.0 : samples_.front().value; }

 private:
  struct Sample {
    std::uint64_t round;
    double value;
  };
  std::uint64_t rounds_;
  std::deque<Sample> samples_;  // falling values, the front is the maximum
};

// The share lost of the last datagrams. Random loss of a few percent hides in it; a queue that overflows does not.
class RecentLoss {
 public:
  explicit RecentLoss(double datagram_bytes) : horizon_bytes_(horizon_datagrams * datagram_bytes) {}

  void add(std::uint64_t delivered_bytes, std::uint64_t lost_bytes) {
    const double bytes = static_cast<double>(delivered_bytes + lost_bytes);
    if (bytes == 0) return;
    const double weight = std::min(1.0, bytes / horizon_bytes_);
    ratio_ += weight * (static_cast<double>(lost_bytes) / bytes - ratio_);
  }
  bool is_overflow() const { return ratio_ > overflow_ratio; }
  void forget() { ratio_ = 0; }

 private:
  static constexpr double horizon_datagrams = 200;
  static constexpr double overflow_ratio = 0.03;
  double horizon_bytes_;
  double ratio_ = 0;
};

// The round-trip time of an empty path: the least of the last seconds.
class BaseRtt {
 public:
  void add(Time now, Duration rtt) {
    if (rtt <= 0) return;
    if (value_ == 0 || rtt <= value_ || now - seen_at_ > lifetime) {
      value_ = rtt;
      seen_at_ = now;
    }
  }
  Duration value() const { return value_; }

 private:
  static constexpr Duration lifetime = 10 * second;
  Duration value_ = 0;
  Time seen_at_ = 0;
};

}  // namespace holdfast
