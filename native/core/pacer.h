// Lets bytes go at a rate, in bursts, so that a wake-up and a system call move more than one packet.
#pragma once

#include <cstdint>

#include "core/burst_size.h"
#include "core/time.h"

namespace holdfast {

class Pacer {
 public:
  explicit Pacer(std::uint32_t datagram_bytes) : datagram_bytes_(datagram_bytes) {}

  // When the next burst may leave; not later than `now` means: now.
  Time ready_at() const { return ready_at_; }
  void on_sent(Time now, std::uint64_t bytes, double bytes_per_second);
  // What became of packets sent before decides how large bursts are.
  BurstSize& burst_size() { return burst_; }
  const BurstSize& burst_size() const { return burst_; }
  // At most this many bytes in one burst.
  std::uint64_t burst_bytes(double bytes_per_second) const;

 private:
  std::uint32_t datagram_bytes_;
  BurstSize burst_;
  Time ready_at_ = 0;
};

}  // namespace holdfast
