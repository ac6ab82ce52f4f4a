// The injector is itself tested: each fault really happens, at the rate and time asked for, and a run follows from its
// seed.
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "core/byte_order.h"
#include "sim/network.h"
#include "sim/run.h"
#include "sim/world.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::sim;

namespace {

// A datagram whose header says what kind it is; the network never looks further.
std::vector<std::uint8_t> datagram_of(PacketType type, std::uint8_t flags, std::uint64_t number,
                                      std::size_t bytes = 200) {
  std::vector<std::uint8_t> bytes_of(bytes, 7);
  Header header;
  header.type = type;
  header.flags = flags;
  header.epoch = 5;
  header.stage = Stage::contribution;
  header.format = Format::f32;
  header.total = 1'000'000;
  header.transmission = number;
  encode(header, std::span<std::uint8_t, header_bytes>(bytes_of.data(), header_bytes));
  return bytes_of;
}

struct Arrival {
  Time at;
  Datagram datagram;
  std::uint64_t number() const {
    return datagram.bytes.size() < header_bytes ? 0 : load_big_endian<std::uint64_t>(datagram.bytes.data() + 16) >> 16;
  }
};

// Sends `count` datagrams from rank 0 to rank 1, `gap` apart, and returns what arrives.
struct Wire {
  explicit Wire(const Scenario& with, std::uint64_t seed = 1, std::uint16_t victim = 0)
      : scenario(with), network(scenario, 2, victim, seed, events) {}

  void send(std::uint64_t count, Duration gap, PacketType type = PacketType::data, std::uint8_t flags = 0,
            std::size_t bytes = 200) {
    for (std::uint64_t i = 0; i < count; ++i, now += gap)
      network.send(now, 0, 1, datagram_of(type, flags, next++, bytes));
  }

  std::vector<Arrival> arrivals() {
    std::vector<Arrival> all;
    while (!events.empty()) {
      const Event event = events.pop();
      if (event.kind == EventKind::reaches_port) network.on_reaches_port(event.at, event.subject);
      if (event.kind == EventKind::reaches_host) all.push_back({event.at, network.take(event.subject)});
    }
    return all;
  }

  const Scenario scenario;
  EventQueue events;
  Network network;
  Time now = 0;
  std::uint64_t next = 0;
};

// Within three standard deviations of a binomial.
bool is_near(std::uint64_t found, std::uint64_t trials, double ratio) {
  const double mean = static_cast<double>(trials) * ratio;
  return std::fabs(static_cast<double>(found) - mean) <= 3 * std::sqrt(mean * (1 - ratio)) + 1;
}

constexpr std::uint64_t many = 20'000;

}  // namespace

HF_CASE(random_numbers_are_the_same_everywhere) {
  Random random(1, 2);
  HF_EQUAL(random.bits(), 6385536136339630212ull);
  Random again(1, 2), other_stream(1, 3);
  HF_EQUAL(again.bits(), 6385536136339630212ull);
  HF_CHECK(other_stream.bits() != 6385536136339630212ull);
}

HF_CASE(a_healthy_network_delivers_everything_once_in_order_after_its_delay) {
  Wire wire{Scenario{}};
  wire.send(100, 10 * microsecond);
  const auto arrivals = wire.arrivals();
  HF_EQUAL(arrivals.size(), 100u);
  for (std::size_t i = 0; i < arrivals.size(); ++i) HF_EQUAL(arrivals[i].number(), i);
  // 242 bytes at 10 Gb/s twice, and 50 us.
  HF_EQUAL(arrivals.front().at, 50 * microsecond + 2 * 193);
}

HF_CASE(independent_loss_has_its_rate) {
  for (const double ratio : {0.001, 0.01, 0.05, 0.2}) {
    Scenario scenario;
    scenario.loss_ratio = ratio;
    Wire wire(scenario);
    wire.send(many, microsecond);
    HF_CHECK(is_near(many - wire.arrivals().size(), many, ratio));
  }
}

HF_CASE(bursts_are_on_the_clock_not_on_the_packets) {
  Scenario scenario;
  scenario.burst_loss_ratio = 1;
  scenario.burst_ms = 5;
  scenario.calm_ms = 20;
  for (const Duration gap : {100 * microsecond, millisecond}) {
    Wire wire(scenario, 3);
    const auto count = static_cast<std::uint64_t>(20 * second / gap);
    wire.send(count, gap);
    std::vector<bool> arrived(count, false);
    for (const Arrival& arrival : wire.arrivals()) arrived[arrival.number()] = true;
    std::uint64_t lost = 0, bursts = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      lost += arrived[i] ? 0 : 1;
      bursts += !arrived[i] && (i == 0 || arrived[i - 1]) ? 1 : 0;
    }
    // A fifth of the time is bad, in stretches of 5 ms, however often one looks.
    HF_CHECK(std::fabs(static_cast<double>(lost) / static_cast<double>(count) - 0.2) < 0.03);
    const double mean_ms = static_cast<double>(lost) * static_cast<double>(gap) / 1e6 / static_cast<double>(bursts);
    HF_CHECK(mean_ms > 4 && mean_ms < 7);
  }
}

HF_CASE(only_the_last_packets_are_lost) {
  Scenario scenario;
  scenario.last_packets_loss_ratio = 1;
  Wire wire(scenario);
  wire.send(50, microsecond);
  wire.send(50, microsecond, PacketType::data, flag::last_percentile);
  HF_EQUAL(wire.arrivals().size(), 50u);
  HF_EQUAL(wire.network.counters().lost_last_packets, 50u);
}

HF_CASE(only_control_packets_are_lost) {
  Scenario scenario;
  scenario.control_loss_ratio = 1;
  Wire wire(scenario);
  for (const PacketType type : {PacketType::ack, PacketType::ping, PacketType::end}) wire.send(10, microsecond, type);
  wire.send(10, microsecond);
  HF_EQUAL(wire.arrivals().size(), 10u);
  HF_EQUAL(wire.network.counters().lost_control, 30u);
}

HF_CASE(one_way_loss_has_one_direction_and_a_time) {
  Scenario scenario;
  scenario.one_way_loss_ratio = 1;
  scenario.fault_ms = 10;
  Wire wire(scenario, 1, 0);
  wire.network.start_faults_at(5 * millisecond);
  wire.send(20, millisecond);
  for (int i = 0; i < 20; ++i) wire.network.send(i * millisecond, 1, 0, datagram_of(PacketType::data, 0, 100));
  std::uint64_t forward = 0, back = 0;
  for (const Arrival& arrival : wire.arrivals()) ++(arrival.datagram.from == 0 ? forward : back);
  HF_EQUAL(forward, 10u);
  HF_EQUAL(back, 20u);
}

HF_CASE(a_black_hole_takes_both_directions) {
  Scenario scenario;
  scenario.black_hole = true;
  Wire wire(scenario, 1, 1);
  wire.network.start_faults_at(0);
  wire.send(10, microsecond);
  wire.network.send(0, 1, 0, datagram_of(PacketType::data, 0, 1));
  HF_EQUAL(wire.arrivals().size(), 0u);
  HF_EQUAL(wire.network.counters().lost_in_black_hole, 11u);
}

HF_CASE(duplicates_arrive_twice) {
  Scenario scenario;
  scenario.duplicate_ratio = 0.2;
  Wire wire(scenario);
  wire.send(many, microsecond);
  HF_CHECK(is_near(wire.arrivals().size() - many, many, 0.2));
}

HF_CASE(reordering_changes_the_order) {
  Scenario scenario;
  scenario.reorder_ratio = 0.3;
  Wire wire(scenario);
  wire.send(many, 10 * microsecond);
  const auto arrivals = wire.arrivals();
  HF_EQUAL(arrivals.size(), many);
  std::uint64_t overtaken = 0, highest = 0;
  for (const Arrival& arrival : arrivals) {
    overtaken += arrival.number() < highest ? 1 : 0;
    highest = std::max(highest, arrival.number());
  }
  HF_CHECK(overtaken > many / 5 && overtaken < many / 3);
}

HF_CASE(corruption_flips_bits_and_truncation_shortens) {
  Scenario scenario;
  scenario.corrupt_ratio = 0.1;
  scenario.truncate_ratio = 0.1;
  Wire wire(scenario);
  wire.send(many, microsecond);
  std::uint64_t corrupted = 0, truncated = 0;
  for (const Arrival& arrival : wire.arrivals()) {
    const auto& bytes = arrival.datagram.bytes;
    const bool shorter = bytes.size() < 200;
    truncated += shorter ? 1 : 0;
    HF_EQUAL(shorter, arrival.datagram.origin == Origin::truncated);
    if (shorter) continue;
    bool differs = true;
    for (std::uint64_t number = 0; number < many && differs; ++number) {
      if (arrival.datagram.origin == Origin::genuine) number = arrival.number();
      differs = bytes != datagram_of(PacketType::data, 0, number);
      if (arrival.datagram.origin == Origin::genuine) break;
      if (number == 64) break;  // a flipped number cannot be told; a look at some is enough
    }
    HF_EQUAL(differs, arrival.datagram.origin == Origin::corrupted);
    corrupted += differs ? 1 : 0;
  }
  HF_CHECK(is_near(corrupted, many, 0.1));
  HF_CHECK(is_near(truncated, many, 0.09));
}

HF_CASE(stale_datagrams_come_again_later) {
  Scenario scenario;
  scenario.replay_ratio = 1;
  scenario.replay_after_ms = 50;
  Wire wire(scenario);
  wire.send(many / 10, microsecond);
  double total_ms = 0;
  std::uint64_t replayed = 0;
  for (const Arrival& arrival : wire.arrivals()) {
    if (arrival.datagram.origin != Origin::replayed) continue;
    ++replayed;
    total_ms += static_cast<double>(arrival.at - static_cast<Time>(arrival.number()) * microsecond) / 1e6;
  }
  HF_EQUAL(replayed, many / 10);
  HF_CHECK(std::fabs(total_ms / static_cast<double>(replayed) - 50) < 5);
}

HF_CASE(forgeries_are_of_every_kind) {
  Scenario scenario;
  scenario.forge_ratio = 1;
  Wire wire(scenario);
  wire.send(2000, 10 * microsecond);
  std::map<std::string, int> kinds;
  for (const Arrival& arrival : wire.arrivals()) {
    if (arrival.datagram.origin != Origin::forged) continue;
    Header header;
    const auto& bytes = arrival.datagram.bytes;
    if (bytes.size() < header_bytes + tag_bytes || decode(bytes, bytes.size() - header_bytes - tag_bytes, header)) {
      ++kinds["noise"];
    } else if (header.epoch != 5) {
      ++kinds["epoch"];
    } else if (header.job != 0) {
      ++kinds["job"];
    } else if (header.sender != 0) {
      ++kinds["sender"];
    } else if (header.type == PacketType::bye) {
      ++kinds["goodbye"];
    }
  }
  for (const char* kind : {"noise", "epoch", "job", "sender", "goodbye"}) HF_CHECK(kinds[kind] > 100);
}

HF_CASE(a_full_port_drops) {
  Scenario scenario;
  scenario.port_queue_bytes = 10'000;
  scenario.port_rate_gbps = 1;
  Wire wire(scenario);
  wire.send(100, 0, PacketType::data, 0, 1000);  // ten times faster than the port
  const auto arrivals = wire.arrivals();
  HF_EQUAL(arrivals.size() + wire.network.counters().dropped_at_port, 100u);
  HF_CHECK(arrivals.size() >= 18 && arrivals.size() <= 22);  // what fits, and what drains meanwhile
}

HF_CASE(a_slow_rank_and_a_slow_link_are_slow) {
  Scenario scenario;
  scenario.slow_rate_ratio = 0.01;
  Wire slow_rank(scenario, 1, 0);
  slow_rank.network.start_faults_at(0);
  slow_rank.send(100, 0, PacketType::data, 0, 1208);
  HF_EQUAL(slow_rank.arrivals().back().at, 100 * 100 * microsecond + 50 * microsecond + 1000);

  scenario = {};
  scenario.slow_link_delay_us = 20'000;
  Wire slow_link(scenario, 1, 0);
  slow_link.network.start_faults_at(0);
  slow_link.send(1, 0);
  HF_CHECK(slow_link.arrivals().front().at > 20 * millisecond);
}

HF_CASE(stalls_hold_back_all_that_is_sent_during_them) {
  Scenario scenario;
  scenario.stalls_per_second = 20;
  scenario.stall_scale_ms = 2;
  Wire wire(scenario);
  wire.send(many, 100 * microsecond);
  std::uint64_t late = 0;
  Duration longest = 0;
  for (const Arrival& arrival : wire.arrivals()) {
    const Duration delay = arrival.at - static_cast<Time>(arrival.number()) * 100 * microsecond;
    late += delay > 200 * microsecond ? 1 : 0;
    longest = std::max(longest, delay);
  }
  // 20 stalls a second of 6 ms on average (Pareto, shape 1.5): about a tenth of the time.
  HF_CHECK(late > many / 30 && late < many / 4);
  HF_CHECK(longest > 20 * millisecond && longest < 510 * millisecond);
}

// ---------------------------------------------------------------------------------------------------- whole runs

HF_CASE(a_run_follows_from_its_seed) {
  Scenario scenario;
  scenario.loss_ratio = 0.05;
  scenario.reorder_ratio = 0.1;
  scenario.forge_ratio = 0.1;
  const RunResult first = run(scenario, 42);
  const RunResult again = run(scenario, 42);
  const RunResult other = run(scenario, 43);
  HF_EQUAL(first.num_violations, 0u);
  HF_EQUAL(first.digest, again.digest);
  HF_EQUAL(first.tally.delivered, again.tally.delivered);
  HF_CHECK(first.digest != other.digest);
}

HF_CASE(a_frozen_host_does_nothing_until_it_thaws) {
  Scenario scenario;
  scenario.freeze_ms = 200;
  scenario.num_operations = 20;
  scenario.exact_ratio = 0;
  scenario.call_skew_ms = 20;
  scenario.fault_start_ms = 40;
  scenario.victim = 1;
  std::uint64_t after_thaw = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    World world(scenario, seed);
    world.run();
    const Host& frozen = *world.hosts()[1];
    HF_CHECK(frozen.was_absent());
    Time last_before = 0, first_after = never;
    for (const HostOperation& operation : frozen.operations()) {
      if (operation.reported_at - operation.called_at > 70 * millisecond) ++after_thaw;
      Time& edge = operation.called_at < 100 * millisecond ? last_before : first_after;
      edge = operation.called_at < 100 * millisecond ? std::max(edge, operation.called_at)
                                                     : std::min(edge, operation.called_at);
    }
    HF_CHECK(first_after - last_before >= 200 * millisecond);  // nobody calls on a frozen host
  }
  HF_CHECK(after_thaw > 0);  // called before the freeze, ended at the thaw
}

HF_CASE(a_frozen_socket_overflows) {
  Scenario scenario;
  scenario.freeze_ms = 200;
  scenario.socket_queue_bytes = 10'000;
  scenario.num_operations = 20;
  scenario.min_elements = 8000;
  HF_CHECK(run(scenario, 1).network.dropped_at_socket > 0);
}

HF_CASE(a_death_is_noticed_and_named) {
  Scenario scenario;
  scenario.dies = true;
  scenario.exact_ratio = 1;
  scenario.min_ranks = scenario.max_ranks = 3;
  const RunResult result = run(scenario, 5);
  HF_EQUAL(result.num_violations, 0u);
  HF_CHECK(result.tally.num_exact_failed > 0);
}

HF_CASE(keys_change_in_flight) {
  Scenario scenario;
  scenario.packets_per_key = 50;
  scenario.min_elements = 20'000;
  scenario.max_elements = 30'000;
  scenario.loss_ratio = 0.02;
  const RunResult result = run(scenario, 9);
  HF_EQUAL(result.num_violations, 0u);
  HF_CHECK(result.num_key_changes > 10);
}

HF_CASE(a_violation_is_found_and_carries_its_seed) {
  Scenario scenario;
  scenario.loss_ratio = 0.05;
  scenario.expects_complete = true;  // which loss makes untrue
  const ManyResult result = run_many(scenario, 100, 5, true);
  HF_EQUAL(result.num_failed, 1u);
  HF_EQUAL(result.failed.front().seed, 100u);
  HF_EQUAL(result.failed.front().violations.front().substr(0, 17), "clean_is_complete");
}

HF_TEST_MAIN
