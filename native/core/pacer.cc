#include "core/pacer.h"

#include <algorithm>
#include <cmath>

namespace holdfast {
namespace {

constexpr std::uint64_t most_burst_bytes = 16 * 1024;
constexpr std::uint64_t same_host_burst_bytes = 65'280;
constexpr Duration datagram_time = 800 * microsecond;  // a path so slow that each takes longer sends fewer in one go
constexpr Duration usual_pause = 2 * millisecond;      // of a thread that waits for its core

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
  const std::uint64_t datagrams = burst_.datagrams();
  const auto most = static_cast<double>(std::min(datagrams * datagram_bytes_, most_burst_bytes));
  const double paced = std::min(most, bytes_per_second * in_seconds(static_cast<Duration>(datagrams) * datagram_time));
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(paced), datagram_bytes_);
}

}  // namespace holdfast
