#include "switch/port_rates.h"

#include <algorithm>

namespace holdfast::lab {

sim::Random random_for(std::uint64_t seed, Stream stream, std::size_t subject, std::uint32_t revision) {
  return sim::Random(seed, static_cast<std::uint64_t>(stream) << 56 | std::uint64_t{revision} << 24 | subject);
}

std::shared_ptr<Timeline> EpisodeSource::follow(Time now, const Episodes& episodes) {
  if (timeline_ && episodes == episodes_) return timeline_;
  episodes_ = episodes;
  return begin(now);
}

std::shared_ptr<Timeline> EpisodeSource::draw_anew(Time now, std::uint64_t seed) {
  seed_ = seed;
  revision_ = 0;
  return begin(now);
}

std::shared_ptr<Timeline> EpisodeSource::begin(Time now) {
  timeline_ = std::make_shared<Timeline>(episodes_, random_for(seed_, stream_, subject_, revision_++), now);
  return timeline_;
}

PortRates::PortRates(std::uint64_t seed, std::size_t port, Time now, const PortConditions& conditions)
    : cross_traffic_(seed, Stream::cross_traffic, port),
      slow_downs_(seed, Stream::slow_downs, port),
      freezes_(seed, Stream::freezes, port) {
  set(now, conditions);
}

void PortRates::set(Time now, const PortConditions& conditions) {
  eras_.push_back({now, conditions, cross_traffic_.follow(now, conditions.cross_traffic),
                   slow_downs_.follow(now, conditions.slow_downs), freezes_.follow(now, conditions.freezes)});
  found_ = look_up(now);
}

// An era of its own, because what was before is remembered as it was.
void PortRates::draw_anew(Time now, std::uint64_t seed) {
  eras_.push_back({now, conditions(), cross_traffic_.draw_anew(now, seed), slow_downs_.draw_anew(now, seed),
                   freezes_.draw_anew(now, seed)});
  found_ = look_up(now);
}

void PortRates::forget(Time now) {
  const Time horizon = now - remembered;
  while (eras_.size() > 1 && eras_[1].start < horizon) eras_.pop_front();
  for (const Era& era : eras_) {
    era.cross_traffic->forget_before(horizon);
    era.slow_downs->forget_before(horizon);
    era.freezes->forget_before(horizon);
  }
}

Rates PortRates::look_up(Time at) {
  std::size_t index = eras_.size() - 1;
  while (index > 0 && eras_[index].start > at) --index;
  const Era& era = eras_[index];
  const PortConditions& conditions = era.conditions;
  Rates rates;
  rates.from = at;
  rates.until = index + 1 < eras_.size() ? eras_[index + 1].start : never;
  rates.queue_bytes = static_cast<double>(conditions.queue_bytes);
  rates.down = conditions.down;
  // A strength without effect does not ask its timeline: it would only cut time into more pieces.
  const auto holds = [&](bool matters, Timeline& timeline) {
    if (!matters) return false;
    rates.until = std::min(rates.until, timeline.next_change(at));
    return timeline.on(at);
  };
  const bool slowed = holds(conditions.slow_down_ratio > 1, *era.slow_downs);
  const bool crossed = holds(conditions.cross_traffic_share > 0, *era.cross_traffic);
  rates.frozen = holds(conditions.frozen, *era.freezes);
  if (rates.frozen) return rates;
  constexpr double bytes_per_ns = 1.0 / 8 / second;
  rates.uplink = conditions.uplink_bits_per_s * bytes_per_ns;
  rates.downlink = conditions.downlink_bits_per_s * bytes_per_ns / (slowed ? conditions.slow_down_ratio : 1);
  rates.cross_traffic = crossed ? rates.downlink * conditions.cross_traffic_share : 0;
  return rates;
}

}  // namespace holdfast::lab
