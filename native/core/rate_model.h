// The model-based rule: the path is described by its bandwidth and its round-trip time (after BBR v1, without its
// reaction to isolated loss), and the window is twice what fits into it.
#pragma once

#include <cstdint>

#include "core/rate_sample.h"

namespace holdfast {

class ModelRule {
 public:
  explicit ModelRule(std::uint32_t datagram_bytes) : datagram_bytes_(datagram_bytes) {}

  void on_sample(const RateSample& sample);
  double pacing_bytes_per_second(double card_share) const;
  double window_bytes(Duration tolerable_queue) const;
  double bandwidth_bytes_per_second() const { return bandwidth_.value(); }
  Duration base_rtt() const { return base_rtt_.value(); }
  // A stage is as long as its slowest path. Paths that share a network card therefore go by the mean of what they have
  // found: one that was unlucky in its samples is not left behind.
  void set_fair_bandwidth(double bytes_per_second) { fair_bandwidth_ = bytes_per_second; }

 private:
  enum class Phase : std::uint8_t { startup, drain, probe };

  void add_aggregation_sample(Time now, std::uint64_t bytes);
  void advance_phase(const RateSample& sample);
  double modelled_window() const;
  double gain() const;
  double assumed_bandwidth() const { return fair_bandwidth_ > 0 ? fair_bandwidth_ : bandwidth_.value(); }

  std::uint32_t datagram_bytes_;
  Phase phase_ = Phase::startup;
  std::uint64_t round_ = 0;
  RecentMaximum bandwidth_{10};
  double fair_bandwidth_ = 0;
  BaseRtt base_rtt_;

  double startup_best_ = 0;
  int startup_rounds_without_growth_ = 0;
  std::size_t cycle_index_ = 0;
  Time cycle_started_at_ = 0;

  Duration queue_ = 0;  // that the latest timed packet met on its way there

  // Acks come in lumps (batching, scheduling): how many bytes a lump may exceed the model by.
  Time aggregation_started_at_ = 0;
  std::uint64_t aggregated_bytes_ = 0;
  RecentMaximum aggregation_{10};
};

}  // namespace holdfast
