// The lab's switch. `run` releases the GIL; everything else is short.
#include <arpa/inet.h>
#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "switch/fabric.h"
#include "switch/pump.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace holdfast;

namespace {

std::map<std::string, std::uint64_t> named(const lab::Losses& losses) {
  std::map<std::string, std::uint64_t> counts;
  for (std::size_t i = 0; i < losses.size(); ++i) counts[std::string(lab::loss_names[i])] = losses[i];
  return counts;
}

std::uint32_t parse_ipv4(const std::string& text) {
  in_addr address{};
  if (inet_pton(AF_INET, text.c_str(), &address) != 1) throw std::invalid_argument("not an IPv4 address: " + text);
  return ntohl(address.s_addr);
}

lab::Pump* make_switch(std::vector<int> descriptors, const std::vector<std::string>& addresses, std::uint64_t seed) {
  std::vector<std::uint32_t> parsed;
  for (const std::string& address : addresses) parsed.push_back(parse_ipv4(address));
  return new lab::Pump(std::move(descriptors), std::move(parsed), seed);
}

// Immutable containers of live elements: an assignment to an item would otherwise be lost without a word.
nb::tuple ports_of(nb::handle_t<lab::Conditions> self) {
  nb::list ports;
  for (lab::PortConditions& port : nb::cast<lab::Conditions&>(self).ports) {
    ports.append(nb::cast(port, nb::rv_policy::reference_internal, self));
  }
  return nb::tuple(ports);
}

nb::object paths_of(nb::handle_t<lab::Conditions> self) {
  auto& conditions = nb::cast<lab::Conditions&>(self);
  nb::dict paths;
  for (std::size_t from = 0; from < conditions.ports.size(); ++from) {
    for (std::size_t to = 0; to < conditions.ports.size(); ++to) {
      if (from == to) continue;
      paths[nb::make_tuple(from, to)] = nb::cast(conditions.path(from, to), nb::rv_policy::reference_internal, self);
    }
  }
  return nb::module_::import_("types").attr("MappingProxyType")(paths);
}

void bind_conditions(nb::module_& module) {
  nb::enum_<lab::Lengths>(module, "Lengths", "How the lengths of episodes and of the gaps between them are spread.")
      .value("exponential", lab::Lengths::exponential)
      .value("uniform", lab::Lengths::uniform);

  nb::class_<lab::Episodes>(module, "Episodes",
                            "Something that comes and goes by the clock. Without a gap it is always there.")
      .def(
          "__init__",
          [](lab::Episodes* self, double on_ms, double off_ms, lab::Lengths lengths, double spread_ratio) {
            new (self) lab::Episodes{on_ms, off_ms, lengths, spread_ratio};
          },
          "on_ms"_a = 0.0, "off_ms"_a = 0.0, "lengths"_a = lab::Lengths::exponential, "spread_ratio"_a = 0.0)
      .def_rw("on_ms", &lab::Episodes::on_ms, "Mean length of an episode.")
      .def_rw("off_ms", &lab::Episodes::off_ms, "Mean gap between two; 0: one episode that never ends.")
      .def_rw("lengths", &lab::Episodes::lengths)
      .def_rw("spread_ratio", &lab::Episodes::spread_ratio,
              "Uniform lengths lie in mean x (1 - spread) to mean x (1 + spread); 0: all equal.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));

  nb::class_<lab::PortConditions>(module, "PortConditions",
                                  "One host's link to the switch, and the switch's queue towards the host.")
      .def_rw("uplink_bits_per_s", &lab::PortConditions::uplink_bits_per_s, "Host to switch; never drops.")
      .def_rw("downlink_bits_per_s", &lab::PortConditions::downlink_bits_per_s, "Switch to host.")
      .def_rw("queue_bytes", &lab::PortConditions::queue_bytes, "Towards the host, drop-tail, cross traffic included.")
      .def_rw("cross_traffic_share", &lab::PortConditions::cross_traffic_share,
              "Of the downlink's rate, during `cross_traffic`; it comes first, and fills the queue.")
      .def_rw("cross_traffic", &lab::PortConditions::cross_traffic)
      .def_rw("slow_down_ratio", &lab::PortConditions::slow_down_ratio,
              "Divides the downlink's rate, during `slow_downs`.")
      .def_rw("slow_downs", &lab::PortConditions::slow_downs)
      .def_rw("frozen", &lab::PortConditions::frozen,
              "During `freezes` neither direction moves; each holds up to `queue_bytes` and drops the rest.")
      .def_rw("freezes", &lab::PortConditions::freezes)
      .def_rw("down", &lab::PortConditions::down, "Everything to and from the host is lost.");

  nb::class_<lab::PathConditions>(module, "PathConditions", "From one host to another, one way.")
      .def_rw("loss_ratio", &lab::PathConditions::loss_ratio, "Each packet by itself.")
      .def_rw("burst_loss_ratio", &lab::PathConditions::burst_loss_ratio,
              "During `bursts`: with their gaps a Gilbert-Elliott channel on a clock.")
      .def_rw("bursts", &lab::PathConditions::bursts)
      .def_rw("delay_ms", &lab::PathConditions::delay_ms)
      .def_rw("tail_delay_ms", &lab::PathConditions::tail_delay_ms,
              "Added to the delay during `tails`; packets never overtake each other.")
      .def_rw("tails", &lab::PathConditions::tails);

  nb::class_<lab::Conditions>(module, "Conditions", "What the network is like: every port and every path.")
      .def(nb::init<std::size_t>(), "num_ports"_a)
      .def_prop_ro("ports", &ports_of, nb::sig("def ports(self) -> tuple[PortConditions, ...]"),
                   "By port; change the elements in place.")
      .def_prop_ro("paths", &paths_of,
                   nb::sig("def paths(self) -> collections.abc.Mapping[tuple[int, int], PathConditions]"),
                   "By (from, to); change the elements in place.")
      .def("validate", &lab::Conditions::validate, "Raises ValueError that names what is out of its range.");
}

void bind_report(nb::module_& module) {
  nb::class_<lab::PortReport>(module, "PortReport", "Traffic of one port, in IP packets of at most the MTU.")
      .def_ro("packets_from_host", &lab::PortReport::packets_from_host)
      .def_ro("bytes_from_host", &lab::PortReport::bytes_from_host)
      .def_ro("packets_to_host", &lab::PortReport::packets_to_host)
      .def_ro("bytes_to_host", &lab::PortReport::bytes_to_host)
      .def_ro("queue_peak_bytes", &lab::PortReport::queue_peak_bytes, "Towards the host, cross traffic included.")
      .def_ro("uplink_peak_bytes", &lab::PortReport::uplink_peak_bytes, "Waiting to leave the host's link.")
      .def_ro("cross_traffic_bytes", &lab::PortReport::cross_traffic_bytes, "Offered.")
      .def_prop_ro(
          "losses", [](const lab::PortReport& port) { return named(port.losses); },
          "Packets by cause, lost at this port or on the paths from it.");

  nb::class_<lab::SwitchReport>(module, "SwitchReport", "What the switch did since it was last reset.")
      .def_ro("duration_s", &lab::SwitchReport::duration_s)
      .def_ro("ports", &lab::SwitchReport::ports)
      .def_prop_ro(
          "losses", [](const lab::SwitchReport& report) { return named(report.losses); },
          "Packets by cause: random, burst, queue, down, frozen, unroutable, malformed, refused.")
      .def_ro("lateness_p50_us", &lab::SwitchReport::lateness_p50_us,
              "How long after its due time a packet was handed to its host's kernel.")
      .def_ro("lateness_p99_us", &lab::SwitchReport::lateness_p99_us)
      .def_ro("lateness_p999_us", &lab::SwitchReport::lateness_p999_us)
      .def_ro("lateness_max_us", &lab::SwitchReport::lateness_max_us)
      .def_ro("lateness_counts", &lab::SwitchReport::lateness_counts,
              "(at most so many microseconds late, so many packets), ascending.")
      .def_ro("realtime", &lab::SwitchReport::realtime, "The thread was granted real-time scheduling.")
      .def_ro("cpu_s", &lab::SwitchReport::cpu_s, "Of the thread.")
      .def_ro("num_wakeups", &lab::SwitchReport::num_wakeups)
      .def_ro("num_reads", &lab::SwitchReport::num_reads)
      .def_ro("num_writes", &lab::SwitchReport::num_writes);
}

using Passage = std::tuple<Time, std::uint32_t, bool>;  // when, which packet, whether it arrived

// Until a packet has come out or is lost, so that whoever sends can answer to it at that very time.
std::vector<Passage> run_until_passage(lab::Fabric& fabric, Time limit) {
  std::vector<Passage> passages;
  while (passages.empty()) {
    const Time now = fabric.next_event();
    if (now > limit) break;
    fabric.advance(now);
    for (const lab::Delivery& delivery : fabric.deliveries()) {
      passages.emplace_back(delivery.due, delivery.parcel.packet, true);
    }
    for (const std::uint32_t packet : fabric.lost_packets()) passages.emplace_back(now, packet, false);
    fabric.deliveries().clear();
    fabric.lost_packets().clear();
  }
  return passages;
}

void admit(lab::Fabric& fabric, Time now, std::uint16_t sender, std::uint16_t receiver, std::uint32_t packet,
           std::uint32_t num_bytes) {
  if (sender >= fabric.num_ports() || receiver >= fabric.num_ports() || sender == receiver) {
    throw std::invalid_argument("a packet goes from one port of the fabric to another");
  }
  fabric.admit(now, {packet, num_bytes, sender, receiver});
}

void bind_fabric(nb::module_& module) {
  nb::class_<lab::Fabric>(module, "Fabric", "The switch as a pure machine: no clock, no thread, no packet contents.")
      .def(nb::init<std::size_t, std::uint64_t, Time>(), nb::kw_only(), "num_ports"_a, "seed"_a, "now_ns"_a)
      .def("configure", &lab::Fabric::configure, "now_ns"_a, "conditions"_a)
      .def("admit", &admit, "now_ns"_a, "sender"_a, "receiver"_a, "packet"_a, "num_bytes"_a,
           "A host sends a packet; `now_ns` never goes back.")
      .def("run_until_passage", &run_until_passage, "limit_ns"_a,
           "Goes on to the next time at which packets come out or are lost, but not beyond the limit. Each one: when, "
           "which packet, whether it arrived. Empty: nothing until the limit.");
}

}  // namespace

void bind_switch(nb::module_& module) {
  bind_conditions(module);
  bind_report(module);
  bind_fabric(module);
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<lab::Pump>(module, "Switch", "A network switch between TUN devices. One thread runs it.")
      .def(nb::new_(&make_switch), nb::kw_only(), "descriptors"_a, "addresses"_a, "seed"_a,
           "Port i is the TUN device behind descriptors[i], which stays the caller's; addresses[i] is its host.")
      .def("configure", &lab::Pump::configure, "conditions"_a, released(), "Takes effect at once.")
      .def("draw_anew", &lab::Pump::draw_anew, "seed"_a, released(),
           "All that is random is drawn anew from this seed, from now on: episodes and losses, whatever was before.")
      .def("run", &lab::Pump::run, released(), "Until `stop`, which may come first.")
      .def("stop", &lab::Pump::stop, released())
      .def("report", &lab::Pump::report, released(), "Counters and lateness since the last reset.")
      .def("reset", &lab::Pump::reset, released())
      .def("capacity_bound_s", &lab::Pump::capacity_bound_s, "start_ns"_a, "bytes_out"_a, "bytes_in"_a, released(),
           "The least seconds from start_ns (time.monotonic_ns) in which every port could have sent and received so "
           "many bytes, with the capacity that cross traffic, slow-downs and freezes left. Looks back 120 s.")
      .def("frozen_s", &lab::Pump::frozen_s, "start_ns"_a, "end_ns"_a, released(),
           "For how many seconds between the two (time.monotonic_ns) each port was frozen. Looks back 120 s.");
}
