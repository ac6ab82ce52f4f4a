#include "switch/fabric.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace holdfast::lab {
namespace {

// The host's own qdisc is the limit of the uplink: one in here would turn the switch's own delays into loss.
constexpr double no_limit = std::numeric_limits<double>::infinity();

Duration from_ms(double ms) { return std::llround(ms * static_cast<double>(millisecond)); }

double limit_of(PortRates& rates) { return static_cast<double>(rates.conditions().queue_bytes); }

}  // namespace

Fabric::Port::Port(std::uint64_t seed, std::size_t index, Time now)
    : rates(seed, index, now, {}),
      uplink(rates, LinkQueue::Direction::uplink, now),
      downlink(rates, LinkQueue::Direction::downlink, now) {}

Fabric::Path::Path(std::uint64_t seed, std::size_t index, Time now)
    : subject(index),
      burst_source(seed, Stream::bursts, index),
      tail_source(seed, Stream::tails, index),
      random(random_for(seed, Stream::losses, index, 0)) {
  follow(now, {});
}

void Fabric::Path::follow(Time now, const PathConditions& wanted) {
  conditions = wanted;
  bursts = burst_source.follow(now, wanted.bursts);
  tails = tail_source.follow(now, wanted.tails);
}

void Fabric::Path::draw_anew(Time now, std::uint64_t seed) {
  bursts = burst_source.draw_anew(now, seed);
  tails = tail_source.draw_anew(now, seed);
  random = random_for(seed, Stream::losses, subject, 0);
}

Fabric::Fabric(std::size_t num_ports, std::uint64_t seed, Time now)
    : now_(now), forget_at_(now + second), scheduled_(num_ports * (num_ports + 2), never) {
  for (std::size_t i = 0; i < num_ports; ++i) ports_.push_back(std::make_unique<Port>(seed, i, now));
  for (std::size_t i = 0; i < num_ports * num_ports; ++i) paths_.push_back(std::make_unique<Path>(seed, i, now));
}

void Fabric::configure(Time now, const Conditions& conditions) {
  if (conditions.ports.size() != ports_.size()) throw std::invalid_argument("conditions for another number of ports");
  conditions.validate();
  advance(now);
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    if (conditions.ports[i] == ports_[i]->rates.conditions()) continue;
    change_rates(now, i, [&](PortRates& rates) { rates.set(now, conditions.ports[i]); });
  }
  for (std::size_t i = 0; i < paths_.size(); ++i) paths_[i]->follow(now, conditions.paths[i]);
}

void Fabric::draw_anew(Time now, std::uint64_t seed) {
  advance(now);
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    change_rates(now, i, [&](PortRates& rates) { rates.draw_anew(now, seed); });
  }
  for (const auto& path : paths_) path->draw_anew(now, seed);
}

// What waits is served at the old rates until `now`, and knows its new time.
template <class Change>
void Fabric::change_rates(Time now, std::size_t index, Change change) {
  Port& port = *ports_[index];
  port.uplink.advance(now, no_limit);
  port.downlink.advance(now, limit_of(port.rates));
  change(port.rates);
  schedule(index, port.uplink.next_event());
  schedule(downlink_station(index), port.downlink.next_event());
}

void Fabric::admit(Time now, const Parcel& parcel) {
  advance(now);
  Port& port = *ports_[parcel.from];
  ++port.report.packets_from_host;
  port.report.bytes_from_host += parcel.bytes;
  ++path(parcel.from, parcel.to).num_inside;
  port.uplink.advance(now, no_limit);
  if (port.rates.at(now).frozen && !port.uplink.has_room(parcel.bytes, limit_of(port.rates))) {
    lose(parcel, parcel.from, Loss::frozen);
    return;
  }
  const bool first = port.uplink.empty();
  port.uplink.push(parcel);
  if (first) schedule(parcel.from, port.uplink.next_event());
}

void Fabric::advance(Time now) {
  while (next_event() <= now) {
    const Event event = events_.top();
    events_.pop();
    scheduled_[event.station] = never;
    happen(event);
  }
  now_ = std::max(now_, now);
  if (now_ >= forget_at_) forget();
}

void Fabric::forget() {
  forget_at_ = now_ + second;
  for (const auto& port : ports_) port->rates.forget(now_);
  for (const auto& path : paths_) {
    path->bursts->forget_before(now_);
    path->tails->forget_before(now_);
  }
}

Time Fabric::next_event() {
  while (!events_.empty() && scheduled_[events_.top().station] != events_.top().at) events_.pop();
  return events_.empty() ? never : events_.top().at;
}

void Fabric::schedule(std::size_t station, Time at) {
  if (scheduled_[station] == at) return;
  scheduled_[station] = at;
  if (at != never) events_.push({at, station});
}

void Fabric::happen(const Event& event) {
  const std::size_t num_ports = ports_.size();
  if (event.station < num_ports) {
    run_uplink(event.at, *ports_[event.station]);
    schedule(event.station, ports_[event.station]->uplink.next_event());
  } else if (event.station < downlink_station(0)) {
    Path& path = *paths_[event.station - num_ports];
    run_path(event.at, path);
    if (!path.under_way.empty()) schedule(event.station, path.under_way.front().due);
  } else {
    Port& port = *ports_[event.station - downlink_station(0)];
    run_downlink(event.at, port);
    schedule(event.station, port.downlink.next_event());
  }
}

void Fabric::run_uplink(Time at, Port& port) {
  port.uplink.advance(at, no_limit);
  for (Parcel parcel; port.uplink.pop(parcel);) {
    if (port.rates.at(at).down) {
      lose(parcel, parcel.from, Loss::down);
    } else {
      enter_path(at, parcel);
    }
  }
}

void Fabric::enter_path(Time at, const Parcel& parcel) {
  Path& path = this->path(parcel.from, parcel.to);
  const PathConditions& conditions = path.conditions;
  if (conditions.burst_loss_ratio > 0 && path.bursts->on(at) && path.random.chance(conditions.burst_loss_ratio)) {
    lose(parcel, parcel.from, Loss::burst);
    return;
  }
  if (path.random.chance(conditions.loss_ratio)) {
    lose(parcel, parcel.from, Loss::random);
    return;
  }
  Duration delay = from_ms(conditions.delay_ms);
  if (conditions.tail_delay_ms > 0 && path.tails->on(at)) delay += from_ms(conditions.tail_delay_ms);
  path.last_arrival = std::max(path.last_arrival, at + delay);
  path.under_way.push_back({path.last_arrival, parcel});
  if (path.under_way.size() == 1) schedule(path_station(parcel.from, parcel.to), path.last_arrival);
}

void Fabric::run_path(Time at, Path& path) {
  while (!path.under_way.empty() && path.under_way.front().due <= at) {
    const Parcel parcel = path.under_way.front().parcel;
    path.under_way.pop_front();
    Port& port = *ports_[parcel.to];
    const double limit = limit_of(port.rates);
    port.downlink.advance(at, limit);
    const Rates& rates = port.rates.at(at);
    if (rates.down) {
      lose(parcel, parcel.to, Loss::down);
    } else if (!port.downlink.has_room(parcel.bytes, limit)) {
      lose(parcel, parcel.to, rates.frozen ? Loss::frozen : Loss::queue);
    } else {
      const bool first = port.downlink.empty();
      port.downlink.push(parcel);
      if (first) schedule(downlink_station(parcel.to), port.downlink.next_event());
    }
  }
}

void Fabric::run_downlink(Time at, Port& port) {
  port.downlink.advance(at, limit_of(port.rates));
  for (Parcel parcel; port.downlink.pop(parcel);) {
    if (port.rates.at(at).down) {
      lose(parcel, parcel.to, Loss::down);
      continue;
    }
    ++port.report.packets_to_host;
    port.report.bytes_to_host += parcel.bytes;
    --path(parcel.from, parcel.to).num_inside;
    deliveries_.push_back({at, parcel});
  }
}

void Fabric::lose(const Parcel& parcel, std::size_t port, Loss cause) {
  count_loss(port, cause);
  --path(parcel.from, parcel.to).num_inside;
  lost_packets_.push_back(parcel.packet);
}

PortReport Fabric::port_report(std::size_t index) {
  Port& port = *ports_[index];
  port.downlink.advance(now_, limit_of(port.rates));
  PortReport report = port.report;
  report.queue_peak_bytes = static_cast<std::uint64_t>(std::llround(port.downlink.peak_bytes()));
  report.uplink_peak_bytes = static_cast<std::uint64_t>(std::llround(port.uplink.peak_bytes()));
  report.cross_traffic_bytes = port.downlink.cross_traffic_bytes();
  return report;
}

void Fabric::reset_counters() {
  for (const auto& port : ports_) {
    port->downlink.advance(now_, limit_of(port->rates));
    port->report = {};
    port->uplink.reset_counters();
    port->downlink.reset_counters();
  }
}

}  // namespace holdfast::lab
