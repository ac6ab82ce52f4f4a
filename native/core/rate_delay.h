// The delay-based rule (OptiReduce 3.2.3, after TIMELY): the round-trip time tells how long the queues are, and the
// sender keeps them between two thresholds. A window of what the rate delivers until the upper threshold is passed sees
// to it that a path that stops answering stops being sent to.
#pragma once

#include <cstdint>

#include "core/rate_sample.h"

namespace holdfast {

class DelayRule {
 public:
  explicit DelayRule(std::uint32_t datagram_bytes);

  void on_sample(const RateSample& sample);
  double pacing_bytes_per_second(double card_share) const;
  double window_bytes() const;
  double bandwidth_bytes_per_second() const { return bandwidth_.value(); }
  Duration base_rtt() const { return base_rtt_.value(); }
  // Below the first the window grows, above the second it shrinks.
  Duration low_threshold() const;
  Duration high_threshold() const;

 private:
  void end_round();
  bool overran_a_queue(Duration rtt) const;
  void grow();
  void shrink(double factor);

  double datagram_bytes_;
  double bytes_per_second_;
  bool starting_ = true;  // doubling until the first queue is felt
  BaseRtt base_rtt_;

  std::uint64_t round_ = 0;
  RecentMaximum bandwidth_{30};
  Duration round_rtt_ = 0;  // the least of this round: the rest of a sample is the hosts' own slowness
  bool round_limited_by_sender_ = false;

  RecentLoss loss_;
  double ceiling_;               // the rate at which a queue overflowed last
  std::uint64_t probed_at_ = 0;  // round in which the rate last grew beyond the ceiling
};

}  // namespace holdfast
