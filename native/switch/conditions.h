// What the network of the lab is like: all of it can be set, at any time, per port and per path.
//
// A strength (a share, a ratio, a flag) holds during the episodes beside it, and episodes that were not set are always
// there: `slow_down_ratio = 4` alone is a port at a quarter of its rate for good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace holdfast::lab {

enum class Lengths : std::uint8_t { exponential, uniform };

// Something that comes and goes by the clock, never by packets: bad states that are counted in packets also kill every
// retransmission.
struct Episodes {
  double on_ms = 0;   // mean length of an episode
  double off_ms = 0;  // mean gap between two; 0: one episode that never ends
  Lengths lengths = Lengths::exponential;
  double spread_ratio = 0;  // uniform lengths lie in mean x (1 - spread) ... mean x (1 + spread); 0: all equal

  bool always() const { return off_ms == 0; }
  bool operator==(const Episodes&) const = default;
};

// One host's link to the switch, and the switch's queue towards the host.
struct PortConditions {
  double uplink_bits_per_s = 250e6;       // host to switch; what does not fit waits, the host's own qdisc is the limit
  double downlink_bits_per_s = 250e6;     // switch to host
  std::uint64_t queue_bytes = 256 << 10;  // towards the host, drop-tail, cross traffic included

  double cross_traffic_share = 0;  // of the downlink's rate of the moment; it comes first, and fills the queue
  Episodes cross_traffic;

  double slow_down_ratio = 1;  // divides the downlink's rate
  Episodes slow_downs;

  bool frozen = false;  // neither direction moves; each holds up to `queue_bytes` and drops the rest
  Episodes freezes;

  bool down = false;  // everything to and from the host is lost

  bool operator==(const PortConditions&) const = default;
};

// From one host to another, one way.
struct PathConditions {
  double loss_ratio = 0;  // each packet by itself

  double burst_loss_ratio = 0;  // during bursts: with their gaps a Gilbert-Elliott channel on a clock
  Episodes bursts;

  double delay_ms = 0;
  double tail_delay_ms = 0;  // more of it during tails; packets never overtake each other
  Episodes tails;

  bool operator==(const PathConditions&) const = default;
};

struct Conditions {
  explicit Conditions(std::size_t num_ports) : ports(num_ports), paths(num_ports * num_ports) {}

  PathConditions& path(std::size_t from, std::size_t to) { return paths[from * ports.size() + to]; }
  const PathConditions& path(std::size_t from, std::size_t to) const { return paths[from * ports.size() + to]; }
  // Throws std::invalid_argument that names what is out of its range.
  void validate() const;

  std::vector<PortConditions> ports;
  std::vector<PathConditions> paths;  // by from x num_ports + to; a host has no path to itself
};

}  // namespace holdfast::lab
