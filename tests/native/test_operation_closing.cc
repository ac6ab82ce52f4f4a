// When a stage of an operation ends: complete, early after silence, or at its bound.
#include <vector>

#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(early_when_every_sender_showed_its_last_percentile_and_silence_follows) {
  Bench bench;  // t_c 40 ms, x 0.5: 20 ms of silence
  bench.call(0);
  bench.contribution(10 * millisecond, 1);
  HF_EQUAL(bench.operation.next_timer(), 100 * millisecond);  // nothing of rank 2's last percentile yet
  bench.contribution(11 * millisecond, 2, {0, 16}, flag::last_percentile);
  HF_EQUAL(bench.operation.next_timer(), 31 * millisecond);
  bench.operation.on_timer(31 * millisecond - 1);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
  bench.operation.on_timer(31 * millisecond);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
  HF_CHECK(bench.all_equal({0, 16}, 2.0f));
  HF_CHECK(bench.all_equal({16, 32}, 1.0f / 3 + 2.0f / 3 * 2));  // own/N + (N-1)/N x rank 1's
  const MessageContent& result = bench.outbox.content_of(Stage::result, 2);
  HF_EQUAL(result.gaps.size(), 1u);
  HF_CHECK((result.gaps[0].range == ElementRange{16, 32}));
  HF_EQUAL(result.gaps[0].missing_per_element, 1u);

  bench.result(32 * millisecond, 1);
  bench.result(33 * millisecond, 2, {16, 32}, flag::last_percentile, 16);
  HF_EQUAL(bench.operation.next_timer(), 53 * millisecond);
  bench.operation.on_timer(53 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().contributions.end), "early");
  HF_EQUAL(text(bench.report().results.end), "early");
  HF_EQUAL(text(bench.report().missing), "64-80 ");
  HF_CHECK(bench.all_equal({64, 80}, 0.0f));  // zero, never the own gradient
  HF_EQUAL(bench.report().delivered, 3u * 32 - 16 + 3 * 32 + 3 * 16 - 16);
}

HF_CASE(an_end_counts_as_last_percentile_and_new_data_restarts_the_silence) {
  Bench bench;
  bench.call(0);
  bench.contribution(1 * millisecond, 1, {0, 16});
  bench.contribution(2 * millisecond, 2, {0, 16});
  bench.end(2100 * microsecond, Stage::contribution, 1);
  HF_EQUAL(bench.operation.next_timer(), 100 * millisecond);
  bench.end(2200 * microsecond, Stage::contribution, 2);
  HF_EQUAL(bench.operation.next_timer(), 7 * millisecond);  // since the last data, and both have sent everything
  bench.contribution(2400 * microsecond, 1, {16, 32});
  HF_EQUAL(bench.operation.next_timer(), 7400 * microsecond);
}

HF_CASE(at_the_bound_with_whatever_arrived) {
  Bench bench;
  bench.call(5 * millisecond);
  bench.contribution(6 * millisecond, 1, {0, 16});
  bench.operation.on_timer(100 * millisecond - 1);  // opened at 0
  HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
  bench.operation.on_timer(100 * millisecond);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
  const MessageContent& result = bench.outbox.content_of(Stage::result, 1);
  HF_EQUAL(text(result.holes), "16-32 ");
  HF_EQUAL(bench.operation.next_timer(), 200 * millisecond);
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().status), "done");
  HF_EQUAL(text(bench.report().contributions.end), "bound");
  HF_EQUAL(text(bench.report().results.end), "bound");
  HF_EQUAL(text(bench.report().missing), "16-32 32-64 64-96 ");
  HF_CHECK(bench.all_equal({16, 96}, 0.0f));
  HF_EQUAL(bench.report().delivered, 2u * 16);
  HF_EQUAL(bench.report().peers[2].contribution_arrived.first, -1);
  HF_EQUAL(bench.report().peers[2].result_arrived.first, -1);
}

// -- a rank that is away ----------------------------------------------------------------------------------------------

HF_CASE(results_of_a_rank_that_said_nothing_are_not_waited_for_to_the_bound) {
  Bench bench;
  bench.call(0);
  bench.contribution(10 * millisecond, 1);
  bench.operation.on_timer(100 * millisecond);  // rank 2 is away
  HF_EQUAL(bench.result(105 * millisecond, 1), "accepted");
  bench.operation.on_timer(125 * millisecond - 1);
  HF_CHECK(!bench.operation.ended());  // x t_C of silence, 20 ms
  HF_EQUAL(bench.operation.next_timer(), 125 * millisecond);
  bench.operation.on_timer(125 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().results.end), "early");
  HF_EQUAL(text(bench.report().missing), "64-96 ");
  // What it says when it is back is no reason to wait longer the next time.
  HF_EQUAL(bench.result(130 * millisecond, 2), "late");
  HF_CHECK(bench.operation.closed_without(2) && !bench.operation.closed_without(1));
}

HF_CASE(results_of_a_rank_that_began_are_waited_for) {
  for (const Stage heard : {Stage::contribution, Stage::result}) {
    Bench bench;
    bench.call(0);
    bench.contribution(10 * millisecond, 1);
    if (heard == Stage::contribution) bench.contribution(10 * millisecond, 2, {0, 16});
    bench.operation.on_timer(100 * millisecond);
    bench.result(105 * millisecond, 1);
    if (heard == Stage::result) bench.result(106 * millisecond, 2, {0, 16});
    bench.operation.on_timer(199 * millisecond);
    HF_CHECK(!bench.operation.ended());
  }
}

HF_CASE(results_of_a_rank_that_was_only_late_are_waited_for) {
  for (const bool only_its_end_came : {true, false}) {
    Bench bench;
    bench.call(0);
    bench.contribution(10 * millisecond, 1);
    if (only_its_end_came) bench.end(11 * millisecond, Stage::contribution, 2);
    bench.operation.on_timer(100 * millisecond);
    if (!only_its_end_came) HF_EQUAL(bench.contribution(101 * millisecond, 2), "late");
    bench.result(105 * millisecond, 1);
    bench.operation.on_timer(199 * millisecond);
    HF_CHECK(!bench.operation.ended());
  }
}

HF_CASE(results_of_a_rank_that_speaks_of_other_things_are_waited_for) {
  Bench bench;
  bench.call(0);
  bench.contribution(10 * millisecond, 1);
  bench.outbox.last_heard[2] = 50 * millisecond;  // it acknowledges, or is busy with the bucket before
  bench.operation.on_timer(100 * millisecond);
  bench.result(105 * millisecond, 1);
  bench.operation.on_timer(150 * millisecond);
  HF_CHECK(!bench.operation.ended());
  bench.result(151 * millisecond, 2);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.report().missing.empty());
}

HF_CASE(nobody_is_waited_for_who_owes_an_answer_for_longer_than_a_stage) {
  // Rank 2 has been away since before this operation: its bound is 100 ms after that, for both stages.
  Bench bench;
  bench.outbox.unanswered[2] = -70 * millisecond;
  bench.call(0);
  bench.contribution(5 * millisecond, 1);
  HF_EQUAL(bench.operation.next_timer(), 30 * millisecond);
  bench.operation.on_timer(30 * millisecond);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
  bench.result(40 * millisecond, 1);
  HF_EQUAL(bench.operation.next_timer(), 60 * millisecond);  // x t_C of silence, 20 ms
  bench.operation.on_timer(60 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().contributions.end), "early");
  HF_EQUAL(text(bench.report().results.end), "early");
  HF_EQUAL(text(bench.report().missing), "64-96 ");
}

HF_CASE(who_answers_again_is_waited_for) {
  Bench bench;
  bench.outbox.unanswered[2] = -70 * millisecond;
  bench.call(0);
  bench.contribution(5 * millisecond, 1);
  bench.outbox.unanswered[2] = never;
  bench.operation.on_timer(90 * millisecond);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
  HF_EQUAL(bench.operation.next_timer(), 100 * millisecond);
}

HF_CASE(who_comes_back_is_waited_for_once_it_takes_part) {
  for (const bool takes_part : {false, true}) {
    Bench bench;
    bench.outbox.coming_back[2] = true;  // it answers, and is busy with operations that are over
    bench.call(0);
    bench.contribution(5 * millisecond, 1);
    if (takes_part) bench.contribution(6 * millisecond, 2, {0, 16});
    HF_EQUAL(bench.operation.next_timer(), takes_part ? 100 * millisecond : 25 * millisecond);
    bench.operation.on_timer(bench.operation.next_timer());
    bench.result(105 * millisecond, 1);
    if (takes_part) bench.result(106 * millisecond, 2);
    bench.operation.on_timer(bench.operation.next_timer());
    HF_CHECK(bench.operation.ended());
    HF_CHECK(bench.outbox.parts[1]);
    HF_EQUAL(bench.outbox.parts[2], takes_part);
  }
}

HF_CASE(whoever_has_no_answer_from_anybody_is_away_itself) {
  Bench bench;
  bench.outbox.unanswered[1] = bench.outbox.unanswered[2] = -200 * millisecond;
  bench.call(0);
  HF_EQUAL(bench.operation.next_timer(), 100 * millisecond);
}

HF_CASE(a_rank_that_heard_nobody_waits_to_the_bound) {
  Bench bench;
  bench.call(0);
  bench.operation.on_timer(100 * millisecond);
  bench.operation.on_timer(199 * millisecond);
  HF_CHECK(!bench.operation.ended());
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
}

HF_CASE(a_rank_that_was_away_itself_ends_what_the_others_have_done_without_it) {
  for (const bool all_were_silent : {true, false}) {
    Bench bench;
    bench.call(0);
    bench.outbox.last_heard[1] = 60 * millisecond;
    if (all_were_silent) bench.outbox.answered_again[1] = 60 * millisecond;
    // x t_C, 20 ms, and as much again for the results; rank 2 is not heard at all.
    HF_EQUAL(bench.operation.next_timer(), all_were_silent ? 80 * millisecond : 100 * millisecond);
  }
}

HF_CASE(what_was_kept_for_a_rank_that_was_away_is_waited_for) {
  Bench bench;
  bench.call(0);
  bench.outbox.last_heard[1] = bench.outbox.answered_again[1] = 60 * millisecond;
  bench.contribution(70 * millisecond, 1, {0, 16});
  HF_EQUAL(bench.operation.next_timer(), 100 * millisecond);
}

HF_CASE(of_two_ranks_nobody_knows_which_was_away) {
  Setting setting;
  setting.num_ranks = 2;
  setting.total = 64;
  Bench bench(setting);
  bench.call(0);
  bench.outbox.last_heard[1] = bench.outbox.answered_again[1] = 60 * millisecond;
  HF_EQUAL(bench.operation.next_timer(), 100 * millisecond);
}

HF_CASE(a_deadline_is_two_stage_bounds) {
  Bench bench;
  bench.call(0, 60 * millisecond);
  HF_EQUAL(bench.operation.next_timer(), 30 * millisecond);
  bench.operation.on_timer(30 * millisecond);
  HF_EQUAL(bench.operation.next_timer(), 60 * millisecond);
  bench.operation.on_timer(60 * millisecond);
  HF_CHECK(bench.operation.ended());
}

HF_CASE(contributions_behind_other_operations_may_take_more_of_the_deadline) {
  Bench bench;
  Call call = bench.call_with(60 * millisecond);
  call.contributions_within = 50 * millisecond;
  bench.operation.on_call(0, call);
  HF_EQUAL(bench.operation.next_timer(), 50 * millisecond);
  bench.operation.on_timer(50 * millisecond);
  HF_EQUAL(bench.operation.next_timer(), 60 * millisecond);
  bench.operation.on_timer(60 * millisecond);
  HF_CHECK(bench.operation.ended());

  Bench quick;  // the results have a stage of their own, however long the contributions might have taken
  quick.operation.on_call(0, [&] {
    Call made = quick.call_with(60 * millisecond);
    made.contributions_within = 50 * millisecond;
    return made;
  }());
  quick.contribution(10 * millisecond, 1);
  quick.contribution(10 * millisecond, 2);
  HF_EQUAL(quick.operation.next_timer(), 40 * millisecond);
}

namespace {

// Of at most 60 ms a stage: 35 ms for the contributions, 50 ms for all of it, 20 ms for the results in any case.
Call limited_call(Bench& bench) {
  Call call = bench.call_with(120 * millisecond);
  call.limit = {35 * millisecond, 50 * millisecond, 20 * millisecond};
  return call;
}

}  // namespace

HF_CASE(an_operation_ends_when_it_has_taken_longer_than_usual) {
  Bench bench;
  bench.operation.on_call(0, limited_call(bench));
  HF_EQUAL(bench.operation.next_timer(), 35 * millisecond);
  bench.contribution(10 * millisecond, 1);
  bench.contribution(10 * millisecond, 2);
  HF_EQUAL(bench.operation.next_timer(), 50 * millisecond);
  bench.operation.on_timer(50 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.operation.report().contributions.end == StageEnd::complete);
  HF_CHECK(bench.operation.report().results.end == StageEnd::limit);
}

HF_CASE(contributions_that_took_all_their_time_leave_the_results_theirs) {
  Bench bench;
  bench.operation.on_call(0, limited_call(bench));
  bench.contribution(10 * millisecond, 1);
  bench.operation.on_timer(35 * millisecond);
  HF_CHECK(bench.operation.contributions_closed());
  HF_EQUAL(bench.operation.next_timer(), 55 * millisecond);
  bench.operation.on_timer(55 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.operation.report().contributions.end == StageEnd::limit);
  HF_CHECK(bench.operation.report().results.end == StageEnd::limit);
}

HF_CASE(the_bound_holds_where_it_is_less_than_the_limit) {
  Bench bench;
  Call call = limited_call(bench);
  call.deadline = 60 * millisecond;
  bench.operation.on_call(0, call);
  HF_EQUAL(bench.operation.next_timer(), 30 * millisecond);
  bench.operation.on_timer(30 * millisecond);
  bench.operation.on_timer(50 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.operation.report().contributions.end == StageEnd::bound);
}

HF_CASE(a_late_wake_up_does_not_extend_the_deadline) {
  Bench bench;
  bench.call(0, 60 * millisecond);
  bench.operation.on_timer(55 * millisecond);  // this process did not run
  HF_EQUAL(bench.operation.next_timer(), 60 * millisecond);
  bench.operation.on_timer(60 * millisecond);
  HF_CHECK(bench.operation.ended());
}

HF_CASE(a_timer_that_is_due_is_always_consumed) {
  // Whatever happened before: calling on_timer at next_timer moves it on, or the reactor would spin.
  for (const Delivery delivery : {Delivery::bounded, Delivery::exact}) {
    for (const bool called : {true, false}) {
      for (const bool with_packets : {true, false}) {
        Setting setting;
        setting.delivery = delivery;
        Bench bench(setting);
        if (with_packets) bench.contribution(1, 1, {0, 16}, flag::last_percentile);
        if (called) bench.call(2);
        if (with_packets) bench.result(3, 2, {0, 16}, flag::last_percentile);
        for (int i = 0; i < 20 && bench.operation.next_timer() != never; ++i) {
          const Time due = bench.operation.next_timer();
          bench.operation.on_timer(due);
          HF_CHECK(bench.operation.next_timer() > due);
        }
        HF_EQUAL(bench.operation.next_timer(), never);
        HF_CHECK(bench.operation.retired());
      }
    }
  }
}

HF_CASE(exact_waits_for_everything_and_fails_at_its_deadline_by_name) {
  Bench bench(exact_setting());
  bench.call(0, 60 * millisecond);
  bench.contribution(1, 1);
  bench.contribution(2, 2, {0, 16}, flag::last_percentile);
  bench.end(3, Stage::contribution, 2);
  HF_EQUAL(bench.operation.next_timer(), 60 * millisecond);
  bench.operation.on_timer(60 * millisecond - 1);
  HF_CHECK(!bench.operation.ended());
  bench.operation.on_timer(60 * millisecond);
  HF_EQUAL(text(bench.report().status), "deadline_exceeded");
  HF_EQUAL(text(bench.report().culprits), "2 ");
  HF_EQUAL(text(bench.report().missing), "0-32 32-64 64-96 ");
  HF_CHECK(bench.all_equal({0, 96}, 0.0f));
  HF_CHECK(bench.operation.retired());
}

HF_CASE(exact_blames_whose_result_is_missing_once_all_contributed) {
  Bench bench(exact_setting());
  bench.call(0, 60 * millisecond);
  bench.contribution(1, 1);
  bench.contribution(2, 2);
  bench.result(3, 2);
  bench.operation.on_timer(60 * millisecond);
  HF_EQUAL(text(bench.report().culprits), "1 ");
  HF_EQUAL(text(bench.report().missing), "32-64 ");
}

HF_CASE(with_all_ends_in_a_quarter_of_the_early_wait_is_enough) {
  Bench bench;  // an early wait of 20 ms
  bench.call(0);
  bench.contribution(1 * millisecond, 1, {0, 16}, flag::last_percentile);
  bench.contribution(2 * millisecond, 2, {0, 16}, flag::last_percentile);
  bench.end(2 * millisecond + 1, Stage::contribution, 1);
  HF_EQUAL(bench.operation.next_timer(), 22 * millisecond);  // one end is missing: the whole early wait
  bench.end(2 * millisecond + 2, Stage::contribution, 2);
  HF_EQUAL(bench.operation.next_timer(), 7 * millisecond);
  bench.operation.on_timer(7 * millisecond - 1);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
  HF_EQUAL(bench.contribution(7 * millisecond - 1, 1, {16, 32}), "accepted");  // overtaken on the way
  HF_EQUAL(bench.operation.next_timer(), 12 * millisecond - 1);
  bench.operation.on_timer(12 * millisecond - 1);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
  bench.result(13 * millisecond, 1);
  bench.result(13 * millisecond, 2, {0, 16});
  HF_EQUAL(bench.operation.next_timer(), 112 * millisecond - 1);  // neither mark nor end of rank 2: its bound
  bench.end(14 * millisecond, Stage::result, 2);                  // rank 1 is complete: its end need not come
  HF_EQUAL(bench.operation.next_timer(), 18 * millisecond);
  bench.operation.on_timer(18 * millisecond);
  HF_EQUAL(text(bench.report().results.end), "early");
  HF_EQUAL(text(bench.report().missing), "80-96 ");
}

HF_CASE(an_end_long_after_the_last_element_closes_at_once) {
  Bench bench;
  bench.call(0);
  bench.contribution(1 * millisecond, 1);
  bench.contribution(1 * millisecond, 2, {0, 16});
  bench.end(9 * millisecond, Stage::contribution, 2);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
}

HF_CASE(without_the_ends_the_marks_close_after_the_early_wait) {
  Bench bench;  // exactly the ends are lost
  bench.call(0);
  bench.contribution(1 * millisecond, 1, {0, 16}, flag::last_percentile);
  bench.contribution(2 * millisecond, 2, {0, 16}, flag::last_percentile);
  HF_EQUAL(bench.operation.next_timer(), 22 * millisecond);
}

HF_CASE(without_marks_and_ends_of_one_sender_only_the_bound_closes) {
  Bench bench;
  bench.call(0);
  bench.contribution(1 * millisecond, 1, {0, 16}, flag::last_percentile);
  bench.end(1 * millisecond, Stage::contribution, 1);
  bench.contribution(2 * millisecond, 2, {0, 16});
  HF_EQUAL(bench.operation.next_timer(), 100 * millisecond);
}

HF_CASE(with_all_ends_in_overtaken_packets_have_half_a_millisecond_but_never_more_than_the_early_wait) {
  const auto silence_with = [](Duration early_wait) {
    Bench bench;
    Call call = bench.call_with();
    call.contributions.early_wait = early_wait;
    bench.operation.on_call(0, call);
    for (const std::uint16_t peer : {1, 2}) {
      bench.contribution(millisecond, peer, {0, 16});
      bench.end(millisecond, Stage::contribution, peer);
    }
    return bench.operation.next_timer() - millisecond;
  };
  HF_EQUAL(silence_with(8 * millisecond), 2 * millisecond);
  HF_EQUAL(silence_with(1 * millisecond), 500 * microsecond);
  HF_EQUAL(silence_with(100 * microsecond), 100 * microsecond);
}

HF_CASE(each_stage_waits_as_long_as_its_call_says) {
  Bench bench;
  Call call = bench.call_with();
  call.contributions.early_wait = 3 * millisecond;
  call.results.early_wait = 7 * millisecond;
  bench.operation.on_call(0, call);
  bench.contribution(1 * millisecond, 1);
  bench.contribution(2 * millisecond, 2, {0, 16}, flag::last_percentile);
  HF_EQUAL(bench.operation.next_timer(), 5 * millisecond);
  bench.operation.on_timer(5 * millisecond);
  bench.result(6 * millisecond, 1);
  bench.result(6 * millisecond, 2, {0, 16}, flag::last_percentile);
  HF_EQUAL(bench.operation.next_timer(), 13 * millisecond);
}

HF_CASE(samples_are_announced_and_those_of_the_peers_reported) {
  Bench bench;
  Call call = bench.call_with();
  call.contributions.sample_us = 700;
  call.results.sample_us = 900;
  bench.operation.on_call(0, call);
  HF_EQUAL(bench.outbox.content_of(Stage::contribution, 1).completion_us, 700u);
  const auto packet = [&](Stage stage, std::uint16_t sender, std::uint32_t sample) {
    Header header = bench.header(PacketType::data, stage, sender);
    header.offset = stage == Stage::contribution ? 0 : bench.shard_of(sender).begin;
    header.completion_us = sample;
    HF_EQUAL(bench.give(1, header, std::vector<float>(32, 2.0f)), "accepted");
  };
  packet(Stage::contribution, 1, 1100);
  packet(Stage::contribution, 2, 0);
  HF_EQUAL(bench.outbox.content_of(Stage::result, 1).completion_us, 900u);
  packet(Stage::result, 1, 1200);
  packet(Stage::result, 2, 2200);
  HF_EQUAL(bench.report().peers[1].contributions_sample_us, 1100u);
  HF_EQUAL(bench.report().peers[2].contributions_sample_us, 0u);  // it has not said
  HF_EQUAL(bench.report().peers[1].results_sample_us, 1200u);
  HF_EQUAL(bench.report().peers[2].results_sample_us, 2200u);
}

HF_CASE(an_end_alone_carries_the_sample) {
  Bench bench;
  bench.call(0);
  Header end = bench.header(PacketType::end, Stage::contribution, 2);
  end.completion_us = 4321;
  bench.give(1, end);
  bench.operation.on_timer(100 * millisecond);
  bench.operation.on_timer(200 * millisecond);
  HF_EQUAL(bench.report().peers[2].contributions_sample_us, 4321u);
}

HF_TEST_MAIN
