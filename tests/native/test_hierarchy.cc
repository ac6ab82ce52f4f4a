// Operations that are parts of a hierarchical one: who takes part, what is summed, and how the two parts meet.
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/hierarchy.h"
#include "core/outgoing_message.h"
#include "endpoint_network.h"
#include "endpoint_rogue.h"
#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

// Ranks 0 and 1 are one group, 2 and 3 the other; what is under test is on rank 0, whose counterpart is 2.
constexpr std::uint16_t num_ranks = 4;
constexpr std::uint32_t total = 128;                   // shards of 64, and of those 32 each
constexpr std::uint32_t between = between_groups_bit;  // call 0
const Hierarchy two_groups(0, num_ranks, 2);

Operation::Identity identity_of(std::uint32_t count) { return {count, 7, Format::f32, Delivery::bounded, true}; }

Header header(std::uint32_t number, std::uint32_t count, Stage stage, std::uint16_t sender, std::uint32_t offset,
              std::uint32_t missing = 0) {
  Header made;
  made.type = PacketType::data;
  made.stage = stage;
  made.sender = sender;
  made.format = Format::f32;
  made.layout = 7;
  made.operation = number;
  made.total = count;
  made.offset = offset;
  made.missing = missing;
  made.flags = flag::last_percentile;
  return made;
}

// Both parts of call 0 on rank 0.
struct TwoParts {
  FakeOutbox outbox;
  BufferPool pool;
  Parameters parameters{0, 100 * millisecond, 40 * millisecond, 0.5, 0, false, 60 * second};
  std::vector<float> data = std::vector<float>(total, 1.0f);
  Operation group{0, 0, num_ranks, identity_of(total), 0, 0, parameters, outbox, pool, two_groups.part_of(0)};
  Operation groups{between, 0, num_ranks, identity_of(64), 0, 0, parameters, outbox, pool, two_groups.part_of(between)};

  void call(Time now) {
    Call call;
    call.data = reinterpret_cast<std::uint8_t*>(data.data());
    call.count = total;
    call.layout = 7;
    call.deadline = 200 * millisecond;
    group.on_call(now, call);
  }
  static std::string give(Time now, Operation& operation, const Header& packet, std::uint32_t count, float value) {
    const std::vector<float> values(count, value);
    const auto drop =
        operation.on_packet(now, packet, {reinterpret_cast<const std::uint8_t*>(values.data()), count * 4});
    return drop ? name(*drop) : "accepted";
  }
};

}  // namespace

HF_CASE(groups_must_be_of_the_same_size_and_of_more_than_one_rank) {
  HF_CHECK(Hierarchy(0, 6, 1).flat());
  HF_CHECK(!Hierarchy(0, 6, 3).flat());
  for (const std::uint16_t num_groups : {0, 4, 6, 12}) HF_THROWS(Hierarchy(0, 6, num_groups), std::invalid_argument);
}

HF_CASE(a_rank_meets_its_group_and_its_counterparts) {
  const Hierarchy hierarchy(7, 12, 3);
  const Part within = hierarchy.part_of(5);
  HF_CHECK(std::vector<std::uint16_t>({4, 5, 6, 7}) ==
           std::vector<std::uint16_t>(
               {within.team.rank_at(0), within.team.rank_at(1), within.team.rank_at(2), within.team.rank_at(3)}));
  HF_CHECK(!within.team.has(3) && within.team.has(4) && within.team.has(7) && !within.team.has(8));
  const Part across = hierarchy.part_of(5 | between_groups_bit);
  std::vector<std::uint16_t> team;
  for (const std::uint16_t rank : across.team) team.push_back(rank);
  HF_CHECK(team == std::vector<std::uint16_t>({3, 7, 11}));
  HF_CHECK(!across.team.has(15) && !across.team.has(4) && across.team.place_of(11) == 2);
  HF_EQUAL(across.ranks_each, 4u);
}

HF_CASE(after_as_many_calls_as_ranks_everybody_has_summed_everything) {
  for (std::uint16_t rank = 0; rank < 12; ++rank) {
    std::set<std::pair<std::uint32_t, std::uint32_t>> summed;
    for (std::uint32_t call = 0; call < 12; ++call) {
      const Part within = Hierarchy(rank, 12, 3).part_of(call);
      const Part across = Hierarchy(rank, 12, 3).part_of(call | between_groups_bit);
      summed.emplace(responsible_shard(within.team.place_of(rank), within.rotation, 4),
                     responsible_shard(across.team.place_of(rank), across.rotation, 3));
    }
    HF_EQUAL(summed.size(), 12u);
  }
}

HF_CASE(shards_of_blocks_lie_on_the_grid_and_leave_nothing_out) {
  for (const std::uint32_t count : {0u, 1u, 15u, 16u, 17u, 63u, 64u, 1000u, UINT32_MAX}) {
    std::uint32_t reached = 0;
    for (std::uint32_t shard = 0; shard < 3; ++shard) {
      const ElementRange range = shard_of_blocks(count, 3, shard);
      HF_EQUAL(range.begin, reached);
      HF_CHECK(range.begin % block_elements == 0 || range.begin == count);
      reached = range.end;
    }
    HF_EQUAL(reached, count);
  }
}

HF_CASE(numbers_keep_the_order_of_calls) {
  HF_CHECK(age_of(3) < age_of(3 | between_groups_bit) && age_of(3 | between_groups_bit) < age_of(4));
}

// Three groups of four. Of blocks 0 to 4: whole; one group lacks a rank; one holds nothing; the own holds nothing; both
// others hold nothing.
HF_CASE(a_sum_of_sums_counts_gradients_and_leaves_out_what_holds_none) {
  for (const bool in_rank_order : {false, true}) {
    BufferPool pool;
    ShardSum sum(80, Format::f32, 0, 3, pool, 4);
    if (in_rank_order) sum.sum_in_rank_order();
    const std::vector<float> own(80, 3.0f);
    const std::vector<float> one(80, 6.0f);
    const std::vector<float> two(80, 9.0f);
    const auto bytes = [](const std::vector<float>& values) {
      return reinterpret_cast<const std::uint8_t*>(values.data());
    };
    sum.own_lacks({{{48, 64}, 4}});
    sum.add(1, 0, 16, bytes(one));
    sum.add(1, 16, 16, bytes(one), 1);
    sum.add(1, 32, 32, bytes(one));
    sum.add(1, 64, 16, bytes(one), 4);
    sum.add(2, 0, 32, bytes(two));
    sum.add(2, 32, 16, bytes(two), 4);
    sum.add(2, 48, 16, bytes(two));
    sum.add(2, 64, 16, bytes(two), 4);
    HF_CHECK(sum.from(1).complete() && sum.from(2).complete());
    HF_CHECK(sum.ready_in({0, 80}) == std::vector<ElementRange>({{0, 16}}));
    const ShardSum::Result result = sum.finish(bytes(own), true);
    const auto* values = reinterpret_cast<const float*>(result.elements.get());
    HF_EQUAL(values[0], 6.0f);
    HF_EQUAL(values[16], 6.0f);  // a group counts as one, however many it stands for
    HF_EQUAL(values[32], 5.0f);  // own/3 + 2/3 of the other
    HF_EQUAL(values[48], 7.5f);  // the mean of the others
    HF_EQUAL(values[64], 0.0f);
    HF_CHECK(result.holes == std::vector<ElementRange>({{64, 80}}));
    HF_EQUAL(result.gaps.size(), 3u);
    HF_CHECK(result.gaps[0].range == (ElementRange{16, 32}) && result.gaps[0].missing_per_element == 1);
    HF_CHECK(result.gaps[1].range == (ElementRange{32, 48}) && result.gaps[1].missing_per_element == 4);
    HF_CHECK(result.gaps[2].range == (ElementRange{48, 64}) && result.gaps[2].missing_per_element == 4);
    HF_EQUAL(result.delivered, 16u * (12 + 11 + 8 + 8));
  }
}

HF_CASE(packets_end_where_what_they_lack_changes) {
  MessageContent content;
  content.stage = Stage::contribution;
  content.delivery = Delivery::bounded;
  content.format = Format::f32;
  content.total = content.range.end = 256;
  content.gaps = {{{32, 48}, 2}, {{48, 160}, 1}};
  content.cut_at_gaps = true;
  OutgoingMessage message(1, content, 128);
  std::vector<ElementRange> ranges;
  std::vector<std::uint32_t> missing;
  while (message.has_chunk()) {
    const auto chunk = message.next_chunk();
    ranges.push_back(chunk.range);
    missing.push_back(message.missing_in(chunk.range));
    message.chunk_sent(chunk);
  }
  HF_CHECK(ranges == std::vector<ElementRange>({{0, 32}, {32, 48}, {48, 160}, {160, 256}}));
  HF_CHECK(missing == std::vector<std::uint32_t>({0, 32, 112, 0}));
}

HF_CASE(the_sum_of_a_group_is_no_result_before_the_groups_are_summed) {
  TwoParts parts;
  parts.call(0);
  HF_EQUAL(parts.outbox.summary(), "c1 ");
  HF_CHECK(!parts.group.wants_groups());
  // Of four blocks, the third never comes: nobody but this rank has it.
  TwoParts::give(millisecond, parts.group, header(0, total, Stage::contribution, 1, 0), 32, 3.0f);
  TwoParts::give(millisecond, parts.group, header(0, total, Stage::contribution, 1, 48), 16, 3.0f);
  parts.group.on_timer(50 * millisecond);  // a quarter of the deadline
  HF_CHECK(parts.group.wants_groups());
  HF_EQUAL(parts.outbox.summary(), "c1 ");

  const Call call = parts.group.call_between_groups(50 * millisecond);
  HF_CHECK(!parts.group.wants_groups() && parts.group.awaits_groups());
  HF_EQUAL(call.count, 64u);
  HF_CHECK(call.gaps.size() == 1 && call.gaps[0].range == (ElementRange{32, 48}) &&
           call.gaps[0].missing_per_element == 2);
  HF_EQUAL(call.contributions_until, 100 * millisecond);
  HF_EQUAL(call.results_until, 150 * millisecond);
  parts.groups.on_call(50 * millisecond, call);
  HF_EQUAL(parts.outbox.summary(), "c1 c2 ");
  HF_CHECK(parts.outbox.sent.back().content.cut_at_gaps);

  // The other group lacks one of two ranks in the first block; its result is whole.
  TwoParts::give(60 * millisecond, parts.groups, header(between, 64, Stage::contribution, 2, 0, 16), 16, 6.0f);
  TwoParts::give(60 * millisecond, parts.groups, header(between, 64, Stage::contribution, 2, 16), 16, 6.0f);
  TwoParts::give(60 * millisecond, parts.groups, header(between, 64, Stage::result, 2, 32, 32), 16, 5.0f);
  TwoParts::give(60 * millisecond, parts.groups, header(between, 64, Stage::result, 2, 48), 16, 5.0f);
  HF_CHECK(parts.groups.ended());
  parts.group.on_groups_summed(60 * millisecond, parts.groups);
  HF_EQUAL(parts.outbox.summary(), "c1 c2 r2 r1 ");
  const MessageContent& sent = parts.outbox.sent.back().content;
  HF_CHECK(sent.holes.empty() && sent.gaps.size() == 2);
  HF_CHECK(sent.gaps[0].range == (ElementRange{0, 16}) && sent.gaps[0].missing_per_element == 1);
  HF_CHECK(sent.gaps[1].range == (ElementRange{32, 48}) && sent.gaps[1].missing_per_element == 2);
  HF_EQUAL(parts.data[0], 4.0f);   // the mean of (1 + 3) / 2 and 6
  HF_EQUAL(parts.data[32], 5.0f);  // what the other group said, which had this rank's group left out

  TwoParts::give(70 * millisecond, parts.group, header(0, total, Stage::result, 1, 64), 64, 8.0f);
  HF_CHECK(parts.group.ended());
  const OperationReport& report = parts.group.report();
  HF_EQUAL(report.expected, std::uint64_t{total} * num_ranks);
  HF_EQUAL(report.delivered, 16u * (3 + 4 + 2 + 4) + 64u * 4);
  HF_CHECK(report.missing.empty());
  HF_EQUAL(report.peers[2].contributed, 32u);
  HF_EQUAL(report.peers[2].result_size, 32u);
  HF_EQUAL(report.peers[3].contribution_size, 0u);
}

HF_CASE(a_call_ends_by_its_deadline_without_the_other_groups) {
  TwoParts parts;
  parts.call(0);
  TwoParts::give(millisecond, parts.group, header(0, total, Stage::contribution, 1, 0), 64, 3.0f);
  HF_CHECK(parts.group.wants_groups());
  parts.group.call_between_groups(millisecond);  // which never answers
  TwoParts::give(millisecond, parts.group, header(0, total, Stage::result, 1, 64), 64, 8.0f);
  HF_CHECK(!parts.group.ended());
  HF_EQUAL(parts.group.next_timer(), 200 * millisecond);
  parts.group.on_timer(200 * millisecond);
  HF_CHECK(parts.group.ended());
  HF_EQUAL(text(parts.group.report().missing), "0-64 ");
  HF_EQUAL(parts.data[0], 0.0f);
  HF_EQUAL(parts.data[64], 8.0f);
}

HF_CASE(contributions_between_groups_are_refused_unless_every_element_lacks_alike) {
  TwoParts parts;
  const auto give = [&](std::uint32_t missing) {
    return TwoParts::give(0, parts.groups, header(between, 64, Stage::contribution, 2, 0, missing), 16, 6.0f);
  };
  HF_EQUAL(give(15), "malformed");
  HF_EQUAL(give(48), "malformed");  // three of two ranks
  HF_EQUAL(TwoParts::give(0, parts.groups, header(between, 64, Stage::contribution, 1, 0), 16, 6.0f), "misplaced");
  HF_EQUAL(give(32), "accepted");
}

HF_CASE(a_rank_that_takes_no_part_is_dropped_and_opens_nothing) {
  Rogue rogue([](EndpointSettings& settings) { settings.num_groups = 2; }, num_ranks);
  Header outside = rogue.data_header(between, 64);
  outside.offset = 0;
  HF_EQUAL(rogue.say(outside, Bytes(64)), "misplaced");
  HF_EQUAL(rogue.victim.open_operations(), 0u);
  Header within = rogue.data_header(0, total);
  within.offset = 0;
  HF_EQUAL(rogue.say(within, Bytes(64)), "accepted");
  HF_EQUAL(rogue.victim.open_operations(), 1u);
  Rogue flat;
  HF_EQUAL(flat.say(outside, Bytes(64)), "beyond_window");
}

HF_CASE(four_ranks_in_two_groups_sum_and_forget) {
  Network network(num_ranks, [](EndpointSettings& settings) { settings.num_groups = 2; });
  network.join();
  std::vector<std::vector<float>> data;
  for (std::uint16_t rank = 0; rank < num_ranks; ++rank) data.emplace_back(1000, static_cast<float>(rank));
  for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
    Call call;
    call.data = reinterpret_cast<std::uint8_t*>(data[rank].data());
    call.count = 1000;
    call.deadline = second;
    network.ranks[rank]->call(network.now, call);
  }
  network.run_for(2 * second);
  for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
    const auto& reports = network.reports[rank];
    HF_EQUAL(reports.size(), 1u);
    HF_EQUAL(reports.at(0).delivered, 4000u);
    HF_CHECK(reports.at(0).groups.own_included && reports.at(0).groups.results.end == StageEnd::complete);
    for (const float value : data[rank]) HF_EQUAL(value, 1.5f);
    HF_EQUAL(network.ranks[rank]->open_operations(), 0u);
  }
}

// Ranks 2 and 3 are the other group: rank 0 and 1 hear of it all the same.
HF_CASE(a_rank_of_another_group_that_calls_something_else_is_named) {
  for (const bool whole_group : {false, true}) {
    Network network(num_ranks, [](EndpointSettings& settings) { settings.num_groups = 2; });
    network.join();
    std::vector<std::vector<float>> data(num_ranks, std::vector<float>(1000, 1.0f));
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      Call call;
      call.data = reinterpret_cast<std::uint8_t*>(data[rank].data());
      call.count = rank == 3 || (whole_group && rank == 2) ? 900 : 1000;
      call.deadline = second;
      network.ranks[rank]->call(network.now, call);
    }
    network.run_for(2 * second);
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      HF_EQUAL(network.reports[rank].size(), 1u);
      HF_EQUAL(text(network.reports[rank].at(0).status), "mismatch");
      HF_CHECK(!network.reports[rank].at(0).culprits.empty());
    }
  }
}

HF_TEST_MAIN
