#include "core/rate_delay.h"

#include <algorithm>
#include <cmath>

namespace holdfast {
namespace {

constexpr double beta = 0.5;  // OptiReduce 3.2.3
// The paper's thresholds, 25 and 250 us, fit its network. Here they are round trips of the empty path.
constexpr int low_round_trips = 2;
constexpr int high_round_trips = 5;
// Below this a queue is not told from hosts that answer in their own time.
constexpr Duration host_jitter = 2 * millisecond;
constexpr Duration initial_rtt_guess = millisecond;
constexpr Duration longest_paced_window = 100 * millisecond;

constexpr double overflow_factor = 0.7;
constexpr std::uint64_t rounds_between_probes = 32;

}  // namespace

DelayRule::DelayRule(std::uint32_t datagram_bytes)
    : datagram_bytes_(datagram_bytes),
      bytes_per_second_(static_cast<double>(initial_window_datagrams) * datagram_bytes / in_seconds(initial_rtt_guess)),
      loss_(datagram_bytes),
      ceiling_(HUGE_VAL) {}

Duration DelayRule::low_threshold() const {
  return std::max(low_round_trips * base_rtt_.value(), base_rtt_.value() + host_jitter);
}

Duration DelayRule::high_threshold() const {
  return std::max(high_round_trips * base_rtt_.value(), base_rtt_.value() + 4 * host_jitter);
}

void DelayRule::on_sample(const RateSample& sample) {
  base_rtt_.add(sample.now, sample.rtt);
  if (sample.bytes_per_second > 0 && (!sample.app_limited || sample.bytes_per_second > bandwidth_.value())) {
    bandwidth_.add(round_, sample.bytes_per_second);
  }
  loss_.add(sample.acknowledged_bytes, sample.lost_bytes);
  if (sample.rtt > 0) round_rtt_ = round_rtt_ == 0 ? sample.rtt : std::min(round_rtt_, sample.rtt);
  round_limited_by_sender_ = round_limited_by_sender_ || sample.app_limited;
  if (!sample.round_started) return;
  end_round();
  ++round_;
  round_rtt_ = 0;
  round_limited_by_sender_ = false;
}

// TIMELY also grows between the thresholds while the round trip gets shorter. Here half of all rounds are shorter than
// the one before by chance alone, and the rate would climb to the upper threshold: it is held instead.
void DelayRule::end_round() {
  if (round_rtt_ == 0) return;
  if (overran_a_queue(round_rtt_)) {
    ceiling_ = bytes_per_second_;
    probed_at_ = round_;
    loss_.forget();
    shrink(overflow_factor);
  } else if (round_rtt_ > high_threshold()) {
    shrink(1 - beta * (1 - static_cast<double>(high_threshold()) / static_cast<double>(round_rtt_)));
  } else if (round_rtt_ < low_threshold()) {
    if (!round_limited_by_sender_) grow();  // a rate that was not used up says nothing about a higher one
  } else {
    starting_ = false;
  }
}

bool DelayRule::overran_a_queue(Duration rtt) const {
  const Duration felt = base_rtt_.value() + (low_threshold() - base_rtt_.value()) / 4;
  return loss_.is_overflow() && rtt > felt;
}

// One datagram more in a round trip, as the paper's 50 Mbit/s are to its network.
void DelayRule::grow() {
  const double step = datagram_bytes_ / in_seconds(std::max(base_rtt_.value(), host_jitter));
  double grown = starting_ ? 2 * bytes_per_second_ : bytes_per_second_ + step;
  // Twice what arrives is enough to find out whether more would: beyond that only the queue learns of it.
  if (bandwidth_.value() > 0) grown = std::min(grown, std::max(bytes_per_second_, 2 * bandwidth_.value()));
  if (grown > ceiling_) {
    if (round_ - probed_at_ < rounds_between_probes) {
      grown = std::max(bytes_per_second_, std::min(grown, ceiling_ - step));
    } else {
      probed_at_ = round_;
      grown = bytes_per_second_ + step;
      ceiling_ = std::max(ceiling_, grown);
    }
  }
  bytes_per_second_ = grown;
}

// Never below half of what the path has shown it can do: a queue that others keep full must not starve this sender.
void DelayRule::shrink(double factor) {
  starting_ = false;
  const double least = static_cast<double>(min_window_datagrams) * datagram_bytes_ / in_seconds(longest_paced_window);
  bytes_per_second_ =
      std::max({least, std::min(bytes_per_second_, bandwidth_.value() / 2), factor * bytes_per_second_});
}

double DelayRule::pacing_bytes_per_second(double card_share) const {
  return card_share > 0 ? std::min(card_share, bytes_per_second_) : bytes_per_second_;
}

double DelayRule::window_bytes() const {
  const Duration patience = base_rtt_.value() == 0 ? initial_rtt_guess : high_threshold();
  return std::max(static_cast<double>(min_window_datagrams) * datagram_bytes_,
                  bytes_per_second_ * in_seconds(patience));
}

}  // namespace holdfast
