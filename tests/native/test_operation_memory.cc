// Holes, gaps and misplaced elements, and the one buffer that holds first the gradient and then the result.
#include <vector>

#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(a_hole_is_lost_at_once_and_not_waited_for) {
  Bench bench;
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  Header hole = bench.header(PacketType::hole, Stage::result, 1);
  hole.offset = 48;
  hole.missing = 16;
  HF_EQUAL(bench.give(2, hole), "accepted");
  HF_EQUAL(bench.give(3, hole), "duplicate");
  HF_EQUAL(bench.result(4, 1, {0, 16}, 0, 16), "accepted");
  HF_EQUAL(bench.result(5, 2), "accepted");
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().results.end), "complete");
  HF_EQUAL(text(bench.report().missing), "48-64 ");
  HF_CHECK(bench.all_equal({48, 64}, 0.0f));
  HF_EQUAL(bench.report().delivered, 96u + 3 * 16 - 16 + 96);
  HF_EQUAL(bench.report().peers[1].results, 16u);
}

HF_CASE(a_result_cannot_claim_to_lack_more_than_there_is) {
  Bench bench;
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  HF_EQUAL(bench.result(2, 1, {0, 32}, 0, UINT32_MAX), "malformed");
  HF_EQUAL(bench.result(2, 1, {0, 32}, 0, 65), "malformed");
  HF_EQUAL(bench.result(2, 1, {0, 32}, 0, 64), "accepted");  // one of three contributed
  HF_EQUAL(bench.result(3, 2), "accepted");
  HF_EQUAL(bench.report().delivered, 288u - 64);
  HF_CHECK(bench.report().delivered <= bench.report().expected);
}

HF_CASE(elements_outside_the_senders_part_are_misplaced) {
  Setting setting;
  setting.rank = 1;
  Bench bench(setting);
  bench.call(0);
  Header packet = bench.header(PacketType::data, Stage::contribution, 0);
  const std::vector<float> block(16, 1.0f);
  const auto contribution_at = [&](std::uint32_t offset) {
    packet.stage = Stage::contribution;
    packet.offset = offset;
    return bench.give(1, packet, block);
  };
  const auto result_at = [&](std::uint32_t offset) {
    packet.stage = Stage::result;
    packet.offset = offset;
    return bench.give(1, packet, block);
  };
  HF_EQUAL(contribution_at(16), "misplaced");  // below the own shard 32-64
  HF_EQUAL(contribution_at(31), "misplaced");
  HF_EQUAL(contribution_at(33), "misplaced");  // off the grid
  HF_EQUAL(contribution_at(56), "misplaced");
  HF_EQUAL(contribution_at(64), "misplaced");
  HF_EQUAL(contribution_at(48), "accepted");
  HF_EQUAL(result_at(32), "misplaced");  // rank 0 is responsible for 0-32
  HF_EQUAL(result_at(80), "misplaced");
  HF_EQUAL(result_at(8), "misplaced");
  HF_EQUAL(result_at(16), "accepted");
  Header hole = bench.header(PacketType::hole, Stage::result, 0);
  hole.offset = 0;
  hole.missing = 48;
  HF_EQUAL(bench.give(1, hole), "misplaced");
  HF_CHECK(bench.all_equal({0, 16}, 2.0f));
  HF_CHECK(bench.all_equal({32, 96}, 2.0f));
}

HF_CASE(the_result_of_a_closed_sum_stops_the_contribution_it_is_written_over) {
  Bench bench;
  bench.call(0);
  const std::uint32_t to_one = bench.outbox.id_of(Stage::contribution, 1);
  const std::uint32_t to_two = bench.outbox.id_of(Stage::contribution, 2);
  HF_EQUAL(bench.result(1, 1, {0, 16}), "accepted");  // of a sum still open: the rest is still wanted there
  HF_CHECK(!bench.outbox.was_cancelled(to_one));
  HF_EQUAL(bench.result(2, 1, {16, 32}, flag::closed), "accepted");
  HF_CHECK(bench.outbox.was_cancelled(to_one));
  HF_CHECK(!bench.outbox.was_cancelled(to_two));
}

HF_CASE(when_the_operation_ends_nothing_of_the_callers_memory_is_still_to_be_sent) {
  Bench bench;
  bench.call(0);
  bench.operation.on_timer(100 * millisecond);
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.outbox.was_cancelled(bench.outbox.id_of(Stage::contribution, 1)));
  HF_CHECK(bench.outbox.was_cancelled(bench.outbox.id_of(Stage::contribution, 2)));
  // Results live in their own memory and go on.
  for (const auto& message : bench.outbox.sent) {
    if (message.content.stage != Stage::result) continue;
    HF_CHECK(!bench.outbox.was_cancelled(message.id));
    HF_CHECK(message.content.owner != nullptr);
  }
}

HF_CASE(results_nobody_acknowledges_are_let_go_after_two_more_stages) {
  Bench bench;
  bench.call(0);
  bench.contribution(millisecond, 1);
  bench.contribution(millisecond, 2);
  bench.result(2 * millisecond, 1);
  bench.result(2 * millisecond, 2);
  HF_CHECK(bench.operation.ended() && !bench.operation.retired());
  bench.operation.on_message_finished(1, bench.outbox.id_of(Stage::result, 1));
  HF_EQUAL(bench.operation.next_timer(), 201 * millisecond);
  bench.operation.on_timer(201 * millisecond - 1);
  HF_CHECK(!bench.operation.retired());
  bench.operation.on_timer(201 * millisecond);
  HF_CHECK(bench.operation.retired());
  HF_CHECK(bench.outbox.was_cancelled(bench.outbox.id_of(Stage::result, 2)));
}

HF_TEST_MAIN
