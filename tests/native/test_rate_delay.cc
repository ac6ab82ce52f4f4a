// The delay-based rule, round by round: what it does below, between and above its thresholds, what loss means to it,
// and what it remembers.
#include <cmath>
#include <vector>

#include "core/rate_delay.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

constexpr std::uint32_t datagram = 1472;
constexpr Duration base = 100 * microsecond;
constexpr Duration short_trip = base;
constexpr double step = datagram / 2e-3;  // one datagram in the least time that is told from host jitter

struct Rounds {
  DelayRule rule{datagram};
  Time now = second;

  double rate() const { return rule.pacing_bytes_per_second(0); }
  Duration between() const { return (rule.low_threshold() + rule.high_threshold()) / 2; }

  // One round of 100 datagrams, of which so many are lost.
  void round(Duration rtt, int lost = 0, bool limited_by_sender = false) {
    RateSample sample;
    sample.now = now += rtt;
    sample.acknowledged_bytes = static_cast<std::uint64_t>(100 - lost) * datagram;
    sample.lost_bytes = static_cast<std::uint64_t>(lost) * datagram;
    sample.app_limited = limited_by_sender;
    sample.round_started = true;
    sample.rtt = rtt;
    rule.on_sample(sample);
  }

  // Past the first doubling: the empty path's round trip is known, and a queue was felt.
  static Rounds settled() {
    Rounds rounds;
    rounds.round(base);
    rounds.round(rounds.between());
    return rounds;
  }
};

bool is_near(double value, double right) { return std::abs(value - right) <= 1e-9 * right; }

}  // namespace

HF_CASE(the_thresholds_are_round_trips_of_the_empty_path_but_above_what_hosts_take) {
  Rounds near;
  near.round(100 * microsecond);
  HF_EQUAL(near.rule.low_threshold(), 100 * microsecond + 2 * millisecond);
  HF_EQUAL(near.rule.high_threshold(), 100 * microsecond + 8 * millisecond);
  Rounds far;
  far.round(40 * millisecond);
  HF_EQUAL(far.rule.low_threshold(), 80 * millisecond);
  HF_EQUAL(far.rule.high_threshold(), 200 * millisecond);
}

HF_CASE(it_doubles_until_a_queue_is_felt_and_then_adds_a_datagram_in_a_round) {
  Rounds rounds;
  const double first = rounds.rate();
  HF_CHECK(is_near(first, 10 * datagram / 1e-3));
  for (int i = 0; i < 4; ++i) rounds.round(short_trip);
  HF_CHECK(is_near(rounds.rate(), 16 * first));
  rounds.round(rounds.between());
  HF_CHECK(is_near(rounds.rate(), 16 * first));
  for (int i = 0; i < 10; ++i) rounds.round(short_trip);
  HF_CHECK(is_near(rounds.rate(), 16 * first + 10 * step));
}

HF_CASE(a_round_that_the_sender_did_not_fill_grows_nothing) {
  Rounds rounds = Rounds::settled();
  const double before = rounds.rate();
  for (int i = 0; i < 100; ++i) rounds.round(short_trip, 0, true);
  HF_EQUAL(rounds.rate(), before);
}

HF_CASE(between_the_thresholds_it_holds) {
  Rounds rounds = Rounds::settled();
  const double before = rounds.rate();
  const Duration low = rounds.rule.low_threshold();
  const Duration high = rounds.rule.high_threshold();
  for (int i = 0; i < 100; ++i) rounds.round(low + (high - low) * i / 100);
  rounds.round(high);
  HF_EQUAL(rounds.rate(), before);
}

HF_CASE(above_the_high_threshold_it_shrinks_by_half_of_the_excess) {
  for (const int times : {2, 4, 100}) {
    Rounds rounds = Rounds::settled();
    const double before = rounds.rate();
    rounds.round(times * rounds.rule.high_threshold());
    HF_CHECK(is_near(rounds.rate(), before * (1 - 0.5 * (1 - 1.0 / times))));
  }
}

HF_CASE(a_queue_that_others_keep_full_does_not_starve_it) {
  Rounds rounds = Rounds::settled();
  RateSample proof;
  proof.now = rounds.now;
  proof.bytes_per_second = 10e6;
  proof.acknowledged_bytes = datagram;
  rounds.rule.on_sample(proof);
  for (int i = 0; i < 20; ++i) rounds.round(10 * rounds.rule.high_threshold());
  HF_CHECK(is_near(rounds.rate(), 5e6));
  Rounds unproven = Rounds::settled();
  for (int i = 0; i < 100; ++i) unproven.round(10 * unproven.rule.high_threshold());
  HF_CHECK(is_near(unproven.rate(), 4 * datagram / 0.1));  // the smallest window still leaves in a tenth of a second
}

HF_CASE(one_percent_of_random_loss_shrinks_nothing) {
  Rounds growing = Rounds::settled();
  Rounds holding = Rounds::settled();
  const double held = holding.rate();
  for (int i = 0; i < 1000; ++i) {
    const double before = growing.rate();
    growing.round(short_trip, 1);
    HF_CHECK(growing.rate() > before);
    holding.round(holding.between(), 1);
  }
  HF_EQUAL(holding.rate(), held);
}

HF_CASE(heavy_loss_with_short_round_trips_is_no_overflow) {
  Rounds rounds = Rounds::settled();
  for (int i = 0; i < 100; ++i) {
    const double before = rounds.rate();
    rounds.round(short_trip, 20);
    HF_CHECK(rounds.rate() > before);
  }
}

HF_CASE(a_queue_that_overflowed_sets_a_ceiling_that_is_tried_every_32_rounds) {
  Rounds rounds = Rounds::settled();
  for (int i = 0; i < 7; ++i) rounds.round(short_trip);
  const double overflowed_at = rounds.rate();
  while (rounds.rate() == overflowed_at) rounds.round(rounds.between(), 10);
  HF_CHECK(is_near(rounds.rate(), 0.7 * overflowed_at));
  for (int i = 0; i < 31; ++i) {
    rounds.round(short_trip);
    HF_CHECK(rounds.rate() < overflowed_at);
  }
  const double plateau = rounds.rate();
  HF_CHECK(plateau > overflowed_at - step);  // close below it, though
  std::vector<int> grown_in;
  for (int i = 0; i < 200; ++i) {
    const double before = rounds.rate();
    rounds.round(short_trip);
    if (rounds.rate() > before) grown_in.push_back(i);
  }
  HF_CHECK(grown_in.size() >= 6);
  for (std::size_t i = 1; i < grown_in.size(); ++i) HF_EQUAL(grown_in[i] - grown_in[i - 1], 32);
  HF_CHECK(is_near(rounds.rate(), plateau + static_cast<double>(grown_in.size()) * step));
}

HF_CASE(it_starts_from_the_last_rate_after_an_hour_of_heartbeats) {
  Rounds rounds = Rounds::settled();
  rounds.round(3 * rounds.rule.high_threshold());
  const double before = rounds.rate();
  for (int i = 0; i < 4 * 3600; ++i) {
    rounds.now += 250 * millisecond;
    rounds.round(short_trip, 0, true);
  }
  HF_EQUAL(rounds.rate(), before);
  for (int i = 0; i < 20; ++i) rounds.round(short_trip);
  HF_CHECK(is_near(rounds.rate(), before + 20 * step));
}

HF_CASE(a_path_that_became_longer_is_believed_after_ten_seconds) {
  Rounds rounds = Rounds::settled();
  for (int i = 0; i < 200; ++i) rounds.round(60 * millisecond);  // twelve seconds
  HF_EQUAL(rounds.rule.base_rtt(), 60 * millisecond);
  const double before = rounds.rate();
  rounds.round(60 * millisecond);
  HF_CHECK(rounds.rate() > before);
}

HF_CASE(the_window_is_what_the_rate_delivers_within_the_high_threshold) {
  Rounds rounds = Rounds::settled();
  const double patience = static_cast<double>(rounds.rule.high_threshold()) / 1e9;
  HF_CHECK(is_near(rounds.rule.window_bytes(), rounds.rate() * patience));
  for (int i = 0; i < 100; ++i) rounds.round(10 * rounds.rule.high_threshold());
  HF_CHECK(rounds.rule.window_bytes() >= 4 * datagram);
}

HF_TEST_MAIN
