#include "core/pacer.h"

#include <algorithm>
#include <cmath>

namespace holdfast {
namespace {

constexpr std::uint64_t most_burst_bytes = 16 * 1024;
// Large enough to be worth a system call; small enough that bursts of several ranks may meet at a port with shallow
// buffers.
constexpr std::uint64_t burst_datagrams = 5;
constexpr std::uint64_t same_host_burst_bytes = 65'280;
constexpr Duration longest_burst = 4 * millisecond;  // of a slow path
constexpr Duration usual_pause = 2 * millisecond;    // of a thread that waits for its core

}  // namespace

void Pacer::on_sent(Time now, std::uint64_t bytes, double bytes_per_second) {
  if (std::isinf(bytes_per_second)) return;
  const auto time_of = [&](std::uint64_t sent) {
    return static_cast<Duration>(static_cast<double>(sent) * static_cast<double>(second) / bytes_per_second);
  };
  // Unused time counts for one burst, or for a usual pause: a long one never turns into a long burst.
  const Duration catch_up = std::max(usual_pause, time_of(burst_bytes(bytes_per_second)));
  ready_at_ = std::max(ready_at_, now - catch_up) + time_of(bytes);
}

std::uint64_t Pacer::burst_bytes(double bytes_per_second) const {
  if (std::isinf(bytes_per_second)) return same_host_burst_bytes;
  const auto most = static_cast<double>(std::min(burst_datagrams * datagram_bytes_, most_burst_bytes));
  const double paced = std::min(most, bytes_per_second * in_seconds(longest_burst));
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(paced), datagram_bytes_);
}

}  // namespace holdfast
