#include "core/pacer.h"

#include <algorithm>
#include <cmath>

namespace holdfast {
namespace {

constexpr Duration burst = 2 * millisecond;
constexpr std::uint64_t network_burst_bytes = 16 * 1024;
constexpr std::uint64_t same_host_burst_bytes = 65'280;

}  // namespace

void Pacer::on_sent(Time now, std::uint64_t bytes, double bytes_per_second) {
  if (std::isinf(bytes_per_second)) return;
  const auto cost = static_cast<Duration>(static_cast<double>(bytes) * static_cast<double>(second) / bytes_per_second);
  // Unused time counts for at most one burst, so a pause never turns into a long one.
  ready_at_ = std::max(ready_at_, now - burst) + cost;
}

std::uint64_t Pacer::burst_bytes(double bytes_per_second) const {
  if (std::isinf(bytes_per_second)) return same_host_burst_bytes;
  const double most = std::min(bytes_per_second * in_seconds(burst), static_cast<double>(network_burst_bytes));
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(most), datagram_bytes_);
}

}  // namespace holdfast
