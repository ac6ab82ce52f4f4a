#include "switch/capacity.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace holdfast::lab {
namespace {

constexpr Duration horizon = 600 * second;

// What a link could have carried by some time, apart from cross traffic.
struct Carried {
  double service = 0;        // bytes that crossed the link in all
  double cross_traffic = 0;  // that got into the queue

  // Of the cross traffic as much as the queue holds may still wait, behind everything else.
  double ours(double queue_bytes) const { return service - std::max(0.0, cross_traffic - queue_bytes); }
};

struct Flow {
  double service = 0;  // bytes per nanosecond
  double cross_traffic = 0;
};

Flow uplink_flow(const Rates& rates) { return {rates.down ? 0 : rates.uplink, 0}; }
Flow downlink_flow(const Rates& rates) {
  if (rates.down) return {};
  return {rates.downlink, std::min(rates.cross_traffic, rates.downlink)};  // what is more finds the queue full
}

// Time until `carried` plus `flow` is enough for `bytes`. Until the queue could be full of cross traffic all of the
// service is ours, then what cross traffic leaves.
double nanoseconds_within(const Carried& carried, const Flow& flow, double queue_bytes, double bytes) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  const double missing = bytes - carried.ours(queue_bytes);
  if (missing <= 0) return 0;
  const double room = std::max(0.0, queue_bytes - carried.cross_traffic);
  const double until_full = flow.cross_traffic > 0 ? room / flow.cross_traffic : infinite;
  if (flow.service > 0 && missing / flow.service <= until_full) return missing / flow.service;
  const double left = flow.service - flow.cross_traffic;
  return left > 0 ? until_full + (missing - flow.service * until_full) / left : infinite;
}

template <class FlowOf>
double nanoseconds_to_carry(PortRates& port, Time start, std::uint64_t bytes, FlowOf flow_of) {
  Carried carried;
  for (Time at = start; bytes > 0 && at < start + horizon;) {
    const Rates rates = port.at(at);
    const Flow flow = flow_of(rates);
    const double stretch = static_cast<double>(rates.until - at);
    const double needed = nanoseconds_within(carried, flow, rates.queue_bytes, static_cast<double>(bytes));
    if (needed <= stretch) return static_cast<double>(at - start) + needed;
    if (rates.until == never) break;
    carried.service += flow.service * stretch;
    carried.cross_traffic += flow.cross_traffic * stretch;
    at = rates.until;
  }
  return bytes > 0 ? std::numeric_limits<double>::infinity() : 0;
}

void require_remembered(Time now, Time start) {
  if (start < now - remembered) throw std::invalid_argument("the switch looks back 120 s, not further");
}

}  // namespace

double capacity_bound_s(Fabric& fabric, Time now, Time start, std::span<const std::uint64_t> bytes_out,
                        std::span<const std::uint64_t> bytes_in) {
  if (bytes_out.size() != fabric.num_ports() || bytes_in.size() != fabric.num_ports()) {
    throw std::invalid_argument("the capacity bound needs one number of bytes per port and direction");
  }
  require_remembered(now, start);
  double longest = 0;
  for (std::size_t i = 0; i < fabric.num_ports(); ++i) {
    PortRates& port = fabric.rates(i);
    longest = std::max(longest, nanoseconds_to_carry(port, start, bytes_out[i], uplink_flow));
    longest = std::max(longest, nanoseconds_to_carry(port, start, bytes_in[i], downlink_flow));
  }
  return longest / static_cast<double>(second);
}

std::vector<double> frozen_s(Fabric& fabric, Time now, Time start, Time end) {
  require_remembered(now, start);
  std::vector<double> seconds(fabric.num_ports(), 0.0);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    for (Time at = start; at < end;) {
      const Rates rates = fabric.rates(i).at(at);
      const Time until = std::min(rates.until, end);
      if (rates.frozen) seconds[i] += static_cast<double>(until - at) / second;
      at = until;
    }
  }
  return seconds;
}

}  // namespace holdfast::lab
