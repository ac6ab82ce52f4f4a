// Round-trip time as RFC 9002 estimates it.
#pragma once

#include <algorithm>

#include "core/time.h"

namespace holdfast {

class RttEstimator {
 public:
  explicit RttEstimator(Duration initial)
      : smoothed_(initial), variation_(initial / 2), latest_(initial), min_(initial) {}

  void add_sample(Duration sample, Duration ack_delay) {
    latest_ = std::max<Duration>(sample, microsecond);
    if (!has_sample_) {
      has_sample_ = true;
      min_ = smoothed_ = latest_;
      variation_ = latest_ / 2;
      return;
    }
    min_ = std::min(min_, latest_);
    // The peer's own delay is not the path's, unless believing it would put the sample below the minimum.
    const Duration adjusted = latest_ - ack_delay >= min_ ? latest_ - ack_delay : latest_;
    const Duration deviation = smoothed_ > adjusted ? smoothed_ - adjusted : adjusted - smoothed_;
    variation_ += (deviation - variation_) / 4;
    smoothed_ += (adjusted - smoothed_) / 8;
  }

  bool has_sample() const { return has_sample_; }
  Duration smoothed() const { return smoothed_; }
  Duration latest() const { return latest_; }
  Duration min() const { return min_; }
  // 9/8 of a round trip (RFC 9002 6.1.2): a packet older than this, with a later one acknowledged, is lost.
  Duration loss_delay() const { return std::max(std::max(smoothed_, latest_) * 9 / 8, loss_granularity); }
  // RFC 9002 6.2.1.
  Duration probe_timeout(Duration max_ack_delay) const {
    return smoothed_ + std::max(4 * variation_, millisecond) + max_ack_delay;
  }

 private:
  // Below this, scheduling noise on the hosts is larger than what the network does.
  static constexpr Duration loss_granularity = 200 * microsecond;

  bool has_sample_ = false;
  Duration smoothed_;
  Duration variation_;
  Duration latest_;
  Duration min_;
};

}  // namespace holdfast
