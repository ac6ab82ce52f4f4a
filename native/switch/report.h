// What the switch says about its traffic and about itself.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::lab {

enum class Loss : std::uint8_t {
  random,      // by itself
  burst,       // in the bad state of a path
  queue,       // no room towards the receiver
  down,        // a link was down
  frozen,      // no room at a frozen port
  unroutable,  // for an address no host has
  malformed,   // not an IPv4 packet that can be cut
  refused,     // the kernel would not take it
};
constexpr std::array<std::string_view, 8> loss_names = {"random", "burst",      "queue",     "down",
                                                        "frozen", "unroutable", "malformed", "refused"};
using Losses = std::array<std::uint64_t, loss_names.size()>;

// Packets and bytes are IP packets of at most the MTU, as on a wire.
struct PortReport {
  std::uint64_t packets_from_host = 0;
  std::uint64_t bytes_from_host = 0;
  std::uint64_t packets_to_host = 0;
  std::uint64_t bytes_to_host = 0;
  std::uint64_t queue_peak_bytes = 0;   // towards the host, cross traffic included
  std::uint64_t uplink_peak_bytes = 0;  // waiting to leave the host's link
  double cross_traffic_bytes = 0;       // offered
  Losses losses{};                      // that happened at this port, or on the paths from it
};

struct SwitchReport {
  double duration_s = 0;  // since the last reset
  std::vector<PortReport> ports;
  Losses losses{};  // of all ports

  // How long after its due time a packet was handed to its host's kernel.
  double lateness_p50_us = 0;
  double lateness_p99_us = 0;
  double lateness_p999_us = 0;
  double lateness_max_us = 0;
  std::vector<std::pair<double, std::uint64_t>> lateness_counts;  // (at most so many microseconds, packets)

  bool realtime = false;  // the thread was granted real time
  double cpu_s = 0;       // of the thread
  std::uint64_t num_wakeups = 0;
  std::uint64_t num_reads = 0;
  std::uint64_t num_writes = 0;
};

}  // namespace holdfast::lab
