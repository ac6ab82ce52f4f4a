// A network that is drawn anew: the same again for the same seed, fair to its profile, and careful with its packets.
#include <cmath>
#include <cstdint>
#include <vector>

#include "switch/capacity.h"
#include "switch/fabric.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::lab;

namespace {

constexpr Time start = 1000 * second;
constexpr std::uint32_t mtu = 1500;
constexpr Duration packet_time = 50 * microsecond;
constexpr Episodes freezes{275, 1725, Lengths::uniform, 0.818};

Conditions plain() {
  Conditions conditions(2);
  for (PortConditions& port : conditions.ports) {
    port.uplink_bits_per_s = port.downlink_bits_per_s = 240e6;
    port.queue_bytes = 1 << 20;
  }
  return conditions;
}

// Everything that is random, each alone.
std::vector<Conditions> random_networks() {
  std::vector<Conditions> networks(6, plain());
  networks[0].ports[1].frozen = true;
  networks[0].ports[1].freezes = {5, 15, Lengths::uniform, 0.8};
  networks[1].ports[1].cross_traffic_share = 0.8;
  networks[1].ports[1].cross_traffic = {4, 4};
  networks[2].ports[1].slow_down_ratio = 4;
  networks[2].ports[1].slow_downs = {4, 4};
  networks[3].path(0, 1).tail_delay_ms = 2;
  networks[3].path(0, 1).tails = {3, 9};
  networks[4].path(0, 1).burst_loss_ratio = 1;
  networks[4].path(0, 1).bursts = {2, 10};
  networks[5].path(0, 1).loss_ratio = 0.05;
  return networks;
}

std::vector<Delivery> send_evenly(Fabric& fabric, Time begin, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) fabric.admit(begin + 2 * i * packet_time, {i, mtu, 0, 1});
  fabric.advance(begin + 2 * count * packet_time + second);
  return std::move(fabric.deliveries());
}

std::vector<Time> times(const std::vector<Delivery>& deliveries) {
  std::vector<Time> due;
  for (const Delivery& delivery : deliveries) due.push_back(delivery.due);
  return due;
}

std::uint64_t num_lost(Fabric& fabric) { return fabric.lost_packets().size(); }

// Draws until the second port is frozen, or is not, for another 20 ms.
void draw_until(bool frozen, Fabric& fabric, Time now) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    fabric.draw_anew(now, seed);
    const Rates& rates = fabric.rates(1).at(now);
    if (rates.frozen == frozen && rates.until > now + 20 * millisecond) return;
  }
  HF_CHECK(false);
}

Fabric& with_freezes(Fabric& fabric) {
  Conditions conditions = plain();
  conditions.ports[1].frozen = true;
  conditions.ports[1].freezes = freezes;
  fabric.configure(start, conditions);
  return fabric;
}

// Twenty packets each way between the two hosts, all at once.
void exchange(Fabric& fabric, Time now) {
  for (std::uint32_t i = 0; i < 20; ++i) {
    fabric.admit(now, {i, mtu, 0, 1});
    fabric.admit(now, {100 + i, mtu, 1, 0});
  }
}

// They came in order, back to back: the first ones to the frozen host at `thaw` and a packet's time.
void check_burst(Fabric& fabric, Time thaw) {
  HF_EQUAL(num_lost(fabric), 0u);
  HF_EQUAL(fabric.deliveries().size(), 40u);
  std::uint32_t num_in = 0, num_out = 0;
  for (const auto& [due, parcel] : fabric.deliveries()) {
    const bool in = parcel.to == 1;
    std::uint32_t& count = in ? num_in : num_out;
    HF_EQUAL(parcel.packet, in ? count : 100 + count);
    const Time ideal = thaw + (++count + (in ? 0 : 1)) * packet_time;  // out: one more link to cross
    HF_CHECK(due >= ideal && due <= ideal + 2);
  }
}

}  // namespace

HF_CASE(the_same_seed_gives_the_same_network_again_whatever_was_before) {
  const Time drawn_at = start + 10 * second;
  for (const Conditions& conditions : random_networks()) {
    const auto run = [&](std::uint64_t first_seed, std::uint32_t packets_before, std::uint64_t seed) {
      Fabric fabric(2, first_seed, start);
      fabric.configure(start, plain());
      fabric.configure(start + 1, conditions);
      send_evenly(fabric, start + 1, packets_before);
      fabric.draw_anew(drawn_at, seed);
      return times(send_evenly(fabric, drawn_at, 3000));
    };
    const auto due = run(1, 0, 42);
    HF_CHECK(due.size() > 1000);
    HF_CHECK(run(2, 3000, 42) == due);
    HF_CHECK(run(1, 0, 43) != due);
  }
}

HF_CASE(one_fabric_meets_the_same_again_as_often_as_it_is_drawn) {
  for (const Conditions& conditions : random_networks()) {
    Fabric fabric(2, 1, start);
    fabric.configure(start, conditions);
    const auto turn = [&](Time begin, std::uint64_t seed) {
      fabric.draw_anew(begin, seed);
      std::vector<Time> since;
      for (const Delivery& delivery : send_evenly(fabric, begin, 3000)) since.push_back(delivery.due - begin);
      return since;
    };
    const auto first = turn(start + 2 * second, 42);
    HF_CHECK(turn(start + 4 * second, 43) != first);
    HF_CHECK(turn(start + 6 * second, 42) == first);
  }
}

HF_CASE(also_what_changes_later_depends_on_no_change_before) {
  const auto run = [](int changes_before) {
    Fabric fabric(2, 1, start);
    Conditions conditions = plain();
    conditions.ports[1].slow_down_ratio = 4;
    for (int i = 0; i < changes_before; ++i) {
      conditions.ports[1].slow_downs = {4, 5.0 + i};
      fabric.configure(start + i, conditions);
    }
    fabric.draw_anew(start + second, 42);
    conditions.ports[1].slow_downs = {4, 4};
    fabric.configure(start + 2 * second, conditions);
    return times(send_evenly(fabric, start + 2 * second, 3000));
  };
  HF_CHECK(run(0) == run(5));
}

HF_CASE(short_turns_have_the_shares_of_the_profile) {
  for (const Episodes& episodes : {freezes, Episodes{275, 1725}, Episodes{275, 1725, Lengths::uniform, 0}}) {
    Conditions conditions = plain();
    conditions.ports[0].cross_traffic_share = 0.5;
    conditions.ports[0].cross_traffic = episodes;
    conditions.ports[1].frozen = true;
    conditions.ports[1].freezes = episodes;
    Fabric fabric(2, 7, start);
    fabric.configure(start, conditions);
    constexpr int num_turns = 5000;
    constexpr Duration turn = 400 * millisecond;
    double frozen = 0, frozen_squared = 0;
    for (int i = 0; i < num_turns; ++i) {
      const Time begin = start + i * turn;
      fabric.draw_anew(begin, static_cast<std::uint64_t>(i));
      fabric.advance(begin + turn);
      const double share = frozen_s(fabric, begin + turn, begin, begin + turn)[1] * second / turn;
      frozen += share / num_turns;
      frozen_squared += share * share / num_turns;
    }
    const double wanted = 275.0 / 2000;
    const double error = std::sqrt((frozen_squared - frozen * frozen) / num_turns);
    HF_CHECK(std::abs(frozen - wanted) < 4 * error);
    const double offered = 0.5 * 240e6 / 8 * num_turns * turn / second;
    const double crossed = fabric.port_report(0).cross_traffic_bytes / offered;
    HF_CHECK(std::abs(crossed - wanted) < 4 * error);  // the same law: the same error
  }
}

HF_CASE(a_link_that_is_not_frozen_any_more_lets_go_what_it_held) {
  Fabric fabric(2, 1, start);
  draw_until(true, with_freezes(fabric), start);
  exchange(fabric, start);
  const Time thaw = start + 10 * millisecond;
  fabric.advance(thaw);
  HF_CHECK(fabric.deliveries().empty());
  draw_until(false, fabric, thaw);
  fabric.advance(thaw + 20 * millisecond);
  check_burst(fabric, thaw);
}

HF_CASE(a_link_that_is_frozen_from_now_on_holds_what_was_under_way) {
  Fabric fabric(2, 1, start);
  draw_until(false, with_freezes(fabric), start);
  exchange(fabric, start);
  draw_until(true, fabric, start);  // before the first was through
  const Time thaw = fabric.rates(1).at(start).until;
  fabric.advance(thaw);
  HF_CHECK(fabric.deliveries().empty());
  fabric.advance(thaw + 20 * millisecond);
  check_burst(fabric, thaw);
}

HF_CASE(nothing_is_lost_or_overtaken_however_often_it_is_drawn) {
  Conditions conditions = plain();
  conditions.path(0, 1).delay_ms = 1;
  conditions.path(0, 1).tail_delay_ms = 11;
  conditions.path(0, 1).tails = {20, 20};
  conditions.ports[1].frozen = true;
  conditions.ports[1].freezes = {5, 15};
  conditions.ports[0].frozen = true;
  conditions.ports[0].freezes = {5, 15};
  conditions.ports[0].queue_bytes = conditions.ports[1].queue_bytes = 1 << 30;
  Fabric fabric(2, 1, start);
  fabric.configure(start, conditions);
  constexpr std::uint32_t count = 50'000;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Time now = start + 2 * i * packet_time;
    if (i % 70 == 0) fabric.draw_anew(now + packet_time / 3, i);
    fabric.admit(now + packet_time / 3, {i, mtu, 0, 1});
  }
  fabric.advance(start + 2 * count * packet_time + 10 * second);
  HF_EQUAL(num_lost(fabric), 0u);
  HF_EQUAL(fabric.deliveries().size(), count);
  for (std::uint32_t i = 0; i < fabric.deliveries().size(); ++i) HF_EQUAL(fabric.deliveries()[i].parcel.packet, i);
  HF_CHECK(!fabric.has_more(0, 1));
}

HF_CASE(what_was_is_remembered_as_it_was) {
  Fabric fabric(2, 1, start);
  with_freezes(fabric);
  const Time now = start + 20 * second;
  fabric.advance(now);
  const double before_s = frozen_s(fabric, now, start, now)[1];
  HF_CHECK(before_s > 0);
  fabric.draw_anew(now, 42);
  HF_EQUAL(frozen_s(fabric, now, start, now)[1], before_s);
}

HF_TEST_MAIN
