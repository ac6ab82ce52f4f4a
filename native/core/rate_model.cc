#include "core/rate_model.h"

#include <algorithm>
#include <array>

namespace holdfast {
namespace {

// Constants of BBR v1, as specs/ltp.md 3.7 lists them.
constexpr double startup_gain = 2.885;
constexpr double drain_gain = 1 / startup_gain;
constexpr std::array<double, 8> probe_gains{1.25, 0.75, 1, 1, 1, 1, 1, 1};
constexpr double window_gain = 2;
constexpr double startup_growth = 1.25;
constexpr int startup_patience_rounds = 3;

// A queue of four round trips is no queue worth mentioning, where the round trip is long.
constexpr int tolerable_round_trips = 4;

constexpr Duration initial_rtt_guess = millisecond;
// The smallest window may always leave within this time: one round of a minute (a stopped process) must not set a rate
// at which the next datagram waits for another.
constexpr Duration longest_paced_window = 100 * millisecond;
// Hosts answer in their own time: a thread waits for its core. A window that fits a round trip of a tenth of a
// millisecond would run dry with every such wait, the rate found would be that of the dry path, and the next window
// smaller still.
constexpr Duration host_jitter = millisecond;
// With many paths on one card each of them is slow, and two round trips of it are a packet or two: their acks would
// come one by one, and every one would let a single packet go.
constexpr std::uint64_t least_working_window_datagrams = 48;

}  // namespace

void ModelRule::on_sample(const RateSample& sample) {
  if (sample.round_started) ++round_;
  base_rtt_.add(sample.now, sample.rtt);
  // The first flight of a burst, or a lone ping, may prove the path faster than thought, but never say how fast it is.
  const bool says_less = sample.app_limited && (bandwidth_.empty() || sample.bytes_per_second < bandwidth_.value());
  if (sample.bytes_per_second > 0 && !says_less) bandwidth_.add(round_, sample.bytes_per_second);
  add_aggregation_sample(sample.now, sample.acknowledged_bytes);
  advance_phase(sample);
  if (sample.rtt > 0) queue_ = sample.queue;
}

void ModelRule::add_aggregation_sample(Time now, std::uint64_t bytes) {
  const double expected = bandwidth_.value() * in_seconds(now - aggregation_started_at_);
  if (static_cast<double>(aggregated_bytes_) <= expected) {
    aggregation_started_at_ = now;
    aggregated_bytes_ = bytes;
    return;
  }
  aggregated_bytes_ += bytes;
  aggregation_.add(round_, static_cast<double>(aggregated_bytes_) - expected);
}

void ModelRule::advance_phase(const RateSample& sample) {
  switch (phase_) {
    case Phase::startup:
      if (!sample.round_started || sample.app_limited) return;
      if (bandwidth_.value() >= startup_best_ * startup_growth) {
        startup_best_ = bandwidth_.value();
        startup_rounds_without_growth_ = 0;
      } else if (++startup_rounds_without_growth_ >= startup_patience_rounds) {
        phase_ = Phase::drain;
        cycle_started_at_ = sample.now;
      }
      return;
    case Phase::drain:
      if (sample.now - cycle_started_at_ < base_rtt_.value()) return;
      phase_ = Phase::probe;
      cycle_index_ = 2;
      cycle_started_at_ = sample.now;
      return;
    case Phase::probe:
      if (sample.now - cycle_started_at_ < base_rtt_.value()) return;
      cycle_index_ = (cycle_index_ + 1) % probe_gains.size();
      cycle_started_at_ = sample.now;
      return;
  }
}

double ModelRule::gain() const {
  switch (phase_) {
    case Phase::startup: return startup_gain;
    case Phase::drain: return drain_gain;
    case Phase::probe: break;
  }
  return probe_gains[cycle_index_];
}

// Where the card sets the pace, its share is a better guess than samples, which the last guess has shaped; a port that
// is slower than that is the window's to find.
double ModelRule::pacing_bytes_per_second(double card_share) const {
  if (card_share > 0) return card_share;
  if (bandwidth_.empty()) {
    const double window = static_cast<double>(initial_window_datagrams * datagram_bytes_);
    return startup_gain * window / in_seconds(initial_rtt_guess);
  }
  const double least = static_cast<double>(min_window_datagrams * datagram_bytes_) / in_seconds(longest_paced_window);
  return std::max(least, gain() * assumed_bandwidth());
}

// The bandwidth is the best of many round trips, so it hears late that a port has slowed down. The queue that grows
// there shows at once, in the time that packets take to the peer: the window falls with the square of what is beyond a
// tolerable one. Falling in proportion keeps the queue where it is; on a port that others filled to four fifths that
// lost 2.5 % of the packets, where the square lost 0.7 % and was faster.
double ModelRule::window_bytes(Duration tolerable_queue) const {
  const double least = static_cast<double>(min_window_datagrams * datagram_bytes_);
  const Duration base = base_rtt_.value();
  const Duration tolerable = base + std::max(tolerable_round_trips * base, tolerable_queue);
  const double excess = std::max(1.0, static_cast<double>(base + queue_) / static_cast<double>(tolerable));
  return std::max(least, modelled_window() / (excess * excess));
}

double ModelRule::modelled_window() const {
  if (bandwidth_.empty() || base_rtt_.value() == 0) {
    return static_cast<double>(initial_window_datagrams * datagram_bytes_);
  }
  const double product = assumed_bandwidth() * in_seconds(std::max(base_rtt_.value(), host_jitter));
  const double gain = phase_ == Phase::startup ? startup_gain : window_gain;
  const auto working = static_cast<double>(least_working_window_datagrams * datagram_bytes_);
  return std::max(working, gain * product + aggregation_.value());
}

}  // namespace holdfast
