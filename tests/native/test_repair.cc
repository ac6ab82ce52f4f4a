// Results that the network lost are sent again, within a grace, so that ranks do not drift apart over them.
#include <random>
#include <vector>

#include "endpoint_network.h"
#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

// Marks are in, 16 elements of rank 2's result are missing: t_b 100 ms, x t_C 20 ms.
Bench with_a_gap_in_the_results(Duration grace) {
  Setting setting;
  setting.parameters.repair_grace = grace;
  return Bench(setting);
}

void play_up_to_the_gap(Bench& bench) {
  bench.contribution(1 * millisecond, 1);
  bench.contribution(1 * millisecond, 2);
  bench.result(2 * millisecond, 1);
  bench.result(3 * millisecond, 2, {16, 32}, flag::last_percentile | flag::closed);
}

struct Equality {
  int operations = 0;
  int equal = 0;
  std::uint64_t missing = 0;
};

// Operations on four ranks while the network loses two of a hundred datagrams of any kind.
Equality under_loss(Duration grace, std::uint32_t seed) {
  constexpr std::uint16_t num_ranks = 4;
  Network network(num_ranks);
  network.join();
  Parameters parameters;
  parameters.t_b = 200 * millisecond;
  parameters.t_c = 20 * millisecond;
  parameters.repair_grace = grace;
  for (const auto& rank : network.ranks) rank->publish(parameters);
  std::mt19937 random(seed);
  network.filter = [&](auto, auto, Bytes&) { return random() % 50 != 0; };
  Equality seen;
  for (int operation = 0; operation < 10; ++operation) {
    auto data = gradients(num_ranks, 50'000);
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
    }
    network.run_for(400 * millisecond);
    bool equal = true;
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      HF_EQUAL(network.reports[rank].size(), static_cast<std::size_t>(operation + 1));
      equal = equal && data[rank] == data[0];
      for (const ElementRange& range : network.reports[rank].back().missing) seen.missing += range.size();
    }
    ++seen.operations;
    seen.equal += equal;
  }
  return seen;
}

}  // namespace

HF_CASE(silence_with_results_missing_lasts_a_grace_longer) {
  Bench bench = with_a_gap_in_the_results(30 * millisecond);
  bench.call(0);
  play_up_to_the_gap(bench);
  HF_EQUAL(bench.operation.next_timer(), 53 * millisecond);  // 20 + 30 ms after the last
  HF_EQUAL(bench.result(52 * millisecond, 2, {0, 16}, flag::closed), "accepted");
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().results.end), "complete");
  HF_CHECK(bench.report().missing.empty());
}

HF_CASE(the_grace_ends_and_never_passes_the_bound) {
  for (const auto& [grace, ends] : {std::pair(30, 53), std::pair(500, 101)}) {
    Bench bench = with_a_gap_in_the_results(grace * millisecond);
    bench.call(0);
    play_up_to_the_gap(bench);
    bench.operation.on_timer(ends * millisecond - 1);
    HF_CHECK(!bench.operation.ended());
    bench.operation.on_timer(ends * millisecond);
    HF_CHECK(bench.operation.ended());
    HF_EQUAL(text(bench.report().missing), "64-80 ");
    HF_CHECK(bench.all_equal({64, 80}, 0.0f));
  }
}

HF_CASE(a_call_brings_its_own_grace) {
  Bench bench = with_a_gap_in_the_results(30 * millisecond);
  Call call = bench.call_with();
  call.repair_grace = 5 * millisecond;
  bench.operation.on_call(0, call);
  play_up_to_the_gap(bench);
  HF_EQUAL(bench.operation.next_timer(), 28 * millisecond);
}

HF_CASE(nobody_waits_a_grace_for_a_rank_that_is_away) {
  Bench bench = with_a_gap_in_the_results(30 * millisecond);
  bench.call(0);
  bench.contribution(10 * millisecond, 1);
  bench.operation.on_timer(100 * millisecond);
  bench.result(105 * millisecond, 1);
  HF_EQUAL(bench.operation.next_timer(), 125 * millisecond);
}

HF_CASE(contributions_are_never_repaired) {
  Bench bench = with_a_gap_in_the_results(30 * millisecond);
  bench.call(0);
  bench.contribution(1 * millisecond, 1);
  bench.contribution(2 * millisecond, 2, {0, 16}, flag::last_percentile);
  HF_EQUAL(bench.operation.next_timer(), 22 * millisecond);
  HF_CHECK(!bench.outbox.content_of(Stage::contribution, 1).repaired);
  bench.operation.on_timer(22 * millisecond);
  HF_CHECK(bench.outbox.content_of(Stage::result, 1).repaired);
}

HF_CASE(under_loss_all_ranks_have_equal_results) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    const Equality repaired = under_loss(20 * millisecond, seed);
    HF_EQUAL(repaired.equal, repaired.operations);
    HF_EQUAL(repaired.missing, 0u);
    HF_CHECK(under_loss(0, seed).equal <= 2);  // so much would be unequal
  }
}

HF_TEST_MAIN
