// On/off processes over time, and the capacity bound against plain summation in small steps.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "switch/capacity.h"
#include "switch/timeline.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::lab;

namespace {

constexpr Time start = 500 * second;

Timeline timeline(const Episodes& episodes, std::uint64_t seed = 1) {
  return Timeline(episodes, sim::Random(seed, 2), start);
}

bool near(double value, double wanted, double tolerance) { return std::abs(value - wanted) <= tolerance; }

// Every law of lengths; the third is the profile `stalls`.
constexpr Episodes laws[] = {
    {275, 1725, Lengths::exponential},
    {275, 1725, Lengths::uniform, 0},
    {275, 1725, Lengths::uniform, 0.818},
    {275, 1725, Lengths::uniform, 1},
};
constexpr std::uint64_t num_restarts = 20'000;

double share_of(const Episodes& episodes) { return episodes.on_ms / (episodes.on_ms + episodes.off_ms); }

class Samples {
 public:
  void add(double value) {
    ++count_;
    sum_ += value;
    sum_of_squares_ += value * value;
  }
  // Within four standard errors: there are some 50 such checks here.
  bool mean_is(double wanted) const {
    const double mean = sum_ / count_, variance = sum_of_squares_ / count_ - mean * mean;
    return near(mean, wanted, 4 * std::sqrt(variance / count_));
  }

 private:
  double count_ = 0, sum_ = 0, sum_of_squares_ = 0;
};

// The slow way: what a port can take, summed microsecond by microsecond. Cross traffic first fills a queue that nothing
// drains before the operation is over, then takes its part of the link.
double brute_force_s(PortRates& port, Time from, double bytes, bool uplink) {
  double waiting = 0;
  for (Time at = from; at < from + 100 * second; at += microsecond) {
    const Rates rates = port.at(at);
    double left = rates.down ? 0 : (uplink ? rates.uplink : rates.downlink) * microsecond;
    double cross = rates.down || uplink ? 0 : std::min(rates.cross_traffic * microsecond, left);
    const double deferred = std::min(cross, std::max(0.0, rates.queue_bytes - waiting));
    waiting += deferred;
    left -= cross - deferred;
    bytes -= left;
    if (bytes <= 0) return static_cast<double>(at + microsecond - from) / second;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

HF_CASE(a_timeline_is_on_for_its_share_and_its_lengths) {
  for (const Lengths lengths : {Lengths::exponential, Lengths::uniform}) {
    Timeline line = timeline({3, 7, lengths, 0.5});
    const double share = static_cast<double>(line.time_on(start, start + 100 * second)) / (100.0 * second);
    HF_CHECK(near(share, 0.3, 3 * 0.3 * 0.7 * std::sqrt(2.0 / 10'000)));
    int episodes = 0;
    for (Time at = start; at < start + 100 * second; at = line.next_change(at)) {
      if (!line.on(at)) continue;
      ++episodes;
      const Duration length = line.next_change(at) - at;
      if (lengths == Lengths::uniform && at > start) {
        HF_CHECK(length >= 1500 * microsecond && length <= 4500 * microsecond);
      }
    }
    HF_CHECK(near(episodes, 10'000, 3 * 100));
  }
}

HF_CASE(equal_lengths_are_equal) {
  Timeline line = timeline({2, 5, Lengths::uniform, 0});
  Time at = line.next_change(start);
  for (int i = 0; i < 10; ++i) {
    const Duration length = line.next_change(at) - at;
    HF_EQUAL(length, line.on(at) ? 2 * millisecond : 5 * millisecond);
    at += length;
  }
}

HF_CASE(always_and_never) {
  Timeline always = timeline({});
  HF_CHECK(always.on(start) && always.on(start + 1000 * second));
  HF_EQUAL(always.next_change(start), never);
  Timeline none = timeline({0, 5});
  HF_EQUAL(none.time_on(start, start + 100 * second), 0);
}

HF_CASE(begun_anew_however_often_a_timeline_keeps_its_share) {
  for (const Episodes& episodes : laws) {
    // Shorter than an episode, as long as one, longer, and longer than an episode with its gap.
    for (const double turn_ms : {100.0, 275.0, 600.0, 2500.0}) {
      const auto turn = static_cast<Duration>(turn_ms * millisecond);
      Samples share, on_at_the_end;
      for (std::uint64_t seed = 0; seed < num_restarts; ++seed) {
        Timeline line = timeline(episodes, seed);
        share.add(static_cast<double>(line.time_on(start, start + turn)) / static_cast<double>(turn));
        on_at_the_end.add(line.on(start + turn));
      }
      HF_CHECK(share.mean_is(share_of(episodes)));
      HF_CHECK(on_at_the_end.mean_is(share_of(episodes)));
    }
  }
}

HF_CASE(what_is_left_of_the_stretch_in_progress_counts_long_ones_more_often) {
  for (const Episodes& episodes : laws) {
    Samples on, rest_of_on_ms, rest_of_off_ms;
    for (std::uint64_t seed = 0; seed < num_restarts; ++seed) {
      Timeline line = timeline(episodes, seed);
      const double rest_ms = static_cast<double>(line.next_change(start) - start) / millisecond;
      on.add(line.on(start));
      (line.on(start) ? rest_of_on_ms : rest_of_off_ms).add(rest_ms);
    }
    // Renewal theory: the mean of what is left is the mean square of a length over twice its mean.
    const double variation = episodes.lengths == Lengths::exponential ? 1 : std::pow(episodes.spread_ratio, 2) / 3;
    HF_CHECK(on.mean_is(share_of(episodes)));
    HF_CHECK(rest_of_on_ms.mean_is(episodes.on_ms * (1 + variation) / 2));
    HF_CHECK(rest_of_off_ms.mean_is(episodes.off_ms * (1 + variation) / 2));
  }
}

HF_CASE(questions_about_the_past_and_the_future_have_one_answer) {
  Timeline line = timeline({1, 2});
  std::vector<bool> first;
  for (Time at = start; at < start + second; at += 100 * microsecond) first.push_back(line.on(at));
  line.on(start + 600 * second);  // looking far ahead forgets nothing
  std::size_t i = 0;
  bool same = true;
  for (Time at = start; at < start + second; at += 100 * microsecond) same = same && line.on(at) == first[i++];
  HF_CHECK(same);
  line.forget_before(start + second / 2);
  for (Time at = start + second / 2; at < start + second; at += 100 * microsecond) {
    same = same && line.on(at) == first[static_cast<std::size_t>((at - start) / (100 * microsecond))];
  }
  HF_CHECK(same);
}

HF_CASE(an_undisturbed_port_carries_its_rate) {
  Fabric fabric(2, 1, start);
  Conditions conditions(2);
  conditions.ports[0].uplink_bits_per_s = 80e6;
  conditions.ports[1].downlink_bits_per_s = 40e6;
  fabric.configure(start, conditions);
  const auto bound = [&](std::uint64_t out, std::uint64_t in) {
    const std::vector<std::uint64_t> bytes_out = {out, 0}, bytes_in = {0, in};
    return capacity_bound_s(fabric, start, start, bytes_out, bytes_in);
  };
  HF_CHECK(near(bound(1'000'000, 0), 0.1, 1e-12));
  HF_CHECK(near(bound(1'000'000, 400'000), 0.1, 1e-12));
  HF_CHECK(near(bound(1'000'000, 600'000), 0.12, 1e-12));
  HF_EQUAL(bound(0, 0), 0.0);
}

HF_CASE(the_bound_is_what_summation_gives) {
  Fabric fabric(1, 77, start);
  Conditions conditions(1);
  PortConditions& port = conditions.ports[0];
  port.queue_bytes = 64 << 10;
  port.cross_traffic_share = 0.6;
  port.cross_traffic = {4, 6};
  port.slow_down_ratio = 3;
  port.slow_downs = {7, 13};
  port.frozen = true;
  port.freezes = {5, 40, Lengths::uniform, 0.9};
  fabric.configure(start, conditions);
  fabric.advance(start + 300 * millisecond);
  port.cross_traffic_share = 1.4;  // more than there is: nothing is left, not less
  port.uplink_bits_per_s = 100e6;
  fabric.configure(start + 300 * millisecond, conditions);
  fabric.advance(start + 500 * millisecond);
  port.down = true;
  fabric.configure(start + 500 * millisecond, conditions);
  fabric.advance(start + 520 * millisecond);
  port.down = false;
  fabric.configure(start + 520 * millisecond, conditions);
  const Time now = start + second;
  fabric.advance(now);
  for (const Time from : {start, start + 123'456'789, start + 290 * millisecond, start + 510 * millisecond, now}) {
    for (const std::uint64_t bytes : {10'000u, 1'000'000u, 9'000'000u}) {
      const std::vector<std::uint64_t> some = {bytes}, none = {0};
      const double out = capacity_bound_s(fabric, now, from, some, none);
      const double in = capacity_bound_s(fabric, now, from, none, some);
      // Each step of the slow way may miss one change of the rate: 60 changes a second.
      HF_CHECK(near(out, brute_force_s(fabric.rates(0), from, static_cast<double>(bytes), true), 1e-4 + out * 1e-4));
      HF_CHECK(near(in, brute_force_s(fabric.rates(0), from, static_cast<double>(bytes), false), 1e-4 + in * 1e-4));
      HF_EQUAL(capacity_bound_s(fabric, now, from, some, some), std::max(in, out));
    }
  }
}

HF_CASE(no_traffic_through_the_fabric_beats_the_bound) {
  double closest = 2;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Fabric fabric(2, seed, start);
    Conditions conditions(2);
    conditions.ports[1].cross_traffic_share = 0.9;
    conditions.ports[1].cross_traffic = {5, 5};
    conditions.ports[1].slow_down_ratio = 2;
    conditions.ports[1].slow_downs = {20, 20};
    conditions.ports[1].queue_bytes = seed % 2 == 0 ? 30'000 : 3'000'000;
    fabric.configure(start, conditions);
    const Time begin = start + 50 * millisecond;
    for (std::uint32_t i = 0; i < 2000; ++i) fabric.admit(begin, {i, 1500, 0, 1});
    fabric.advance(begin + 10 * second);
    const auto arrived = fabric.deliveries();
    for (std::size_t i = 99; i < arrived.size(); i += 100) {
      const std::uint64_t bytes = 1500 * (i + 1);
      const std::vector<std::uint64_t> out = {bytes, 0}, in = {0, bytes};
      const double bound = capacity_bound_s(fabric, begin + 10 * second, begin, out, in);
      const double took = static_cast<double>(arrived[i].due - begin) / second;
      HF_CHECK(took >= bound);
      closest = std::min(closest, took / bound);
    }
  }
  HF_CHECK(closest < 1.02);  // a bound that is never approached says little
}

HF_CASE(a_link_that_is_gone_has_no_bound_and_old_questions_are_refused) {
  Fabric fabric(1, 1, start);
  Conditions conditions(1);
  conditions.ports[0].down = true;
  fabric.configure(start, conditions);
  const std::vector<std::uint64_t> some = {1000}, none = {0};
  HF_CHECK(std::isinf(capacity_bound_s(fabric, start, start, some, none)));
  HF_CHECK(std::isinf(capacity_bound_s(fabric, start, start, none, some)));
  const Time now = start + 200 * second;
  fabric.advance(now);
  HF_EQUAL(capacity_bound_s(fabric, now, now - 120 * second, none, none), 0.0);
  HF_THROWS(capacity_bound_s(fabric, now, now - 121 * second, some, none), std::invalid_argument);
  HF_THROWS(capacity_bound_s(fabric, now, now, {}, none), std::invalid_argument);
}

HF_CASE(who_was_frozen_for_how_long_is_remembered) {
  Fabric fabric(2, 1, start);
  Conditions conditions(2);
  conditions.ports[1].frozen = true;
  conditions.ports[1].freezes = {200, 300, Lengths::uniform, 0};
  fabric.configure(start, conditions);
  const Time end = start + 10 * second;
  fabric.advance(end);
  const std::vector<double> all = frozen_s(fabric, end, start, end);
  HF_EQUAL(all[0], 0.0);
  HF_CHECK(near(all[1], 4, 0.2 + 1e-9));
  double in_parts = 0, longest = 0;
  for (Time at = start; at < end; at += 10 * millisecond) {
    const double part = frozen_s(fabric, end, at, at + 10 * millisecond)[1];
    in_parts += part;
    longest = std::max(longest, part);
  }
  HF_CHECK(near(in_parts, all[1], 1e-6));
  HF_CHECK(near(longest, 0.01, 1e-9));
  HF_THROWS(frozen_s(fabric, end, end - 121 * second, end), std::invalid_argument);
}

HF_TEST_MAIN
