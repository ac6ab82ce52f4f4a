// Bursts grow while nothing is lost, and what was too large once is not tried again soon.
#include "core/burst_size.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

void lose(BurstSize& burst, Time sent_at, Time now, int packets) {
  for (int i = 0; i < packets; ++i) burst.on_lost(sent_at);
  burst.on_settled(now, static_cast<std::size_t>(packets));
}

void deliver(BurstSize& burst, Time now, std::uint32_t windows) {
  for (std::uint32_t i = 0; i < windows; ++i) burst.on_settled(now, BurstSize::window);
}

}  // namespace

HF_CASE(a_burst_grows_by_one_for_every_window_that_arrives) {
  BurstSize burst;
  HF_EQUAL(burst.datagrams(), BurstSize::first);
  burst.on_settled(1, BurstSize::window - 1);
  HF_EQUAL(burst.datagrams(), BurstSize::first);
  burst.on_settled(2, 1);
  HF_EQUAL(burst.datagrams(), BurstSize::first + 1);
  deliver(burst, 3, 100);
  HF_EQUAL(burst.datagrams(), BurstSize::most);
}

HF_CASE(one_loss_in_a_window_is_chance_and_two_are_not) {
  BurstSize burst;
  deliver(burst, 1, 100);
  lose(burst, 1, 2, 1);
  HF_EQUAL(burst.datagrams(), BurstSize::most);
  lose(burst, 1, 2, 1);
  HF_EQUAL(burst.datagrams(), BurstSize::least);
}

HF_CASE(one_loss_event_counts_once_however_its_losses_are_told) {
  BurstSize burst;
  deliver(burst, 1, 100);
  lose(burst, 1, 10, 2);   // the ceiling is now halfway between the size that lost and the least
  lose(burst, 9, 11, 40);  // sent before that was known
  deliver(burst, 20, 20);
  HF_EQUAL(burst.datagrams(), (BurstSize::most + BurstSize::least) / 2);
  lose(burst, 21, 22, 2);
  deliver(burst, 30, 20);
  HF_CHECK(burst.datagrams() < (BurstSize::most + BurstSize::least) / 2);
}

HF_CASE(a_size_that_lost_is_tried_again_after_a_long_time_without_loss) {
  BurstSize burst;
  deliver(burst, 1, 100);
  lose(burst, 1, 2, 2);
  deliver(burst, 3, BurstSize::memory * BurstSize::most);
  HF_EQUAL(burst.datagrams(), BurstSize::most);
}

HF_TEST_MAIN
