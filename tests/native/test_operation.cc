// One all-reduce on one rank, packet by packet: the way it usually goes, late, early and never.
#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(complete_from_call_to_report) {
  for (const Delivery delivery : {Delivery::bounded, Delivery::exact}) {
    Setting setting;
    setting.delivery = delivery;
    Bench bench(setting, 10 * millisecond);
    bench.call(10 * millisecond);
    HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
    const MessageContent& to_two = bench.outbox.content_of(Stage::contribution, 2);
    HF_CHECK((to_two.range == ElementRange{64, 96}));
    HF_EQUAL(to_two.data - reinterpret_cast<std::uint8_t*>(bench.data.data()), 64 * 4);
    HF_CHECK(to_two.delivery == delivery && to_two.total == 96 && to_two.layout == 7 && to_two.operation == 0);

    HF_EQUAL(bench.contribution(11 * millisecond, 1), "accepted");
    HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
    HF_EQUAL(bench.contribution(12 * millisecond, 2), "accepted");
    HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
    const MessageContent& result = bench.outbox.content_of(Stage::result, 1);
    HF_CHECK((result.range == ElementRange{0, 32}));
    HF_EQUAL(reinterpret_cast<const float*>(result.data)[31], 2.0f);  // (1 + 2 + 3) / 3
    HF_EQUAL(result.completion_us, 0u);                               // the caller gave no sample
    HF_CHECK(bench.all_equal({0, 32}, 2.0f));

    HF_CHECK(!bench.operation.ended());
    HF_EQUAL(bench.result(13 * millisecond, 1), "accepted");
    HF_EQUAL(bench.result(15 * millisecond, 2), "accepted");
    HF_CHECK(bench.operation.ended());
    HF_CHECK(bench.all_equal({0, 96}, 2.0f));
    HF_EQUAL(text(bench.report().status), "done");
    HF_EQUAL(text(bench.report().contributions.end), "complete");
    HF_EQUAL(bench.report().contributions.elapsed, 2 * millisecond);
    HF_EQUAL(text(bench.report().results.end), "complete");
    HF_EQUAL(bench.report().results.elapsed, 3 * millisecond);
    HF_EQUAL(bench.report().elapsed, 5 * millisecond);
    HF_EQUAL(bench.report().delivered, 288u);
    HF_EQUAL(bench.report().expected, 288u);
    HF_EQUAL(text(bench.report().missing), "");
    HF_EQUAL(bench.report().peers[2].contributed, 32u);
    HF_EQUAL(bench.report().peers[2].results, 32u);
    HF_EQUAL(bench.report().peers[2].contribution_arrived.first, 2 * millisecond);
    HF_EQUAL(bench.report().peers[2].contribution_arrived.last, 2 * millisecond);
    HF_EQUAL(bench.report().peers[2].result_arrived.last, 5 * millisecond);

    HF_CHECK(!bench.operation.retired());  // the results are still on their way
    bench.all_finished();
    HF_CHECK(bench.operation.retired());
    HF_EQUAL(bench.operation.next_timer(), never);
  }
}

HF_CASE(arrivals_are_told_from_the_first_to_the_last) {
  Bench bench;
  bench.call(0);
  bench.contribution(3 * millisecond, 1, {0, 16});
  bench.contribution(8 * millisecond, 1, {16, 32});
  bench.contribution(9 * millisecond, 1, {16, 32});     // nothing new
  bench.end(10 * millisecond, Stage::contribution, 1);  // nothing at all
  bench.operation.on_timer(200 * millisecond);
  bench.operation.on_timer(400 * millisecond);
  HF_EQUAL(bench.report().peers[1].contribution_arrived.first, 3 * millisecond);
  HF_EQUAL(bench.report().peers[1].contribution_arrived.last, 8 * millisecond);
  HF_EQUAL(bench.report().peers[1].result_arrived.first, -1);
}

HF_CASE(a_sum_is_not_divided) {
  Setting setting;
  setting.average = false;
  Bench bench(setting);
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  HF_CHECK(bench.all_equal({0, 32}, 6.0f));
}

HF_CASE(one_rank_alone_ends_in_its_call) {
  Setting setting;
  setting.num_ranks = 1;
  for (const std::uint32_t total : {0u, 1u, 96u}) {
    setting.total = total;
    Bench bench(setting);
    bench.call(5);
    HF_CHECK(bench.operation.ended() && bench.operation.retired());
    HF_CHECK(bench.all_equal({0, total}, 1.0f));
    HF_EQUAL(bench.report().delivered, std::uint64_t{total});
    HF_EQUAL(bench.outbox.summary(), "");
  }
}

HF_CASE(fewer_elements_than_ranks) {
  Setting setting;
  setting.num_ranks = 4;
  setting.total = 2;  // ranks 0 and 1 have one element each, 2 and 3 none
  Bench owner(setting);
  owner.call(0);
  HF_EQUAL(owner.outbox.summary(), "c1 ");
  owner.contribution(1, 1);
  owner.contribution(1, 2);
  owner.contribution(1, 3);
  HF_EQUAL(owner.outbox.summary(), "c1 r3 r2 r1 ");
  HF_EQUAL(owner.result(2, 1), "accepted");
  HF_CHECK(owner.operation.ended());
  HF_EQUAL(text(owner.report().missing), "");
  setting.rank = 3;
  Bench idle(setting);
  idle.call(0);
  HF_EQUAL(idle.outbox.summary(), "c1 c0 ");
  HF_CHECK(!idle.operation.ended());
  idle.result(1, 0);
  idle.result(1, 1);
  HF_CHECK(idle.operation.ended());
  HF_EQUAL(idle.report().delivered, 8u);
  HF_EQUAL(idle.outbox.summary(), "c1 c0 ");
}

HF_CASE(no_elements_at_all_end_in_the_call) {
  Setting setting;
  setting.total = 0;
  Bench bench(setting);
  bench.call(0);
  HF_CHECK(bench.operation.ended() && bench.operation.retired());
  HF_EQUAL(bench.outbox.summary(), "");
}

HF_CASE(responsibility_follows_the_number) {
  Setting setting;
  setting.number = 4;  // 4 % 3: rank 0 has shard 1, rank 1 shard 2, rank 2 shard 0
  Bench bench(setting);
  bench.call(0);
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 1).range == ElementRange{64, 96}));
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 2).range == ElementRange{0, 32}));
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  HF_CHECK((bench.outbox.content_of(Stage::result, 1).range == ElementRange{32, 64}));
}

HF_CASE(never_called_the_duty_is_served_at_the_bound) {
  Bench bench;
  bench.contribution(1 * millisecond, 1);
  bench.contribution(2 * millisecond, 2);
  HF_EQUAL(bench.outbox.summary(), "");
  bench.operation.on_timer(100 * millisecond);
  HF_EQUAL(bench.outbox.summary(), "r2 r1 ");
  HF_EQUAL(reinterpret_cast<const float*>(bench.outbox.content_of(Stage::result, 1).data)[0], 2.5f);  // (2 + 3) / 2
  HF_EQUAL(bench.outbox.content_of(Stage::result, 1).gaps[0].missing_per_element, 1u);
  HF_CHECK(!bench.operation.ended());
  bench.all_sent();
  bench.all_finished();
  HF_EQUAL(bench.operation.next_timer(), 60 * second + 2 * millisecond);
  bench.operation.on_timer(60 * second + 2 * millisecond);
  HF_CHECK(bench.operation.retired());
  HF_CHECK(!bench.operation.ended());
  HF_EQUAL(bench.operation.next_timer(), never);
}

HF_CASE(a_late_call_finds_its_results_waiting) {
  Bench bench;
  bench.contribution(1 * millisecond, 1);
  bench.contribution(2 * millisecond, 2);
  bench.operation.on_timer(100 * millisecond);
  bench.result(101 * millisecond, 1);
  bench.result(102 * millisecond, 2);
  bench.call(500 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.all_equal({0, 32}, 2.5f));
  HF_CHECK(bench.all_equal({32, 96}, 2.0f));
  HF_EQUAL(bench.outbox.summary(), "r2 r1 ");  // its own contribution would come too late for anybody
  HF_EQUAL(bench.report().waited_for_call, 500 * millisecond);
  HF_EQUAL(bench.report().elapsed, 0);
  HF_EQUAL(bench.report().delivered, 3u * 96 - 32);
}

HF_CASE(a_late_call_still_contributes_where_no_result_was_seen) {
  Bench bench;
  bench.contribution(1 * millisecond, 1);
  bench.result(50 * millisecond, 1, {0, 16}, flag::closed);
  bench.call(90 * millisecond);
  HF_EQUAL(bench.outbox.summary(), "c2 ");
  HF_CHECK(bench.all_equal({32, 48}, 2.0f));
  HF_CHECK(bench.all_equal({48, 64}, 1.0f));  // not here yet
  HF_EQUAL(bench.contribution(91 * millisecond, 2), "accepted");
  HF_CHECK(bench.all_equal({0, 32}, 2.0f));
}

HF_CASE(early_packets_need_room) {
  Bench bench;
  bench.outbox.early_room = 127;
  HF_EQUAL(bench.contribution(1, 1), "early_over_cap");
  HF_EQUAL(bench.result(1, 1), "early_over_cap");
  const std::size_t idle = bench.operation.early_bytes();
  bench.outbox.early_room = 128;  // the accumulator of 32 floats
  HF_EQUAL(bench.contribution(2, 1), "accepted");
  HF_EQUAL(bench.operation.early_bytes(), idle + 128);
  HF_EQUAL(bench.contribution(3, 2), "accepted");
  HF_EQUAL(bench.operation.early_bytes(), idle + 128);
  HF_EQUAL(bench.result(4, 1), "early_over_cap");
  bench.outbox.early_room = 384;  // the bucket
  HF_EQUAL(bench.result(5, 1), "accepted");
  HF_EQUAL(bench.operation.early_bytes(), idle + 128 + 384);
  bench.call(6);
  HF_EQUAL(bench.operation.early_bytes(), 0u);
  HF_CHECK(bench.all_equal({32, 64}, 2.0f));
}

HF_CASE(an_operation_costs_its_bitmaps_before_any_element) {
  const Operation::Identity large{1u << 30, 0, Format::f32, Delivery::bounded, true};
  HF_CHECK(Operation::bookkeeping_bytes(large, 4) >= 2 * (std::size_t{1} << 30) / 128);
  HF_CHECK(Operation::bookkeeping_bytes(large, 4) < (std::size_t{1} << 30) / 32);
}

HF_CASE(late_packets_are_dropped_and_repeated_ends_are_not_late) {
  Bench bench;
  bench.call(0);
  bench.operation.on_timer(100 * millisecond);
  HF_EQUAL(bench.contribution(101 * millisecond, 1), "late");
  HF_EQUAL(bench.end(101 * millisecond, Stage::contribution, 1), "accepted");
  HF_EQUAL(bench.result(101 * millisecond, 1), "accepted");
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(bench.result(201 * millisecond, 2), "late");
  HF_EQUAL(bench.end(201 * millisecond, Stage::result, 2), "accepted");
  HF_CHECK(bench.all_equal({64, 96}, 0.0f));
}

HF_CASE(duplicates_are_dropped_and_counted_once) {
  Bench bench;
  bench.call(0);
  HF_EQUAL(bench.contribution(1, 1, {0, 16}), "accepted");
  HF_EQUAL(bench.contribution(2, 1, {0, 16}), "duplicate");
  HF_EQUAL(bench.contribution(3, 1), "accepted");
  HF_EQUAL(bench.contribution(4, 2), "accepted");
  HF_CHECK(bench.all_equal({0, 32}, 2.0f));
  HF_EQUAL(bench.result(5, 1, {0, 16}), "accepted");
  HF_EQUAL(bench.result(6, 1, {0, 16}), "duplicate");
  HF_EQUAL(bench.result(7, 1), "accepted");
  HF_EQUAL(bench.result(8, 2), "accepted");
  HF_EQUAL(bench.report().delivered, 288u);
}

HF_TEST_MAIN
