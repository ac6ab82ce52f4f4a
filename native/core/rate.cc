#include "core/rate.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace holdfast {
namespace {

// Constants of BBR v1, as specs/ltp.md 3.7 lists them.
constexpr double startup_gain = 2.885;
constexpr double drain_gain = 1 / startup_gain;
constexpr std::array<double, 8> probe_gains{1.25, 0.75, 1, 1, 1, 1, 1, 1};
constexpr double window_gain = 2;
constexpr std::uint64_t bandwidth_rounds = 10;
constexpr Duration min_rtt_lifetime = 10 * second;
constexpr double startup_growth = 1.25;
constexpr int startup_patience_rounds = 3;

constexpr std::uint64_t min_window_datagrams = 4;
constexpr std::uint64_t initial_window_datagrams = 10;
constexpr Duration initial_rtt_guess = millisecond;
// The smallest window may always leave within this time: one round of a minute (a stopped process) must not set a rate
// at which the next datagram waits for another.
constexpr Duration longest_paced_window = 100 * millisecond;
constexpr std::uint32_t initial_receive_window = 256 * 1024;

constexpr Duration pacing_slack = 500 * microsecond;
constexpr std::uint64_t network_batch_bytes = 16 * 1024;
constexpr std::uint64_t same_host_batch_bytes = 65'280;

template <class Queue, class Sample>
void keep_maximum(Queue& queue, const Sample& sample) {
  while (!queue.empty() && queue.back().value <= sample.value) queue.pop_back();
  queue.push_back(sample);
  while (queue.front().round + bandwidth_rounds < sample.round) queue.pop_front();
}

}  // namespace

RateController::RateController(std::uint32_t datagram_bytes, bool same_host)
    : datagram_bytes_(datagram_bytes), same_host_(same_host), receive_window_(initial_receive_window) {}

DeliverySnapshot RateController::on_sent(Time now, std::uint64_t bytes_in_flight) {
  if (bytes_in_flight == 0) {
    first_sent_at_ = now;
    delivered_at_ = now;
  }
  return {delivered_bytes_, delivered_at_, first_sent_at_, app_limited_until_ != 0};
}

void RateController::on_acknowledged(Time now, std::uint64_t bytes, const DeliverySnapshot& newest, Time newest_sent_at,
                                     Duration rtt) {
  delivered_bytes_ += bytes;
  delivered_at_ = now;
  first_sent_at_ = newest_sent_at;
  if (app_limited_until_ != 0 && delivered_bytes_ > app_limited_until_) app_limited_until_ = 0;

  const bool round_started = newest.delivered_bytes >= round_ends_at_;
  if (round_started) {
    ++round_;
    round_ends_at_ = delivered_bytes_;
  }
  if (rtt > 0 && (min_rtt_ == 0 || rtt <= min_rtt_ || now - min_rtt_at_ > min_rtt_lifetime)) {
    min_rtt_ = rtt;
    min_rtt_at_ = now;
  }
  const Duration interval = std::max(newest_sent_at - newest.first_sent_at, now - newest.delivered_at);
  // A sample shorter than a round trip measures how acks were bunched, not what the path carries.
  if (interval >= std::max(min_rtt_, microsecond)) {
    const double delivered = static_cast<double>(delivered_bytes_ - newest.delivered_bytes);
    add_bandwidth_sample(delivered * static_cast<double>(second) / static_cast<double>(interval), newest.app_limited);
  }
  add_aggregation_sample(now, bytes);
  advance_phase(now, round_started, newest.app_limited);
}

void RateController::add_bandwidth_sample(double value, bool app_limited) {
  // The first flight of a burst, or a lone ping, may prove the path faster than thought, but never say how fast it is.
  if (app_limited && (bandwidth_.empty() || value < bandwidth_bytes_per_second())) return;
  keep_maximum(bandwidth_, Sample{round_, value});
}

void RateController::add_aggregation_sample(Time now, std::uint64_t bytes) {
  const double expected =
      bandwidth_bytes_per_second() * static_cast<double>(now - aggregation_started_at_) / static_cast<double>(second);
  if (static_cast<double>(aggregated_bytes_) <= expected) {
    aggregation_started_at_ = now;
    aggregated_bytes_ = bytes;
    return;
  }
  aggregated_bytes_ += bytes;
  keep_maximum(aggregation_, Sample{round_, static_cast<double>(aggregated_bytes_) - expected});
}

void RateController::advance_phase(Time now, bool round_started, bool app_limited) {
  switch (phase_) {
    case Phase::startup:
      if (!round_started || app_limited) return;
      if (bandwidth_bytes_per_second() >= startup_best_ * startup_growth) {
        startup_best_ = bandwidth_bytes_per_second();
        startup_rounds_without_growth_ = 0;
      } else if (++startup_rounds_without_growth_ >= startup_patience_rounds) {
        phase_ = Phase::drain;
        cycle_started_at_ = now;
      }
      return;
    case Phase::drain:
      if (now - cycle_started_at_ < min_rtt_) return;
      phase_ = Phase::probe;
      cycle_index_ = 2;
      cycle_started_at_ = now;
      return;
    case Phase::probe:
      if (now - cycle_started_at_ < min_rtt_) return;
      cycle_index_ = (cycle_index_ + 1) % probe_gains.size();
      cycle_started_at_ = now;
      return;
  }
}

void RateController::on_app_limited(std::uint64_t bytes_in_flight) {
  app_limited_until_ = std::max<std::uint64_t>(1, delivered_bytes_ + bytes_in_flight);
}

double RateController::gain() const {
  switch (phase_) {
    case Phase::startup: return startup_gain;
    case Phase::drain: return drain_gain;
    case Phase::probe: break;
  }
  return probe_gains[cycle_index_];
}

double RateController::pacing_bytes_per_second() const {
  if (same_host_) return HUGE_VAL;
  if (bandwidth_.empty()) {
    const double window = static_cast<double>(initial_window_datagrams * datagram_bytes_);
    return startup_gain * window * static_cast<double>(second) / static_cast<double>(initial_rtt_guess);
  }
  const double least = static_cast<double>(min_window_datagrams * datagram_bytes_) * static_cast<double>(second) /
                       static_cast<double>(longest_paced_window);
  return std::max(least, gain() * bandwidth_bytes_per_second());
}

std::uint64_t RateController::window_bytes() const {
  const std::uint64_t least = min_window_datagrams * datagram_bytes_;
  const std::uint64_t most = std::max<std::uint64_t>(receive_window_, datagram_bytes_);
  if (same_host_) return most;
  if (bandwidth_.empty() || min_rtt_ == 0) return std::min(most, initial_window_datagrams * datagram_bytes_);
  const double product = bandwidth_bytes_per_second() * static_cast<double>(min_rtt_) / static_cast<double>(second);
  const double gain = phase_ == Phase::startup ? startup_gain : window_gain;
  const double lumps = aggregation_.empty() ? 0.0 : aggregation_.front().value;
  return std::min(most, std::max(least, static_cast<std::uint64_t>(gain * product + lumps)));
}

void Pacer::on_sent(Time now, std::uint64_t bytes, double bytes_per_second) {
  if (std::isinf(bytes_per_second)) return;
  const auto cost = static_cast<Duration>(static_cast<double>(bytes) * static_cast<double>(second) / bytes_per_second);
  // Unused time counts for at most the slack, so a pause never turns into a long burst.
  ready_at_ = std::max(ready_at_, now - pacing_slack) + cost;
}

std::uint64_t Pacer::batch_bytes(double bytes_per_second) const {
  if (std::isinf(bytes_per_second)) return same_host_batch_bytes;
  const double half_millisecond = bytes_per_second * static_cast<double>(pacing_slack) / static_cast<double>(second);
  const std::uint64_t most = std::min<std::uint64_t>(network_batch_bytes, static_cast<std::uint64_t>(half_millisecond));
  return std::max<std::uint64_t>(most, datagram_bytes_);
}

}  // namespace holdfast
