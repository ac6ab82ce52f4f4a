// What a rank learns about its own contribution: where it is not in the result, and where it stands for others as well.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/byte_order.h"
#include "endpoint_network.h"
#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr std::uint8_t last = flag::last_percentile | flag::closed;

std::string text(const std::vector<Counted>& counted) {
  std::ostringstream out;
  for (const Counted& part : counted) out << part.range.begin << "-" << part.range.end << "x" << part.times << " ";
  return out.str();
}

// A result of rank `sender`, of which `missing` contributions to each element are not in it.
void result_lacking(Bench& bench, std::uint16_t sender, ElementRange part, std::uint32_t missing, bool without_receiver,
                    bool without_owner = false) {
  Header packet = bench.header(PacketType::data, Stage::result, sender);
  packet.flags |= last;
  packet.offset = bench.shard_of(sender).begin + part.begin;
  packet.missing = missing * part.size();
  packet.without_receiver = without_receiver;
  packet.without_owner = without_owner;
  HF_EQUAL(bench.give(3 * millisecond, packet, std::vector<float>(part.size(), 2.0f)), "accepted");
}

// Rank 0 of four with its own shard complete; what it learns depends on the results of the others.
Bench with_own_shard_complete(bool zero_fill = false) {
  Setting setting;
  setting.num_ranks = 4;
  setting.total = 128;
  setting.parameters.zero_fill = zero_fill;
  return Bench(setting);
}

void complete_own_shard(Bench& bench) {
  bench.call(0);
  for (std::uint16_t peer = 1; peer < 4; ++peer) bench.contribution(1 * millisecond, peer);
}

}  // namespace

// ------------------------------------------------------------------------------------------- what an owner says

HF_CASE(an_owner_tells_each_peer_what_it_did_not_get_of_it) {
  Bench bench;
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2, {0, 16});
  bench.operation.on_timer(100 * millisecond);  // the bound
  HF_EQUAL(text(bench.outbox.content_of(Stage::result, 1).without_receiver), "");
  HF_EQUAL(text(bench.outbox.content_of(Stage::result, 2).without_receiver), "16-32 ");
  HF_CHECK(!bench.outbox.content_of(Stage::result, 2).without_owner);
}

HF_CASE(results_that_stream_out_say_it_when_they_are_closed) {
  Setting setting;
  setting.chunk = 16;
  Bench bench(setting);
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2, {0, 16});
  HF_CHECK(bench.outbox.content_of(Stage::result, 2).open);  // its first half is on its way
  bench.operation.on_timer(100 * millisecond);
  HF_EQUAL(text(bench.outbox.content_of(Stage::result, 1).without_receiver), "");
  HF_EQUAL(text(bench.outbox.content_of(Stage::result, 2).without_receiver), "16-32 ");
}

HF_CASE(an_owner_that_is_late_says_that_its_own_part_is_missing) {
  Bench bench;
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.outbox.content_of(Stage::result, 1).without_owner);
  bench.call(201 * millisecond);
  bench.result(202 * millisecond, 1);
  bench.result(202 * millisecond, 2);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().counted), "0-32x0 ");
}

HF_CASE(every_packet_says_it_of_its_own_elements) {
  MessageContent content;
  content.stage = Stage::result;
  content.delivery = Delivery::bounded;
  content.format = Format::f32;
  content.range = {100, 196};
  content.without_receiver = {{116, 132}, {164, 196}};
  const OutgoingMessage message(1, content, 16);
  HF_CHECK(!message.lacks_receiver({100, 116}));
  HF_CHECK(message.lacks_receiver({116, 132}));
  HF_CHECK(!message.lacks_receiver({132, 148}));
  HF_CHECK(!message.lacks_receiver({148, 180}));  // not in all of it
  HF_CHECK(message.lacks_receiver({180, 196}));
}

// ------------------------------------------------------------------------------------------- what a contributor learns

HF_CASE(nothing_is_said_when_everything_counts_once) {
  Bench bench = with_own_shard_complete();
  complete_own_shard(bench);
  for (std::uint16_t peer = 1; peer < 4; ++peer) bench.result(2 * millisecond, peer);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().counted), "");
}

HF_CASE(a_contribution_that_is_not_in_the_result_counts_not_at_all_and_one_that_is_for_those_that_are_not) {
  Bench bench = with_own_shard_complete();
  complete_own_shard(bench);
  result_lacking(bench, 1, {0, 16}, 1, true);
  result_lacking(bench, 1, {16, 32}, 1, false);       // three others, one lost: two stand for three
  result_lacking(bench, 2, {0, 32}, 1, false, true);  // the owner was late: three stand for four
  result_lacking(bench, 3, {0, 32}, 2, true);         // next to one another, and of the same kind
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().counted), "32-48x0 48-64x1.5 64-96x1.33333 96-128x0 ");
}

HF_CASE(with_zero_fill_what_is_in_the_result_counts_once) {
  Bench bench = with_own_shard_complete(true);
  complete_own_shard(bench);
  result_lacking(bench, 1, {0, 16}, 1, true);
  result_lacking(bench, 1, {16, 32}, 2, false);
  result_lacking(bench, 2, {0, 32}, 1, false, true);
  bench.result(4 * millisecond, 3);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().counted), "32-48x0 ");
}

HF_CASE(in_a_hole_nobody_counts) {
  Bench bench = with_own_shard_complete();
  bench.call(0);
  for (std::uint16_t peer = 1; peer < 4; ++peer) bench.contribution(1 * millisecond, peer, {0, 16}, last);
  bench.operation.on_timer(100 * millisecond);  // nobody contributed to the second half of the own shard
  Header hole = bench.header(PacketType::hole, Stage::result, 1);
  hole.flags |= last;
  hole.offset = 32;
  hole.missing = 32;
  HF_EQUAL(bench.give(101 * millisecond, hole), "accepted");
  bench.result(101 * millisecond, 2);
  bench.result(101 * millisecond, 3);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().counted), "16-64x0 ");
}

HF_CASE(what_a_rank_did_that_was_dead_before_counts_not_at_all_and_of_one_that_died_since_nobody_can_tell) {
  for (const bool dead_before : {true, false}) {
    Setting setting;
    setting.num_ranks = 3;
    FakeOutbox outbox;
    outbox.alive[2] = !dead_before;
    BufferPool pool;
    std::vector<float> data(96, 1.0f);
    Operation operation(0, 0, 3, {96, 7, Format::f32, Delivery::bounded, true}, 0, 0, setting.parameters, outbox, pool);
    Call call;
    call.data = reinterpret_cast<std::uint8_t*>(data.data());
    call.count = 96;
    call.layout = 7;
    operation.on_call(0, call);
    outbox.alive[2] = false;
    operation.on_peer_gone(1, 2);
    operation.on_timer(100 * millisecond);
    operation.on_timer(300 * millisecond);
    HF_CHECK(operation.ended());
    HF_EQUAL(text(operation.report().counted),
             dead_before ? "0-32x0 64-96x0 " : "0-32x0 ");  // nobody contributed to 0-32
  }
}

// ------------------------------------------------------------------------------------------- all of it, on a network

namespace {

struct Loss {
  bool zero_fill = false;
  int acks_lost_of_ten = 1;
};

bool is_ack(const Bytes& datagram) { return datagram[1] == static_cast<std::uint8_t>(PacketType::ack); }

// The largest difference, over all elements, between what the ranks had and what the result, N times, and what is left
// of each rank's gradient by its own account amount to.
double largest_leak(const Loss& loss, std::uint32_t seed, std::uint64_t& num_lost) {
  constexpr std::uint16_t num_ranks = 4;
  constexpr std::uint32_t count = 20'000;
  // Nobody is taken for dead for want of acks.
  Network network(num_ranks, [](EndpointSettings& settings) { settings.silence_limit = 60 * second; });
  network.join();
  Parameters parameters;
  parameters.t_b = 2 * second;
  parameters.t_c = 20 * millisecond;
  parameters.repair_grace = second;  // so that all results arrive, also when half of all acks are lost
  parameters.zero_fill = loss.zero_fill;
  for (const auto& rank : network.ranks) rank->publish(parameters);
  std::mt19937 random(seed);
  network.filter = [&](auto, auto, Bytes& datagram) {
    return static_cast<int>(random() % 10) >= (is_ack(datagram) ? loss.acks_lost_of_ten : 1);
  };
  double largest = 0;
  for (int operation = 0; operation < 5; ++operation) {
    std::vector<std::vector<float>> before(num_ranks, std::vector<float>(count));
    for (auto& gradient : before) {
      for (float& value : gradient) value = std::uniform_real_distribution<float>(-1, 1)(random);
    }
    auto data = before;
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::bounded, 4 * second));
    }
    network.run_for(5 * second);
    std::vector<double> leak(count, 0);
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      const OperationReport& report = network.reports[rank].back();
      HF_EQUAL(report.not_received, 0u);
      HF_CHECK(data[rank] == data[0]);
      for (std::uint32_t i = 0; i < count; ++i) leak[i] += before[rank][i] - double{data[rank][i]};
      for (const Counted& part : report.counted) {
        if (part.times == 0) num_lost += part.range.size();
        for (std::uint32_t i = part.range.begin; i < part.range.end; ++i) {
          leak[i] -= (1.0 - double{part.times}) * before[rank][i];
        }
      }
    }
    for (const double one : leak) largest = std::max(largest, std::abs(one));
  }
  return largest;
}

}  // namespace

HF_CASE(what_is_applied_and_what_is_left_make_up_every_gradient) {
  for (const bool zero_fill : {false, true}) {
    for (const int acks_lost : {0, 1, 5}) {
      std::uint64_t num_lost = 0;
      HF_CHECK(largest_leak({zero_fill, acks_lost}, 7, num_lost) < 1e-5);
      HF_CHECK(num_lost > 4'000);  // a tenth of 5 x 4 x 15,000, less what nobody can count on
    }
  }
}

HF_CASE(a_contribution_that_arrives_and_is_acknowledged_too_late_does_not_count) {
  Network network(3);
  network.join();
  Parameters parameters;
  parameters.t_b = 20 * millisecond;
  parameters.repair_grace = 10 * millisecond;
  for (const auto& rank : network.ranks) rank->publish(parameters);
  auto data = gradients(3, 3'000);
  // What rank 2 contributes to rank 0 takes longer than the stage lasts; nothing is lost.
  std::vector<Bytes> held;
  network.filter = [&](std::uint16_t from, std::uint16_t to, Bytes& datagram) {
    const bool contribution =
        datagram[1] == static_cast<std::uint8_t>(PacketType::data) && (datagram[15] >> 4 & 3) == 1;
    if (from != 2 || to != 0 || !contribution) return true;
    held.push_back(datagram);
    return false;
  };
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded, rank == 0 ? 0 : 400 * millisecond));
  }
  network.run_for(21 * millisecond);
  HF_CHECK(!held.empty());
  for (Bytes& datagram : held) network[0].receive(network.now, datagram);
  network.run_for(500 * millisecond);
  HF_CHECK(drops(network[0], Drop::late) > 0);
  HF_EQUAL(text(network.reports[2].back().counted), "0-1000x0 ");
  HF_EQUAL(text(network.reports[1].back().counted), "0-1000x2 ");  // it stands for rank 2 as well
}

HF_TEST_MAIN
