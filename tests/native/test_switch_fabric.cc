// The switch as a pure machine in virtual time: exact rates and limits, shares within three standard errors.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "switch/fabric.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::lab;

namespace {

constexpr Time start = 1000 * second;
constexpr double rate = 240e6 / 8 / 1e9;  // bytes per nanosecond: 1,500 bytes in 50 microseconds
constexpr std::uint32_t mtu = 1500;
constexpr Duration packet_time = 50 * microsecond;

Conditions plain(std::size_t num_ports = 2) {
  Conditions conditions(num_ports);
  for (PortConditions& port : conditions.ports) {
    port.uplink_bits_per_s = port.downlink_bits_per_s = 240e6;
    port.queue_bytes = 1 << 20;
  }
  return conditions;
}

std::uint64_t losses(Fabric& fabric, std::size_t port, Loss cause) {
  return fabric.port_report(port).losses[static_cast<std::size_t>(cause)];
}

// Sends `count` packets at even intervals, and lets all of them arrive.
std::vector<Delivery> send_evenly(Fabric& fabric, Time begin, Duration interval, std::uint32_t count,
                                  std::uint16_t from = 0, std::uint16_t to = 1) {
  for (std::uint32_t i = 0; i < count; ++i) fabric.admit(begin + i * interval, {i, mtu, from, to});
  fabric.advance(begin + count * interval + 100 * second);
  return std::move(fabric.deliveries());
}

bool near(double value, double wanted, double tolerance) { return std::abs(value - wanted) <= tolerance; }

}  // namespace

HF_CASE(one_packet_takes_both_links_and_the_delay) {
  Fabric fabric(2, 1, start);
  Conditions conditions = plain();
  conditions.path(0, 1).delay_ms = 3;
  fabric.configure(start, conditions);
  const auto arrived = send_evenly(fabric, start, 0, 1);
  HF_EQUAL(arrived.size(), 1u);
  HF_EQUAL(arrived[0].due, start + 2 * packet_time + 3 * millisecond);
}

HF_CASE(throughput_is_the_line_rate_to_the_nanosecond) {
  Fabric fabric(2, 1, start);
  fabric.configure(start, plain());
  const auto arrived = send_evenly(fabric, start, 0, 100'000);  // all at once: the uplink has no limit
  HF_EQUAL(arrived.size(), 100'000u);
  for (std::size_t i = 0; i < arrived.size(); ++i) {
    const Time ideal = start + static_cast<Time>(i + 2) * packet_time;
    HF_CHECK(arrived[i].due >= ideal && arrived[i].due <= ideal + 2);
    HF_EQUAL(arrived[i].parcel.packet, i);
  }
  HF_EQUAL(fabric.port_report(0).uplink_peak_bytes, 150'000'000u);
  HF_EQUAL(fabric.port_report(1).bytes_to_host, 150'000'000u);
}

HF_CASE(odd_rates_and_sizes_add_up_without_drift) {
  Fabric fabric(2, 1, start);
  Conditions conditions = plain();
  conditions.ports[0].uplink_bits_per_s = 1e9 / 3;
  conditions.ports[1].downlink_bits_per_s = 1e9 / 7;
  conditions.ports[1].queue_bytes = 1 << 30;
  fabric.configure(start, conditions);
  double total = 0;
  for (std::uint32_t i = 0; i < 50'000; ++i) {
    const std::uint32_t bytes = 40 + i * 37 % 1461;
    total += bytes;
    fabric.admit(start, {i, bytes, 0, 1});
  }
  fabric.advance(start + 1000 * second);
  const double first = 40 * 8 * 3;  // nanoseconds on the uplink; then the slower link is never idle
  HF_CHECK(near(static_cast<double>(fabric.deliveries().back().due - start), first + total * 8 * 7, 3));
}

HF_CASE(time_is_kept_however_late_the_fabric_is_told) {
  const auto run = [](Duration step) {
    Fabric fabric(2, 5, start);
    Conditions conditions = plain();
    conditions.path(0, 1).loss_ratio = 0.1;
    conditions.ports[1].slow_down_ratio = 2;
    conditions.ports[1].slow_downs = {3, 5};
    conditions.ports[1].queue_bytes = 30'000;
    fabric.configure(start, conditions);
    for (std::uint32_t i = 0; i < 2000; ++i) fabric.admit(start, {i, mtu, 0, 1});
    for (Time now = start; now < start + second; now += step) fabric.advance(now);
    fabric.advance(start + second);
    std::vector<Time> due;
    for (const Delivery& delivery : fabric.deliveries()) due.push_back(delivery.due);
    return due;
  };
  const auto all_at_once = run(second);
  HF_CHECK(all_at_once.size() > 500);
  HF_CHECK(all_at_once == run(7 * microsecond));
}

HF_CASE(independent_loss_has_its_share) {
  for (const double ratio : {0.001, 0.01, 0.2}) {
    Fabric fabric(2, 11, start);
    Conditions conditions = plain();
    conditions.path(0, 1).loss_ratio = ratio;
    fabric.configure(start, conditions);
    const std::uint32_t count = 300'000;
    const auto arrived = send_evenly(fabric, start, packet_time, count);
    const auto lost = static_cast<double>(losses(fabric, 0, Loss::random));
    HF_EQUAL(static_cast<double>(count - arrived.size()), lost);
    HF_CHECK(near(lost, count * ratio, 3 * std::sqrt(count * ratio * (1 - ratio))));
    HF_EQUAL(fabric.lost_packets().size(), count - arrived.size());
  }
}

HF_CASE(bursts_have_their_share_and_their_length_in_time_whatever_the_packet_rate) {
  for (const Duration interval : {20 * microsecond, 200 * microsecond}) {
    Fabric fabric(2, 3, start);
    Conditions conditions = plain();
    conditions.ports[0].uplink_bits_per_s = conditions.ports[1].downlink_bits_per_s = 10e9;
    conditions.path(0, 1).burst_loss_ratio = 1;
    conditions.path(0, 1).bursts = {3, 27};
    fabric.configure(start, conditions);
    const auto count = static_cast<std::uint32_t>(300 * second / interval);
    const auto arrived = send_evenly(fabric, start, interval, count);
    const double share = 1 - static_cast<double>(arrived.size()) / count;
    // 10,000 cycles of independent exponential lengths; the share's standard error is that of on/(on+off).
    HF_CHECK(near(share, 0.1, 3 * 0.1 * 0.9 * std::sqrt(2.0 / 10'000)));
    HF_EQUAL(losses(fabric, 0, Loss::burst), count - arrived.size());

    // A run of lost packets spans its burst: the mean over those that hit at least one packet.
    std::uint64_t runs = 0;
    std::uint32_t expected = 0;
    for (const Delivery& delivery : arrived) {
      if (delivery.parcel.packet != expected) ++runs;
      expected = delivery.parcel.packet + 1;
    }
    const double mean_ms =
        static_cast<double>(count - arrived.size()) * static_cast<double>(interval) / 1e6 / static_cast<double>(runs);
    const double interval_ms = static_cast<double>(interval) / 1e6;
    const double hit = 3 / interval_ms * (1 - std::exp(-interval_ms / 3));  // chance that a burst hits a packet
    HF_CHECK(near(mean_ms, 3 / hit, 3 * 3 / 100.0));
  }
}

HF_CASE(the_queue_holds_exactly_its_bytes) {
  Fabric fabric(3, 1, start);
  Conditions conditions = plain(3);
  conditions.ports[2].queue_bytes = 10 * mtu;
  fabric.configure(start, conditions);
  // Two senders at full rate: of each pair one packet is served, so the queue is full after about ten pairs.
  for (std::uint32_t i = 0; i < 1000; ++i) {
    fabric.admit(start, {2 * i, mtu, 0, 2});
    fabric.admit(start, {2 * i + 1, mtu, 1, 2});
  }
  fabric.advance(start + 10 * second);
  HF_EQUAL(fabric.port_report(2).queue_peak_bytes, 10u * mtu);
  const std::uint64_t arrived = fabric.deliveries().size();
  HF_EQUAL(arrived + losses(fabric, 2, Loss::queue), 2000u);
  HF_EQUAL(arrived,
           1000u + 9u);  // 1000 served while packets come, and what the queue then holds but the one in service
  HF_EQUAL(fabric.deliveries().back().due, start + packet_time + static_cast<Time>(arrived) * packet_time);
}

HF_CASE(one_byte_too_many_is_dropped) {
  Fabric fabric(3, 1, start);
  Conditions conditions = plain(3);
  conditions.ports[2].queue_bytes = 3000;
  conditions.ports[2].downlink_bits_per_s = 1000;
  conditions.path(1, 2).delay_ms = 1;
  fabric.configure(start, conditions);
  fabric.admit(start, {0, mtu, 0, 2});
  fabric.advance(start + packet_time);
  fabric.admit(start + packet_time, {1, mtu, 1, 2});
  fabric.advance(start + 2 * millisecond);
  HF_EQUAL(losses(fabric, 2, Loss::queue), 0u);  // by then 0.1 bytes were served
  fabric.admit(start + 2 * millisecond, {2, 1, 0, 2});
  fabric.advance(start + 3 * millisecond);
  HF_EQUAL(losses(fabric, 2, Loss::queue), 1u);
}

HF_CASE(cross_traffic_takes_its_share_and_fills_the_queue) {
  Fabric fabric(2, 1, start);
  Conditions conditions = plain();
  conditions.ports[1].cross_traffic_share = 0.75;
  conditions.ports[1].queue_bytes = 100 * mtu;
  fabric.configure(start, conditions);
  const std::uint32_t count = 20'000;  // one second at full rate
  for (std::uint32_t i = 0; i < count; ++i) fabric.admit(start + i * packet_time, {i, mtu, 0, 1});
  fabric.advance(start + second);
  HF_CHECK(near(static_cast<double>(fabric.deliveries().size()), count * 0.25, 100));
  HF_CHECK(losses(fabric, 1, Loss::queue) > count / 2);
  HF_CHECK(near(static_cast<double>(fabric.port_report(1).queue_peak_bytes), 100 * mtu, 1));
  HF_CHECK(near(fabric.port_report(1).cross_traffic_bytes, 0.75 * rate * second, 1));
  // Whoever gets in at the end waits behind the whole queue, cross traffic included.
  const Delivery& last = fabric.deliveries().back();
  const Time sent = start + (last.parcel.packet + 1) * packet_time;
  HF_CHECK(near(static_cast<double>(last.due - sent), 100.0 * packet_time, 2.0 * packet_time));
}

HF_CASE(cross_traffic_alone_fills_the_queue_when_it_is_more_than_the_link) {
  Fabric fabric(2, 1, start);
  Conditions conditions = plain();
  conditions.ports[1].cross_traffic_share = 1.5;
  conditions.ports[1].queue_bytes = 30'000;
  fabric.configure(start, conditions);
  // 15,000 bytes a millisecond too many: full after 2 ms. A packet before that waits, one after it is lost.
  fabric.admit(start + millisecond - packet_time, {0, mtu, 0, 1});
  fabric.admit(start + 3 * millisecond, {1, mtu, 0, 1});
  fabric.advance(start + second);
  HF_EQUAL(fabric.deliveries().size(), 1u);
  HF_CHECK(near(static_cast<double>(fabric.deliveries()[0].due), start + 1.5 * millisecond + packet_time, 2));
  HF_EQUAL(losses(fabric, 1, Loss::queue), 1u);
}

HF_CASE(bursts_of_different_length_and_depth_take_the_same_mean_capacity) {
  const auto capacity = [](double share, Episodes episodes) {
    Fabric fabric(2, 9, start);
    Conditions conditions = plain();
    conditions.ports[1].cross_traffic_share = share;
    conditions.ports[1].cross_traffic = episodes;
    conditions.ports[1].queue_bytes = 20 * mtu;
    fabric.configure(start, conditions);
    const std::uint32_t count = 1'000'000;
    return static_cast<double>(send_evenly(fabric, start, packet_time, count).size()) / count;
  };
  HF_CHECK(near(capacity(0.5, {5, 5}), 0.75, 0.02));
  HF_CHECK(near(capacity(1.0, {20, 60}), 0.75, 0.05));
  HF_CHECK(near(capacity(0.25, {}), 0.75, 0.001));
}

HF_CASE(packets_never_overtake_on_their_path_in_tails) {
  Fabric fabric(2, 4, start);
  Conditions conditions = plain();
  conditions.path(0, 1).delay_ms = 1;
  conditions.path(0, 1).tail_delay_ms = 11;
  conditions.path(0, 1).tails = {20, 80};
  fabric.configure(start, conditions);
  const std::uint32_t count = 200'000;
  const auto arrived = send_evenly(fabric, start, 2 * packet_time, count);
  HF_EQUAL(arrived.size(), count);
  std::uint64_t delayed = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    HF_EQUAL(arrived[i].parcel.packet, i);
    const Duration delay = arrived[i].due - (start + i * 2 * packet_time) - 2 * packet_time;
    HF_CHECK(delay >= millisecond && delay <= 12 * millisecond + 500 * packet_time);
    if (delay > 2 * millisecond) ++delayed;
  }
  // A fifth of the time, and up to 11 ms longer until the line has caught up.
  const double share = static_cast<double>(delayed) / count;
  HF_CHECK(share > 0.2 && share < 0.4);
}

HF_CASE(paths_have_tails_of_their_own) {
  Fabric fabric(3, 4, start);
  Conditions conditions = plain(3);
  conditions.path(0, 2).tail_delay_ms = 10;  // always
  fabric.configure(start, conditions);
  fabric.admit(start, {0, mtu, 0, 2});
  fabric.admit(start, {1, mtu, 1, 2});
  fabric.advance(start + second);
  HF_EQUAL(fabric.deliveries()[0].parcel.packet, 1u);
  HF_EQUAL(fabric.deliveries()[1].due, start + 10 * millisecond + 2 * packet_time);
}

HF_CASE(a_slow_port_serves_at_its_fraction) {
  Fabric fabric(2, 1, start);
  Conditions conditions = plain();
  conditions.ports[1].slow_down_ratio = 4;
  fabric.configure(start, conditions);
  const auto arrived = send_evenly(fabric, start, 0, 100);
  HF_CHECK(near(static_cast<double>(arrived.back().due - start), (1 + 4 * 100.0) * packet_time, 2));
}

HF_CASE(a_link_that_is_down_loses_both_ways_and_comes_back) {
  Fabric fabric(3, 1, start);
  Conditions conditions = plain(3);
  fabric.configure(start, conditions);
  fabric.admit(start, {0, mtu, 1, 2});  // on the uplink of 1 when it goes down
  conditions.ports[1].down = true;
  fabric.configure(start + 1, conditions);
  fabric.admit(start + 1, {1, mtu, 0, 1});
  fabric.admit(start + 1, {2, mtu, 0, 2});
  fabric.advance(start + second);
  HF_EQUAL(fabric.deliveries().size(), 1u);
  HF_EQUAL(fabric.deliveries()[0].parcel.packet, 2u);
  HF_EQUAL(losses(fabric, 1, Loss::down), 2u);
  conditions.ports[1].down = false;
  fabric.configure(start + second, conditions);
  fabric.admit(start + second, {3, mtu, 0, 1});
  fabric.advance(start + 2 * second);
  HF_EQUAL(fabric.deliveries().size(), 2u);
}

HF_CASE(a_frozen_port_holds_a_queue_each_way_then_bursts_out) {
  Fabric fabric(2, 1, start);
  Conditions conditions = plain();
  conditions.ports[1].queue_bytes = 20 * mtu;
  conditions.ports[1].frozen = true;
  fabric.configure(start, conditions);
  for (std::uint32_t i = 0; i < 30; ++i) {
    fabric.admit(start + i * packet_time, {i, mtu, 0, 1});
    fabric.admit(start + i * packet_time, {100 + i, mtu, 1, 0});
  }
  fabric.advance(start + 300 * millisecond);
  HF_CHECK(fabric.deliveries().empty());
  HF_EQUAL(fabric.next_event(), never);  // nothing to wake up for
  HF_EQUAL(losses(fabric, 1, Loss::frozen), 20u);
  const Time thaw = start + 300 * millisecond;
  conditions.ports[1].frozen = false;
  fabric.configure(thaw, conditions);
  fabric.advance(start + second);
  HF_EQUAL(fabric.deliveries().size(), 40u);
  std::vector<Time> in, out;
  for (const Delivery& delivery : fabric.deliveries()) (delivery.parcel.to == 1 ? in : out).push_back(delivery.due);
  HF_EQUAL(in.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) {
    HF_CHECK(near(static_cast<double>(in[i]), static_cast<double>(thaw + static_cast<Time>(i + 1) * packet_time), 2));
    HF_CHECK(near(static_cast<double>(out[i]), static_cast<double>(thaw + static_cast<Time>(i + 2) * packet_time), 2));
  }
}

HF_CASE(freezes_come_and_go_by_themselves) {
  Fabric fabric(2, 6, start);
  Conditions conditions = plain();
  conditions.ports[1].frozen = true;
  conditions.ports[1].freezes = {275, 1725, Lengths::uniform, 0.8};
  conditions.ports[1].queue_bytes = 1 << 30;
  fabric.configure(start, conditions);
  const auto arrived = send_evenly(fabric, start, millisecond, 200'000);
  HF_EQUAL(arrived.size(), 200'000u);
  int freezes = 0;
  for (std::size_t i = 1; i < arrived.size(); ++i) {
    const Duration gap = arrived[i].due - arrived[i - 1].due;
    if (gap < 10 * millisecond) continue;
    ++freezes;
    HF_CHECK(gap >= 54 * millisecond && gap <= 497 * millisecond);
  }
  HF_CHECK(freezes > 75 && freezes < 125);
}

HF_CASE(a_new_rate_holds_at_once_also_for_what_waits) {
  Fabric fabric(2, 1, start);
  Conditions conditions = plain();
  fabric.configure(start, conditions);
  for (std::uint32_t i = 0; i < 100; ++i) fabric.admit(start, {i, mtu, 0, 1});
  conditions.ports[0].uplink_bits_per_s = 120e6;
  fabric.configure(start + 10 * packet_time + packet_time / 2, conditions);  // ten and a half through
  fabric.advance(start + second);
  const double wanted = 10.5 * packet_time + 89.5 * 2 * packet_time + packet_time;
  HF_CHECK(near(static_cast<double>(fabric.deliveries().back().due - start), wanted, 3));
}

HF_CASE(the_same_seed_gives_the_same_network_and_another_seed_another) {
  const auto run = [](std::uint64_t seed, double loss_from_elsewhere) {
    Fabric fabric(3, seed, start);
    Conditions conditions = plain(3);
    conditions.path(0, 1).loss_ratio = 0.05;
    conditions.path(0, 1).burst_loss_ratio = 0.5;
    conditions.path(0, 1).bursts = {2, 10};
    conditions.path(0, 1).tail_delay_ms = 2;
    conditions.path(0, 1).tails = {3, 9};
    conditions.path(2, 1).loss_ratio = loss_from_elsewhere;
    conditions.ports[1].cross_traffic_share = 0.8;
    conditions.ports[1].cross_traffic = {4, 4};
    fabric.configure(start, conditions);
    std::vector<Time> due;
    for (const Delivery& delivery : send_evenly(fabric, start, 2 * packet_time, 5000)) due.push_back(delivery.due);
    return due;
  };
  HF_CHECK(run(1, 0) == run(1, 0));
  HF_CHECK(run(1, 0) == run(1, 0.3));  // what another path does moves nothing here
  HF_CHECK(run(1, 0) != run(2, 0));
}

HF_CASE(changing_one_condition_does_not_restart_the_others) {
  const auto run = [](bool change_loss) {
    Fabric fabric(2, 8, start);
    Conditions conditions = plain();
    conditions.ports[1].slow_down_ratio = 3;
    conditions.ports[1].slow_downs = {10, 10};
    fabric.configure(start, conditions);
    fabric.advance(start + 5 * millisecond);
    if (change_loss) {
      conditions.path(1, 0).loss_ratio = 0.5;
      conditions.ports[1].queue_bytes += 1;
      fabric.configure(start + 5 * millisecond, conditions);
    }
    std::vector<Time> due;
    for (const Delivery& delivery : send_evenly(fabric, start + 6 * millisecond, packet_time, 3000)) {
      due.push_back(delivery.due);
    }
    return due;
  };
  HF_CHECK(run(false) == run(true));
}

HF_CASE(counters_start_again_after_a_reset) {
  Fabric fabric(2, 1, start);
  fabric.configure(start, plain());
  send_evenly(fabric, start, 0, 10);
  fabric.count_loss(0, Loss::malformed);
  fabric.reset_counters();
  HF_EQUAL(fabric.port_report(1).bytes_to_host, 0u);
  HF_EQUAL(fabric.port_report(0).uplink_peak_bytes, 0u);
  HF_EQUAL(losses(fabric, 0, Loss::malformed), 0u);
}

HF_CASE(conditions_out_of_range_are_refused_and_change_nothing) {
  Fabric fabric(2, 1, start);
  fabric.configure(start, plain());
  const auto refuse = [&](auto change) {
    Conditions conditions = plain();
    change(conditions);
    HF_THROWS(fabric.configure(start, conditions), std::invalid_argument);
  };
  const double nan = std::nan("");
  for (const double bad : {-0.1, 1.1, nan}) {
    refuse([&](Conditions& c) { c.path(0, 1).loss_ratio = bad; });
    refuse([&](Conditions& c) { c.path(0, 1).burst_loss_ratio = bad; });
    refuse([&](Conditions& c) { c.path(0, 1).bursts.spread_ratio = bad; });
  }
  for (const double bad : {-1.0, nan, 1e300}) {
    refuse([&](Conditions& c) { c.ports[0].uplink_bits_per_s = bad; });
    refuse([&](Conditions& c) { c.ports[0].downlink_bits_per_s = bad; });
    refuse([&](Conditions& c) { c.ports[0].cross_traffic_share = bad; });
    refuse([&](Conditions& c) { c.ports[0].slow_down_ratio = bad; });
    refuse([&](Conditions& c) { c.path(1, 0).delay_ms = bad; });
    refuse([&](Conditions& c) { c.path(1, 0).tail_delay_ms = bad; });
    refuse([&](Conditions& c) { c.ports[0].freezes.on_ms = bad; });
  }
  refuse([&](Conditions& c) { c.ports[0].freezes = {0.001, 1}; });
  refuse([&](Conditions& c) { c.ports[0].queue_bytes = 1499; });
  HF_THROWS(fabric.configure(start, Conditions(3)), std::invalid_argument);
  HF_EQUAL(send_evenly(fabric, start, 0, 1).size(), 1u);
}

HF_TEST_MAIN
