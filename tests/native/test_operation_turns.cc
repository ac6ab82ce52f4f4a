// Whose turn it is to be sent to, as receivers hand out credit.
#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(a_credit_of_two_takes_four_rounds_for_nine_ranks) {
  Setting setting;
  setting.num_ranks = 9;
  setting.total = 9 * 16;
  Bench bench(setting);
  bench.outbox.credit[5] = 2;
  bench.outbox.credit[7] = 3;
  bench.call(0);
  HF_EQUAL(bench.outbox.summary(), "c8 c7 ");
  int rounds = 1;
  for (std::size_t sent = 0; bench.outbox.sent.size() < 8; ++rounds) {
    for (const std::size_t all = bench.outbox.sent.size(); sent < all; ++sent) {
      const auto message = bench.outbox.sent[sent];
      bench.operation.on_message_sent(message.peer, message.id);
      bench.operation.on_message_sent(message.peer, message.id);  // told twice, counted once
    }
  }
  HF_EQUAL(rounds, 4);
  HF_EQUAL(bench.outbox.summary(), "c8 c7 c6 c5 c4 c3 c2 c1 ");
}

HF_CASE(a_credit_of_one_goes_peer_by_peer_in_both_stages) {
  Setting setting;
  setting.num_ranks = 4;
  setting.total = 64;
  Bench bench(setting);
  bench.outbox.credit[2] = 1;
  bench.call(0);
  HF_EQUAL(bench.outbox.summary(), "c3 ");
  bench.operation.on_message_sent(3, bench.outbox.sent[0].id);
  HF_EQUAL(bench.outbox.summary(), "c3 c2 ");
  for (const std::uint16_t peer : {1, 2, 3}) bench.contribution(1, peer);
  HF_EQUAL(bench.outbox.summary(), "c3 c2 r3 ");  // the stages have turns of their own
  bench.operation.on_message_sent(3, bench.outbox.id_of(Stage::result, 3));
  HF_EQUAL(bench.outbox.summary(), "c3 c2 r3 r2 ");
  bench.operation.on_message_sent(2, bench.outbox.id_of(Stage::contribution, 2));
  HF_EQUAL(bench.outbox.summary(), "c3 c2 r3 r2 c1 ");
}

HF_CASE(a_cancelled_turn_makes_room_for_the_next) {
  Setting setting;
  setting.num_ranks = 4;
  setting.total = 64;
  Bench bench(setting);
  bench.outbox.credit[1] = 1;
  bench.call(0);
  HF_EQUAL(bench.outbox.summary(), "c3 ");
  bench.result(1, 3, {0, 16}, flag::closed);
  HF_EQUAL(bench.outbox.summary(), "c3 c2 ");
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(2, 2);
  HF_EQUAL(bench.outbox.summary(), "c3 c2 c1 ");
}

HF_CASE(a_message_cancelled_after_it_was_sent_gives_its_turn_back_once) {
  Setting setting;
  setting.num_ranks = 5;
  setting.total = 80;
  Bench bench(setting);
  bench.outbox.credit[1] = 1;
  bench.call(0);
  bench.operation.on_message_sent(4, bench.outbox.sent[0].id);
  HF_EQUAL(bench.outbox.summary(), "c4 c3 ");
  bench.result(1, 4);  // its turn was over already: no second one may start
  HF_EQUAL(bench.outbox.summary(), "c4 c3 ");
}

HF_CASE(who_does_not_want_the_results_is_passed_over) {
  Setting setting;
  setting.num_ranks = 4;
  setting.total = 64;
  Bench bench(setting);
  bench.outbox.credit[2] = 1;
  bench.call(0);
  bench.outbox.wanting[2] = false;
  for (const std::uint16_t peer : {1, 2, 3}) bench.contribution(1, peer);
  HF_EQUAL(bench.outbox.summary(), "c3 r3 ");
  const std::uint32_t to_rank_3 = bench.outbox.id_of(Stage::result, 3);
  bench.outbox.wanting[3] = false;
  bench.operation.on_results_unwanted(3);
  HF_CHECK(bench.outbox.was_cancelled(to_rank_3));
  HF_EQUAL(bench.outbox.summary(), "c3 r3 r1 ");  // its turn is free, and rank 2 has none
}

HF_TEST_MAIN
