// Peers that die and peers that disagree: who goes on, who fails, who is named.
#include <string>
#include <vector>

#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(bounded_goes_on_without_a_peer_that_died) {
  Bench bench;
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2, {0, 16});
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(2, 2);
  HF_CHECK(bench.outbox.was_cancelled(bench.outbox.id_of(Stage::contribution, 2)));
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r1 ");  // complete as far as it can be, and no result for the dead
  bench.result(3, 1);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().status), "done");
  HF_EQUAL(text(bench.report().missing), "64-96 ");
  HF_CHECK(!bench.report().peers[2].alive);
  HF_CHECK(bench.report().peers[1].alive);
}

HF_CASE(exact_fails_at_once_and_names_the_dead) {
  Bench bench(exact_setting());
  bench.call(0);
  bench.contribution(1, 1);
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(2, 2);
  HF_CHECK(bench.operation.ended() && bench.operation.retired());
  HF_EQUAL(text(bench.report().status), "peer_dead");
  HF_EQUAL(text(bench.report().culprits), "2 ");
  HF_CHECK(bench.all_equal({0, 96}, 0.0f));
}

HF_CASE(exact_called_after_a_death_fails_in_the_call) {
  Bench bench(exact_setting());
  bench.contribution(1, 1);
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(2, 2);
  HF_CHECK(!bench.operation.ended());
  bench.call(3);
  HF_EQUAL(text(bench.report().status), "peer_dead");
  HF_EQUAL(text(bench.report().culprits), "2 ");
  HF_EQUAL(bench.outbox.summary(), "");
}

HF_CASE(an_exact_result_has_no_holes_and_lacks_nobody) {
  Bench bench(exact_setting());
  bench.call(0);
  Header hole = bench.header(PacketType::hole, Stage::result, 1);
  hole.offset = bench.shard_of(1).begin;
  hole.missing = 16;
  HF_EQUAL(bench.give(1, hole), "malformed");
  HF_EQUAL(bench.result(1, 1, {0, 16}, 0, 1), "malformed");
  HF_EQUAL(bench.result(1, 1, {0, 16}), "accepted");
}

// Found by the fuzz target `hostile`: such a call left its gradient where it said that a result was.
HF_CASE(exact_called_after_a_death_has_the_results_that_came_before) {
  Bench bench(exact_setting());
  HF_EQUAL(bench.result(1, 1, {0, 16}), "accepted");
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(2, 2);
  bench.call(3);
  HF_EQUAL(text(bench.report().status), "peer_dead");
  HF_EQUAL(text(bench.report().missing), "0-32 48-64 64-96 ");
  HF_CHECK(bench.all_equal({32, 48}, 2.0f));
  HF_CHECK(bench.all_equal({0, 32}, 0.0f) && bench.all_equal({48, 96}, 0.0f));
  HF_EQUAL(bench.report().delivered, 48u);
}

HF_CASE(exact_does_not_fail_over_a_peer_that_owes_nothing_any_more) {
  // Rank 2 gave all it had to give and left; rank 1's result is still on its way.
  Bench bench(exact_setting());
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  bench.result(2, 2);
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(3, 2);
  HF_CHECK(!bench.operation.ended());
  bench.result(4, 1);
  HF_EQUAL(text(bench.report().status), "done");
  HF_EQUAL(bench.report().delivered, 288u);
}

HF_CASE(a_death_after_the_end_lets_the_operation_retire) {
  Bench bench;
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  bench.result(2, 1);
  bench.result(2, 2);
  bench.operation.on_message_finished(1, bench.outbox.id_of(Stage::result, 1));
  HF_CHECK(!bench.operation.retired());
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(3, 2);
  HF_CHECK(bench.operation.retired());
}

HF_CASE(all_peers_dead_ends_bounded_in_the_call_with_everything_missing) {
  Bench bench;
  bench.outbox.alive[1] = bench.outbox.alive[2] = false;
  bench.call(0);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().missing), "0-32 32-64 64-96 ");
  HF_CHECK(bench.all_equal({0, 96}, 0.0f));
  HF_EQUAL(bench.report().delivered, 0u);
}

HF_CASE(a_packet_of_another_shape_fails_the_call_by_name) {
  Bench bench;
  bench.call(0);
  Header packet = bench.header(PacketType::data, Stage::contribution, 2);
  packet.total = 97;
  HF_EQUAL(bench.give(1, packet, std::vector<float>(16)), "mismatch");
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().status), "mismatch");
  HF_EQUAL(text(bench.report().culprits), "2 ");
  HF_EQUAL(bench.report().total, 96u);
}

HF_CASE(format_layout_delivery_and_average_must_agree_too) {
  const auto verdict_with = [](auto change) {
    Bench bench;
    bench.call(0);
    Header packet = bench.header(PacketType::data, Stage::contribution, 1);
    change(packet);
    const std::string drop = bench.give(1, packet, std::vector<float>(32));
    return drop + " " + text(bench.report().status);
  };
  HF_EQUAL(verdict_with([](Header&) {}), "accepted done");
  HF_EQUAL(verdict_with([](Header& header) { header.format = Format::f64; }), "mismatch mismatch");
  HF_EQUAL(verdict_with([](Header& header) { header.layout = 8; }), "mismatch mismatch");
  HF_EQUAL(verdict_with([](Header& header) { header.flags |= flag::exact; }), "mismatch mismatch");
  HF_EQUAL(verdict_with([](Header& header) { header.flags |= flag::sum; }), "mismatch mismatch");
}

HF_CASE(a_call_of_another_shape_than_the_packets_before_fails_and_names_who_sent_them) {
  FakeOutbox outbox;
  BufferPool pool;
  std::vector<float> data(50, 1.0f);
  const Operation::Identity of_rank_two{96, 7, Format::f32, Delivery::bounded, true};
  Operation operation(0, 0, 3, of_rank_two, 2, 0, Parameters{}, outbox, pool);
  Call call;
  call.data = reinterpret_cast<std::uint8_t*>(data.data());
  call.count = 50;
  call.layout = 7;
  operation.on_call(1, call);
  HF_CHECK(operation.ended() && operation.retired());
  HF_EQUAL(text(operation.report().status), "mismatch");
  HF_EQUAL(text(operation.report().culprits), "2 ");
  HF_EQUAL(operation.report().total, 50u);
  // Both others are told what this rank called, by a message of which only the ends are sent.
  HF_EQUAL(outbox.summary(), "c1 c2 ");
  for (const auto& sent : outbox.sent) {
    HF_EQUAL(sent.content.range.size(), 0u);
    HF_EQUAL(sent.content.total, 50u);
    HF_CHECK(sent.content.delivery == Delivery::bounded && !sent.content.of_exact_operation);
  }
  HF_CHECK(data == std::vector<float>(50, 1.0f));  // nothing of another bucket was written here
}

HF_CASE(peers_that_disagree_before_the_call_are_remembered) {
  Bench bench;
  bench.contribution(1, 1);
  Header packet = bench.header(PacketType::data, Stage::contribution, 2);
  packet.layout = 9;
  HF_EQUAL(bench.give(2, packet, std::vector<float>(32)), "mismatch");
  HF_CHECK(!bench.operation.ended());
  bench.call(3);
  HF_EQUAL(text(bench.report().status), "mismatch");
  HF_EQUAL(text(bench.report().culprits), "2 ");
}

HF_CASE(peers_that_disagree_before_the_call_are_served_nothing) {
  for (const Time contradicted_at : {50 * millisecond, 150 * millisecond}) {  // before and after the sum is closed
    Bench bench;
    bench.contribution(1, 1);
    Header packet = bench.header(PacketType::data, Stage::contribution, 2);
    packet.layout = 9;
    if (contradicted_at < 100 * millisecond) bench.give(contradicted_at, packet, std::vector<float>(32));
    bench.operation.on_timer(100 * millisecond);
    if (contradicted_at > 100 * millisecond) bench.give(contradicted_at, packet, std::vector<float>(32));
    for (const auto& sent : bench.outbox.sent) HF_CHECK(bench.outbox.was_cancelled(sent.id));
  }
}

HF_CASE(after_a_mismatch_nothing_touches_the_callers_memory) {
  Bench bench;
  bench.call(0);
  Header packet = bench.header(PacketType::data, Stage::contribution, 2);
  packet.total = 200;
  bench.give(1, packet, std::vector<float>(16));
  const std::vector<float> before = bench.data;
  HF_EQUAL(bench.contribution(2, 1), "late");
  HF_EQUAL(bench.result(2, 1), "late");
  HF_EQUAL(bench.give(2, packet, std::vector<float>(16)), "mismatch");
  bench.operation.on_timer(10 * second);
  HF_CHECK(bench.data == before);
  HF_CHECK(bench.operation.retired());
}

HF_TEST_MAIN
