// How fast the card is, told from what it still has waiting.
#include <algorithm>

#include "core/card_rate.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

// A card that sends `bytes_per_second`, given `offered` of it, looked at every 500 microseconds.
struct Card {
  CardRate rate{};
  double bytes_per_second;
  Time now = second;
  double waiting = 0;

  void run(double offered_bytes_per_second, Duration time) {
    constexpr Duration turn = 500 * microsecond;
    for (const Time end = now + time; now < end; now += turn) {
      rate.on_queue(now, static_cast<std::uint64_t>(waiting));
      const auto sent = static_cast<std::uint64_t>(offered_bytes_per_second * in_seconds(turn));
      rate.on_sent(sent);
      waiting = std::max(0.0, waiting + static_cast<double>(sent) - bytes_per_second * in_seconds(turn));
    }
  }
};

bool near(double value, double expected) { return value > 0.95 * expected && value < 1.05 * expected; }

}  // namespace

HF_CASE(a_busy_card_shows_its_rate) {
  Card card{.bytes_per_second = 30e6};
  HF_EQUAL(card.rate.bytes_per_second(), 0.0);
  card.run(33e6, 100 * millisecond);
  HF_CHECK(near(card.rate.bytes_per_second(), 30e6));
}

HF_CASE(a_card_that_is_never_busy_is_no_bottleneck) {
  Card card{.bytes_per_second = 3e9};
  card.run(30e6, second);
  HF_EQUAL(card.rate.bytes_per_second(), 0.0);
}

HF_CASE(a_card_that_has_become_faster_is_noticed_by_what_passes) {
  Card card{.bytes_per_second = 10e6};
  card.run(12e6, 100 * millisecond);
  card.bytes_per_second = 40e6;
  for (int i = 0; i < 200; ++i) {
    const CardUse use{.bytes_per_second = card.rate.bytes_per_second(), .num_paths = 3, .num_busy = 3};
    card.run(3 * use.share(0), 10 * millisecond);
  }
  HF_CHECK(near(card.rate.bytes_per_second(), 40e6));
}

HF_CASE(a_card_that_has_become_slower_is_noticed_when_the_better_times_are_forgotten) {
  Card card{.bytes_per_second = 40e6};
  card.run(42e6, 100 * millisecond);
  card.bytes_per_second = 25e6;
  card.run(30e6, 500 * millisecond);
  HF_CHECK(near(card.rate.bytes_per_second(), 25e6));
}

HF_CASE(a_card_that_always_looks_busy_is_not_talked_down_by_one_path_at_its_share) {
  Card card{.bytes_per_second = 30e6};
  card.run(33e6, 100 * millisecond);
  const double best = card.rate.bytes_per_second();
  HF_CHECK(near(best, 30e6));
  for (int i = 0; i < 5000; ++i) {
    card.rate.on_queue(card.now, 3000);  // sent long ago, and not yet told
    card.rate.on_sent(static_cast<std::uint64_t>(card.rate.bytes_per_second() / 3 * in_seconds(millisecond)));
    card.now += millisecond;
  }
  HF_CHECK(card.rate.bytes_per_second() >= best / 2);
}

HF_CASE(a_pause_is_no_slow_card) {
  Card card{.bytes_per_second = 30e6};
  for (int i = 0; i < 50; ++i) {
    card.run(33e6, 60 * millisecond);
    card.waiting = 0;
    card.now += 300 * millisecond;
  }
  HF_CHECK(near(card.rate.bytes_per_second(), 30e6));
}

HF_CASE(paths_share_the_card_evenly_while_all_of_them_are_busy) {
  const CardUse card{.bytes_per_second = 70e6, .num_paths = 7, .num_busy = 7};
  HF_CHECK(near(card.share(0), 10e6));
  HF_CHECK(7 * card.share(0) > 70e6);  // a little more than the card sends, or a faster one would not be noticed
  HF_CHECK(near(card.share(7), 10e6));
  HF_EQUAL(CardUse{.bytes_per_second = 70e6}.share(0), 0.0);  // no operation is open
}

HF_CASE(a_path_that_has_fallen_behind_gets_what_the_others_leave_and_at_most_three_even_shares) {
  CardUse card{.bytes_per_second = 70e6, .num_paths = 7, .num_busy = 4};
  HF_CHECK(near(card.share(0), 17.5e6));
  card.num_busy = 1;
  HF_CHECK(near(card.share(0), 30e6));  // three even shares
  card.num_paths = 2;
  HF_CHECK(near(card.share(0), 70e6));
}

HF_CASE(a_peer_that_hears_few_at_a_time_is_sent_to_faster_and_the_others_are_not) {
  const CardUse card{.bytes_per_second = 70e6, .num_paths = 7, .num_busy = 7};
  HF_CHECK(near(card.share(2), 35e6));
  HF_CHECK(near(card.share(1), 70e6));
  HF_CHECK(near(card.share(7), 10e6));
}

HF_CASE(a_packet_waits_behind_all_that_the_card_has) {
  CardUse card{.waiting_bytes = 20'000, .bytes_per_second = 10e6};
  HF_EQUAL(card.wait_behind(0), 2 * millisecond);
  HF_EQUAL(card.wait_behind(5'000), 2'500 * microsecond);
  card.bytes_per_second = 0;  // no bottleneck, or not known yet
  HF_EQUAL(card.wait_behind(5'000), 0);
}

HF_TEST_MAIN
