// Round-trip time as RFC 9002 5.3 and 6 compute it, in exact numbers.
#include "core/rtt.h"
#include "testing/check.h"

using namespace holdfast;

HF_CASE(before_any_sample_the_guess_holds) {
  const RttEstimator rtt(millisecond);
  HF_CHECK(!rtt.has_sample());
  HF_EQUAL(rtt.smoothed(), millisecond);
  HF_EQUAL(rtt.loss_delay(), 1125 * microsecond);
  HF_EQUAL(rtt.probe_timeout(millisecond), 4 * millisecond);  // 1 + 4 * 0.5 + 1
}

HF_CASE(first_sample_replaces_the_guess) {
  RttEstimator rtt(millisecond);
  rtt.add_sample(10 * millisecond, 3 * millisecond);
  HF_CHECK(rtt.has_sample());
  HF_EQUAL(rtt.smoothed(), 10 * millisecond);
  HF_EQUAL(rtt.min(), 10 * millisecond);
  HF_EQUAL(rtt.latest(), 10 * millisecond);
  HF_EQUAL(rtt.probe_timeout(0), 30 * millisecond);  // 10 + 4 * 5
}

HF_CASE(later_samples_move_an_eighth_and_a_quarter) {
  RttEstimator rtt(millisecond);
  rtt.add_sample(8 * millisecond, 0);
  rtt.add_sample(16 * millisecond, 0);
  HF_EQUAL(rtt.smoothed(), 9 * millisecond);         // 8 + (16 - 8) / 8
  HF_EQUAL(rtt.probe_timeout(0), 29 * millisecond);  // 9 + 4 * (4 + (8 - 4) / 4)
  HF_EQUAL(rtt.min(), 8 * millisecond);
  rtt.add_sample(millisecond, 0);
  HF_EQUAL(rtt.smoothed(), 8 * millisecond);  // 9 + (1 - 9) / 8
  HF_EQUAL(rtt.min(), millisecond);
}

HF_CASE(the_peers_delay_is_taken_off_unless_that_goes_below_the_minimum) {
  RttEstimator believed(millisecond);
  believed.add_sample(8 * millisecond, 0);
  believed.add_sample(16 * millisecond, 8 * millisecond);
  HF_EQUAL(believed.smoothed(), 8 * millisecond);
  RttEstimator doubted(millisecond);
  doubted.add_sample(8 * millisecond, 0);
  doubted.add_sample(16 * millisecond, 9 * millisecond);
  HF_EQUAL(doubted.smoothed(), 9 * millisecond);
}

HF_CASE(loss_delay_is_nine_eighths_of_the_larger_of_smoothed_and_latest) {
  RttEstimator rtt(millisecond);
  rtt.add_sample(8 * millisecond, 0);
  HF_EQUAL(rtt.loss_delay(), 9 * millisecond);
  rtt.add_sample(16 * millisecond, 0);
  HF_EQUAL(rtt.loss_delay(), 18 * millisecond);
  rtt.add_sample(millisecond, 0);
  HF_EQUAL(rtt.loss_delay(), 9 * millisecond);
}

HF_CASE(loss_delay_stays_above_scheduling_noise) {
  RttEstimator rtt(millisecond);
  rtt.add_sample(20 * microsecond, 0);
  HF_EQUAL(rtt.loss_delay(), 200 * microsecond);
  HF_EQUAL(rtt.probe_timeout(0), 20 * microsecond + millisecond);
}

HF_CASE(a_sample_of_zero_counts_as_a_microsecond) {
  RttEstimator rtt(millisecond);
  rtt.add_sample(0, 0);
  HF_EQUAL(rtt.smoothed(), microsecond);
  HF_EQUAL(rtt.min(), microsecond);
}

HF_TEST_MAIN
