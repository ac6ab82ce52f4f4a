// The bandwidth model on a modelled link, in virtual time: it finds the rate, keeps it through pauses, and never has
// more in flight than the receiver allows. And the pacer's spacing, to the nanosecond.
#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

#include "core/pacer.h"
#include "core/rate.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

constexpr std::uint32_t datagram = 1472;

// A bottleneck with a queue without end, a fixed round trip, and an ack for every `packets_per_ack` packets.
struct Link {
  double bytes_per_second;
  Duration round_trip;
  std::size_t packets_per_ack = 1;
  double stall_us = 0;  // mean time that the receiver, now and then, does not run before it acknowledges

  RateController rate{RateRule::model, datagram, false};
  Pacer pacer{datagram};
  Time now = second;
  std::uint64_t in_flight = 0;
  std::uint64_t most_in_flight = 0;
  std::uint64_t delivered = 0;

  struct Packet {
    Time sent_at;
    Time arrives_at;
    std::uint32_t bytes;
    DeliverySnapshot snapshot;
  };
  std::deque<Packet> queue{};
  Time link_free_at = 0;
  Time stalled_until = 0;
  std::mt19937 random{1};

  void put_on_link(std::uint32_t bytes, bool is_last) {
    if (is_last) rate.on_app_limited(in_flight);
    const auto takes = static_cast<Duration>(bytes * 1e9 / bytes_per_second);
    link_free_at = std::max(now, link_free_at) + takes;
    Time arrives_at = link_free_at + round_trip;
    if (stall_us > 0 && arrives_at > stalled_until) {
      const double stall = std::exponential_distribution<double>(1 / stall_us)(random) * microsecond;
      stalled_until = arrives_at + static_cast<Duration>(stall);
    }
    arrives_at = std::max(arrives_at, stalled_until);
    queue.push_back({now, arrives_at, bytes, rate.on_sent(now, in_flight)});
    in_flight += bytes;
    most_in_flight = std::max(most_in_flight, in_flight);
  }

  void take_ack() {
    const std::size_t count = std::min(packets_per_ack, queue.size());
    now = std::max(now, queue[count - 1].arrives_at);
    const Packet newest = queue[count - 1];
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) bytes += queue[i].bytes;
    queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
    in_flight -= bytes;
    delivered += bytes;
    rate.on_acknowledged(now, bytes, newest.snapshot, newest.sent_at, now - newest.sent_at);
  }

  Time next_ack_at() const {
    return queue.empty() ? never : queue[std::min(packets_per_ack, queue.size()) - 1].arrives_at;
  }

  // Sends a message of so many packets as fast as pacer and window let it, and waits for the last ack.
  Duration send(std::uint64_t packets) {
    const Time started = now;
    if (in_flight == 0) rate.on_app_limited(0);
    while (packets > 0 || !queue.empty()) {
      const bool window_open = in_flight + datagram <= rate.window_bytes();
      if (packets > 0 && window_open && pacer.ready_at() <= now) {
        put_on_link(datagram, packets == 1);
        pacer.on_sent(now, datagram, rate.pacing_bytes_per_second());
        --packets;
        continue;
      }
      const Time paced = packets > 0 && window_open ? pacer.ready_at() : never;
      if (paced < next_ack_at()) {
        now = paced;
      } else {
        take_ack();
      }
    }
    return now - started;
  }

  // Heartbeats on a path with nothing to send.
  void idle(Duration duration) {
    for (const Time until = now + duration; now < until;) {
      now += 250 * millisecond;
      put_on_link(64, true);
      take_ack();
    }
  }
};

bool within(double value, double target, double relative) { return std::abs(value - target) <= relative * target; }

}  // namespace

HF_CASE(before_any_sample_ten_datagrams_go_out) {
  const RateController rate(RateRule::model, datagram, false);
  HF_EQUAL(rate.window_bytes(), 10u * datagram);
  HF_CHECK(within(rate.pacing_bytes_per_second(), 2.885 * 10 * datagram / 1e-3, 1e-9));
  HF_EQUAL(rate.bandwidth_bytes_per_second(), 0.0);
}

HF_CASE(the_model_converges_on_the_link) {
  for (const double speed : {1.25e6, 125e6, 1.25e9}) {
    for (const Duration round_trip : {100 * microsecond, 2 * millisecond, 40 * millisecond}) {
      for (const std::size_t packets_per_ack : {1u, 8u}) {
        Link link{speed, round_trip, packets_per_ack};
        link.rate.set_receive_window(UINT32_MAX);
        link.send(
            static_cast<std::uint64_t>(speed * 40 * std::max(1e-3, static_cast<double>(round_trip) / 1e9) / datagram) +
            400);
        HF_CHECK(within(link.rate.bandwidth_bytes_per_second(), speed, 0.15));
      }
    }
  }
}

HF_CASE(once_converged_the_queue_stays_short_and_the_link_full) {
  Link link{125e6, 2 * millisecond, 8};
  link.rate.set_receive_window(UINT32_MAX);
  link.send(4000);
  link.most_in_flight = 0;
  const std::uint64_t before = link.delivered;
  const Duration took = link.send(20'000);
  const double goodput = static_cast<double>(link.delivered - before) * 1e9 / static_cast<double>(took);
  HF_CHECK(goodput > 0.9 * 125e6);
  HF_CHECK(static_cast<double>(link.most_in_flight) < 3 * 125e6 * 2e-3);  // BBR's two, and room for lumpy acks
}

HF_CASE(heartbeats_before_the_first_message_do_not_set_the_rate) {
  Link link{125e6, 2 * millisecond};
  link.idle(5 * second);
  HF_EQUAL(link.rate.bandwidth_bytes_per_second(), 0.0);
  HF_EQUAL(link.rate.window_bytes(), 10u * datagram);
  Link fresh{125e6, 2 * millisecond};
  const Duration without = fresh.send(1000);
  HF_CHECK(link.send(1000) <= without + millisecond);
}

HF_CASE(a_pause_with_heartbeats_does_not_forget_the_rate) {
  Link link{125e6, 2 * millisecond, 8};
  link.rate.set_receive_window(UINT32_MAX);
  link.send(5000);
  const double before = link.rate.bandwidth_bytes_per_second();
  link.idle(60 * second);  // 240 rounds of 64 bytes each
  HF_EQUAL(link.rate.bandwidth_bytes_per_second(), before);
  const Duration took = link.send(1000);
  HF_CHECK(took < 3 * 1000 * static_cast<Duration>(datagram * 1e9 / 125e6));
}

HF_CASE(small_messages_far_apart_do_not_lower_the_rate) {
  Link link{125e6, 2 * millisecond, 8};
  link.rate.set_receive_window(UINT32_MAX);
  link.send(5000);
  const double before = link.rate.bandwidth_bytes_per_second();
  for (int i = 0; i < 100; ++i) {
    link.send(1 + i % 4);
    link.idle(250 * millisecond);
  }
  HF_CHECK(link.rate.bandwidth_bytes_per_second() >= 0.9 * before);
}

HF_CASE(an_app_limited_sample_may_raise_the_rate) {
  RateController rate(RateRule::model, datagram, false);
  Time now = second;
  const auto sample = [&](std::uint64_t bytes, Duration interval, bool limited) {
    if (limited) rate.on_app_limited(0);
    const DeliverySnapshot snapshot = rate.on_sent(now, 0);
    rate.on_acknowledged(now + interval, bytes, snapshot, now, interval);
    now += interval;
  };
  sample(10'000, millisecond, false);
  HF_CHECK(within(rate.bandwidth_bytes_per_second(), 10e6, 1e-9));
  sample(5'000, millisecond, true);
  HF_CHECK(within(rate.bandwidth_bytes_per_second(), 10e6, 1e-9));
  sample(20'000, millisecond, true);
  HF_CHECK(within(rate.bandwidth_bytes_per_second(), 20e6, 1e-9));
}

HF_CASE(a_slower_link_is_believed_after_ten_rounds) {
  Link link{125e6, 2 * millisecond, 8};
  link.rate.set_receive_window(UINT32_MAX);
  link.send(5000);
  link.bytes_per_second = 12.5e6;
  link.send(5000);
  HF_CHECK(within(link.rate.bandwidth_bytes_per_second(), 12.5e6, 0.15));
}

HF_CASE(one_terribly_slow_round_does_not_freeze_the_path) {
  // A process stopped for a minute again and again: 10 datagrams in 60 s is no rate to pace by.
  Link link{125e6, 60 * second};
  link.send(20);
  HF_CHECK(link.rate.bandwidth_bytes_per_second() < 1000);
  link.round_trip = 2 * millisecond;
  const Duration took = link.send(1000);
  HF_CHECK(took < second);
}

HF_CASE(round_trips_several_times_the_base_do_not_dry_the_path_up) {
  // The empty path takes a tenth of a millisecond; then the hosts are busy and answer in their own time.
  for (const double stall_us : {200.0, 500.0}) {
    Link link{125e6, 100 * microsecond, 8};
    link.rate.set_receive_window(UINT32_MAX);
    link.send(5000);
    HF_CHECK(link.rate.base_rtt() < 200 * microsecond);
    link.stall_us = stall_us;
    const std::uint64_t before = link.delivered;
    const Duration took = link.send(50'000);
    const double goodput = static_cast<double>(link.delivered - before) * 1e9 / static_cast<double>(took);
    HF_CHECK(goodput > 0.9 * 125e6);
  }
}

// After round trips of `base` on an empty path, ones of `loaded`, of which packets waited `queue` on their way there.
std::uint64_t window_after(Duration base, Duration loaded, Duration queue, Duration tolerable) {
  RateController rate(RateRule::model, datagram, false);
  rate.set_receive_window(UINT32_MAX);
  for (Time now = second; now < 2 * second; now += 20 * millisecond) {
    const bool is_loaded = now > 1500 * millisecond;
    const Duration rtt = is_loaded ? loaded : base;
    const DeliverySnapshot snapshot = rate.on_sent(now, 0);
    rate.on_acknowledged(now + rtt, 100'000, snapshot, now, rtt, is_loaded ? queue : 0);
    HF_EQUAL(rate.base_rtt(), base);
  }
  return rate.window_bytes(tolerable);
}

HF_CASE(the_window_falls_with_queues_on_the_way_there_and_not_with_those_on_the_way_back) {
  const auto window = [](Duration queue) { return window_after(millisecond, 9 * millisecond, queue, millisecond); };
  HF_CHECK(window(8 * millisecond) < window(0) / 2);
  HF_CHECK(window(6 * millisecond) < window(0));
  HF_CHECK(window(8 * millisecond) < window(6 * millisecond));
}

HF_CASE(a_queue_of_four_round_trips_or_as_long_as_is_allowed_is_tolerated) {
  const auto falls = [](Duration base, Duration queue, Duration allowed) {
    return window_after(base, base + queue, queue, allowed) < window_after(base, base + queue, 0, allowed);
  };
  HF_CHECK(!falls(100 * microsecond, 2'990 * microsecond, 3 * millisecond));
  HF_CHECK(falls(100 * microsecond, 3'010 * microsecond, 3 * millisecond));
  HF_CHECK(!falls(2 * millisecond, 7'990 * microsecond, 3 * millisecond));
  HF_CHECK(falls(2 * millisecond, 8'010 * microsecond, 3 * millisecond));
}

HF_CASE(a_window_that_a_queue_made_small_is_back_with_the_first_packet_that_meets_none) {
  RateController rate(RateRule::model, datagram, false);
  rate.set_receive_window(UINT32_MAX);
  Time now = second;
  const auto acknowledge = [&](Duration queue) {
    const DeliverySnapshot snapshot = rate.on_sent(now, 0);
    rate.on_acknowledged(now + millisecond + queue, 100'000, snapshot, now, millisecond + queue, queue);
    now += 20 * millisecond;
    return rate.window_bytes();
  };
  for (int i = 0; i < 30; ++i) acknowledge(0);
  const std::uint64_t empty = acknowledge(0);
  HF_CHECK(acknowledge(12 * millisecond) < empty / 4);
  HF_CHECK(acknowledge(0) >= empty);
}

HF_CASE(a_path_goes_by_its_fair_share_and_not_by_its_own_luck) {
  Link link{125e6, 2 * millisecond, 8};
  link.rate.set_receive_window(UINT32_MAX);
  link.send(5000);
  const double own = link.rate.bandwidth_bytes_per_second();
  const double paced = link.rate.pacing_bytes_per_second();
  const auto window = static_cast<double>(link.rate.window_bytes());
  link.rate.set_fair_bandwidth(2 * own);
  HF_CHECK(within(link.rate.pacing_bytes_per_second(), 2 * paced, 1e-9));
  HF_CHECK(static_cast<double>(link.rate.window_bytes()) > 1.3 * window);
  HF_EQUAL(link.rate.bandwidth_bytes_per_second(), own);  // what it has found itself is not forgotten
  link.rate.set_fair_bandwidth(own / 2);
  HF_CHECK(within(link.rate.pacing_bytes_per_second(), paced / 2, 1e-9));
}

HF_CASE(the_delay_rule_fills_the_link_and_keeps_its_queue_below_the_threshold) {
  Link link{125e6, 2 * millisecond, 8};
  link.rate = RateController(RateRule::delay, datagram, false);
  link.rate.set_receive_window(UINT32_MAX);
  link.send(20'000);
  link.most_in_flight = 0;
  const std::uint64_t before = link.delivered;
  const Duration took = link.send(20'000);
  const double goodput = static_cast<double>(link.delivered - before) * 1e9 / static_cast<double>(took);
  HF_CHECK(goodput > 0.8 * 125e6);
  HF_CHECK(static_cast<double>(link.most_in_flight) < 125e6 * 12e-3);  // 2 ms of path, 10 ms to the high threshold
  link.rate.set_fair_bandwidth(1e9);                                   // means nothing to this rule
  HF_CHECK(link.rate.pacing_bytes_per_second() < 5e8);
}

HF_CASE(the_window_never_exceeds_what_the_receiver_allows) {
  Link link{125e6, 40 * millisecond};
  link.rate.set_receive_window(100'000);
  link.send(3000);
  HF_EQUAL(link.rate.window_bytes(), 100'000u);
  HF_CHECK(link.most_in_flight <= 100'000);
  link.rate.set_receive_window(0);
  HF_EQUAL(link.rate.window_bytes(), std::uint64_t{datagram});  // one datagram, or nothing would ever move again
}

HF_CASE(the_window_is_at_least_four_datagrams_where_the_receiver_allows) {
  Link link{1.25e6, 100 * microsecond};
  link.send(400);
  HF_CHECK(link.rate.window_bytes() >= 4 * datagram);
}

HF_CASE(on_one_host_only_the_receive_buffer_limits) {
  RateController rate(RateRule::model, 65'000, true);
  rate.set_receive_window(700'000);
  HF_EQUAL(rate.window_bytes(), 700'000u);
  HF_CHECK(std::isinf(rate.pacing_bytes_per_second()));
  const DeliverySnapshot snapshot = rate.on_sent(second, 0);
  rate.on_acknowledged(second + millisecond, 1000, snapshot, second, millisecond);
  HF_EQUAL(rate.window_bytes(), 700'000u);
  HF_CHECK(std::isinf(rate.pacing_bytes_per_second()));
}

// -- the pacer --------------------------------------------------------------------------------------------------------

HF_CASE(datagrams_leave_at_the_rate_after_two_milliseconds_of_credit) {
  Pacer pacer(1000);
  const Time start = second;
  const double rate = 10e6;  // 100 us each
  for (int i = 0; i < 20; ++i) {
    HF_CHECK(pacer.ready_at() <= start);
    pacer.on_sent(start, 1000, rate);
  }
  HF_EQUAL(pacer.ready_at(), start);  // twenty used up the slack
  pacer.on_sent(start, 1000, rate);
  HF_EQUAL(pacer.ready_at(), start + 100 * microsecond);
  pacer.on_sent(start + 100 * microsecond, 1000, rate);
  HF_EQUAL(pacer.ready_at(), start + 200 * microsecond);
}

HF_CASE(a_pause_is_worth_two_milliseconds_and_no_more) {
  Pacer pacer(1000);
  pacer.on_sent(second, 1000, 10e6);
  pacer.on_sent(100 * second, 1000, 10e6);
  HF_EQUAL(pacer.ready_at(), 100 * second - 1900 * microsecond);
}

HF_CASE(a_pause_of_a_slow_path_is_worth_one_burst) {
  Pacer pacer(1000);
  pacer.on_sent(100 * second, 1000, 1e6);
  HF_EQUAL(pacer.ready_at(), 100 * second - 3 * millisecond);
}

HF_CASE(without_a_rate_nothing_is_spaced) {
  Pacer pacer(65'000);
  pacer.on_sent(second, 65'000, HUGE_VAL);
  HF_EQUAL(pacer.ready_at(), 0);
}

HF_CASE(a_burst_is_five_datagrams_or_four_milliseconds_and_at_least_one_datagram) {
  const Pacer pacer(1472);
  HF_EQUAL(pacer.burst_bytes(0.1e6), 1472u);
  HF_EQUAL(pacer.burst_bytes(1.25e6), 5000u);
  HF_EQUAL(pacer.burst_bytes(1e12), 5u * 1472);
  HF_EQUAL(Pacer(9000).burst_bytes(1e12), 16'384u);
  HF_EQUAL(pacer.burst_bytes(HUGE_VAL), 65'280u);
  HF_EQUAL(Pacer(65'000).burst_bytes(1e12), 65'000u);
}

HF_TEST_MAIN
