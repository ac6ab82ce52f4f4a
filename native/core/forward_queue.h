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
    if (begun_at_ == never || now - begun_at_ > 2 * stretch) {  // nothing was sent for a while
      before_ = least_ = transit;
      begun_at_ = now;
    } else if (now - begun_at_ > stretch) {
      before_ = least_;
      least_ = transit;
      begun_at_ = now;
    } else {
      least_ = lesser(least_, transit);
    }
    const auto queued = static_cast<std::int32_t>(transit - lesser(before_, least_));
    return std::max<Duration>(0, queued * microsecond - card_wait);
  }

 private:
  // Differences are compared as they come round, too.
  static std::uint32_t lesser(std::uint32_t a, std::uint32_t b) {
    return static_cast<std::int32_t>(a - b) <= 0 ? a : b;
  }

  // The least is that of this stretch and the one before: what is forgotten is so after a stretch in which the road may
  // have been seen empty, and clocks that drift apart by 100 parts in a million are at most a millisecond off.
  static constexpr Duration stretch = 5 * second;
  std::uint32_t before_ = 0;
  std::uint32_t least_ = 0;
  Time begun_at_ = never;
};

}  // namespace holdfast
