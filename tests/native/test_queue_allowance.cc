// How long a queue is put up with follows from what is lost, over all paths and thousands of packets.
#include "core/queue_allowance.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

// Operations of 1,000 packets that lose `burst` of them, every `every`th of them.
Duration after(int operations, std::size_t burst, int every) {
  QueueAllowance queue;
  for (int i = 0; i < operations; ++i) {
    const std::size_t lost = i % every == 0 ? burst : 0;
    queue.on_settled(1000 - lost, lost);
  }
  return queue.tolerable();
}

}  // namespace

HF_CASE(the_queue_is_short_until_thousands_of_packets_have_come) {
  HF_EQUAL(QueueAllowance{}.tolerable(), QueueAllowance::least);
  HF_EQUAL(after(5, 0, 1), QueueAllowance::least + 5 * 1000 * QueueAllowance::gain_per_packet);
  HF_EQUAL(after(1000, 0, 1), QueueAllowance::most);
}

HF_CASE(a_packet_lost_in_two_thousand_is_put_up_with) { HF_EQUAL(after(200, 1, 2), QueueAllowance::most); }

HF_CASE(bursts_of_loss_keep_the_queue_short_through_the_pauses_between_them) {
  // Half a percent, of which all comes in every tenth operation: never more than the least, at any time.
  QueueAllowance queue;
  for (int i = 0; i < 300; ++i) {
    queue.on_settled(1000, i % 10 == 0 ? 50 : 0);
    if (i > 20) HF_EQUAL(queue.tolerable(), QueueAllowance::least);
  }
}

HF_CASE(loss_that_is_over_is_forgotten) {
  QueueAllowance queue;
  queue.on_settled(0, 100'000);
  HF_EQUAL(queue.tolerable(), QueueAllowance::least);
  queue.on_settled(60'000, 0);
  HF_EQUAL(queue.tolerable(), QueueAllowance::most);
}

HF_TEST_MAIN
