// How long packets stand in queues on their way to the peer, from when they left by this host's clock and when they
// came by the peer's. The clocks need not agree: the least such difference of the last seconds is that of an empty
// road, and what exceeds it is queue. The round trip would not do: it also holds the queue in front of this rank's own
// port, where acks wait, and a rank that neighbours send much to would slow down for a road that is free.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/time.h"

namespace holdfast {

// A moment in 32 bits: whole microseconds of a clock, which come round after 71 minutes.
inline std::uint32_t wrapped_microseconds(Time at) { return static_cast<std::uint32_t>(at / microsecond); }

class ForwardQueue {
 public:
  // `card_wait`: what the packet waited in this host's own card, at most. It is part of the difference, but never taken
  // off the least one: a card that tells late what has left would make that too small.
  Duration add(Time now, Time sent_at, std::uint32_t arrived_at, Duration card_wait) {
    const std::uint32_t transit = arrived_at - wrapped_microseconds(sent_at);
    const auto beyond_least = static_cast<std::int32_t>(transit - least_);
    if (seen_at_ == never || beyond_least <= 0 || now - seen_at_ > lifetime) {
      least_ = transit;
      seen_at_ = now;
      return 0;
    }
    return std::max<Duration>(0, beyond_least * microsecond - card_wait);
  }

 private:
  // Clocks that drift apart by 100 parts in a million are a millisecond off after it.
  static constexpr Duration lifetime = 10 * second;
  std::uint32_t least_ = 0;
  Time seen_at_ = never;
};

}  // namespace holdfast
