// What packets wait on their way is found without clocks that agree.
#include "core/forward_queue.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

// A peer whose clock is `ahead` of this one's, on a road of `empty` without queues.
struct Road {
  Duration ahead;
  Duration empty = 300 * microsecond;
  ForwardQueue queue{};

  Duration send(Time at, Duration waits, Duration card_wait = 0) {
    const Time arrives = at + empty + card_wait + waits;
    return queue.add(arrives + empty, at, wrapped_microseconds(arrives + ahead), card_wait);
  }
};

}  // namespace

HF_CASE(a_queue_is_what_exceeds_the_fastest_packet_whatever_the_clocks_say) {
  for (const Duration ahead : {Duration{0}, 5 * second, -5 * second, 10'000 * second, -10'000 * second}) {
    Road road{ahead};
    HF_EQUAL(road.send(20'000 * second, 0), 0);
    HF_EQUAL(road.send(20'001 * second, 7 * millisecond), 7 * millisecond);
    HF_EQUAL(road.send(20'002 * second, millisecond), millisecond);
  }
}

HF_CASE(a_faster_packet_makes_the_road_shorter) {
  Road road{0};
  HF_EQUAL(road.send(second, 2 * millisecond), 0);  // as far as is known
  HF_EQUAL(road.send(2 * second, 0), 0);
  HF_EQUAL(road.send(3 * second, 2 * millisecond), 2 * millisecond);
}

HF_CASE(the_peers_clock_may_come_round_in_between) {
  constexpr Duration period = (Duration{1} << 32) * microsecond;
  Road road{period - 10 * second};
  HF_EQUAL(road.send(9 * second, 0), 0);
  HF_EQUAL(road.send(10 * second, 3 * millisecond), 3 * millisecond);
  HF_EQUAL(road.send(11 * second, 0), 0);
}

HF_CASE(waiting_in_the_own_card_is_no_queue_and_never_shortens_the_road) {
  Road road{0};
  HF_EQUAL(road.send(second, 0), 0);
  HF_EQUAL(road.send(2 * second, 4 * millisecond, 2 * millisecond), 4 * millisecond);
  HF_EQUAL(road.queue.add(3 * second, 3 * second, wrapped_microseconds(3 * second + millisecond), second), 0);
  HF_EQUAL(road.send(4 * second, 4 * millisecond), 4 * millisecond);
}

HF_CASE(a_road_that_is_never_empty_again_is_remembered_for_five_seconds_at_least) {
  Road road{0};
  HF_EQUAL(road.send(second, 0), 0);
  for (Time at = 2 * second; at < 6 * second; at += second) HF_EQUAL(road.send(at, 6 * millisecond), 6 * millisecond);
  HF_EQUAL(road.send(6'500 * millisecond, 4 * millisecond), 4 * millisecond);  // in the next stretch
  HF_EQUAL(road.send(11 * second, 6 * millisecond), 6 * millisecond);
  HF_EQUAL(road.send(12 * second, 6 * millisecond), 2 * millisecond);  // the shortest since is what is known
}

HF_CASE(clocks_that_drift_apart_are_at_most_a_millisecond_off) {
  Road road{0};
  for (Time at = second; at < 600 * second; at += 50 * millisecond) {
    road.ahead = at / 10'000;  // a hundred parts in a million
    HF_CHECK(road.send(at, 0) < 1'020 * microsecond);
  }
}

HF_CASE(a_clock_that_ran_away_in_a_pause_is_forgiven) {
  Road road{0};
  HF_EQUAL(road.send(second, 0), 0);
  road.ahead = 360 * millisecond;  // an hour at a hundred parts in a million
  HF_EQUAL(road.send(3600 * second, 0), 0);
  HF_EQUAL(road.send(3601 * second, millisecond), millisecond);
}

HF_TEST_MAIN
