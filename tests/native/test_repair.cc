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

// Every copy of the last datagram of rank 1's results that left for rank 0, the first `num_lost` of which were lost.
struct LastDatagram {
  std::vector<Time> left_at;
  Time ended_at = never;
};
LastDatagram lose_the_last_datagram(std::size_t num_lost, std::uint32_t its_offset) {
  Network network(2);
  network.delay = 200 * microsecond;
  network.join();
  Parameters parameters;
  parameters.t_b = 200 * millisecond;
  parameters.t_c = parameters.repair_grace = 50 * millisecond;
  for (const auto& rank : network.ranks) rank->publish(parameters);
  LastDatagram seen;
  network.filter = [&](std::uint16_t from, auto, Bytes& bytes) {
    Header header;
    HF_CHECK(!decode(bytes, bytes.size() - header_bytes - tag_bytes, header));
    const bool data = header.type == PacketType::data || header.type == PacketType::packed;
    if (from != 1 || !data || header.stage != Stage::result || header.offset != its_offset) return true;
    seen.left_at.push_back(network.now);
    return seen.left_at.size() > num_lost;
  };
  auto data = gradients(2, 20'000);
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
  }
  const Time end = network.now + 150 * millisecond;
  while (network.now < end) {
    network.run_for(50 * microsecond);
    if (seen.ended_at == never && !network.reports[0].empty()) seen.ended_at = network.now;
  }
  HF_CHECK(is_mean(data[0], 2));
  return seen;
}

// Of rank 1's results to rank 0 on a network that loses nothing.
std::uint32_t offset_of_the_last_datagram() {
  Network network(2);
  network.join();
  std::uint32_t last = 0;
  network.filter = [&](std::uint16_t from, auto, Bytes& bytes) {
    Header header;
    HF_CHECK(!decode(bytes, bytes.size() - header_bytes - tag_bytes, header));
    if (from == 1 && header.stage == Stage::result && header.type == PacketType::data) {
      last = std::max(last, header.offset);
    }
    return true;
  };
  auto data = gradients(2, 20'000);
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
  }
  network.run_for(100 * millisecond);
  return last;
}

}  // namespace

HF_CASE(the_end_of_the_results_goes_twice_when_it_goes_again) {
  const std::uint32_t offset = offset_of_the_last_datagram();
  const LastDatagram seen = lose_the_last_datagram(2, offset);
  HF_EQUAL(seen.left_at.size(), std::size_t{3});
  HF_CHECK(seen.left_at[2] - seen.left_at[1] <= 1100 * microsecond);  // sooner than its loss could be known
  HF_CHECK(seen.ended_at - seen.left_at[1] <= 2 * millisecond);
}

HF_CASE(what_arrives_is_not_sent_once_more) {
  const std::uint32_t offset = offset_of_the_last_datagram();
  HF_EQUAL(lose_the_last_datagram(0, offset).left_at.size(), std::size_t{1});
  HF_EQUAL(lose_the_last_datagram(1, offset).left_at.size(), std::size_t{2});
}

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
