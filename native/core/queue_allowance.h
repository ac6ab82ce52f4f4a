// How long a queue at the peers' ports this rank puts up with before it sends less.
//
// Neighbours fill ports in bursts. Whoever gives way to every one of them leaves capacity unused when a burst is over;
// whoever does not overruns ports that they keep filled. Which of the two a network is like shows in what is lost, and
// only over thousands of packets: so all paths of a rank learn it together. Random loss is loss too, and keeps the
// queue short: where nobody fills the ports that costs nothing, elsewhere some pace.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/time.h"

namespace holdfast {

class QueueAllowance {
 public:
  static constexpr Duration least = 2 * millisecond;
  static constexpr Duration most = 8 * millisecond;
  // In balance where one packet of a thousand is lost.
  static constexpr Duration gain_per_packet = microsecond / 2;
  static constexpr Duration price_of_a_loss = millisecond / 2;
  // Losses come in bursts with long pauses between: they must not be forgotten in the first pause.
  static constexpr Duration most_debt = 20 * millisecond;

  // So many packets were acknowledged, so many lost, on any path.
  void on_settled(std::size_t acknowledged, std::size_t lost) {
    const auto gain = static_cast<Duration>(acknowledged) * gain_per_packet;
    const auto price = static_cast<Duration>(lost) * price_of_a_loss;
    beyond_least_ = std::clamp(beyond_least_ + gain - price, -most_debt, most - least);
  }
  Duration tolerable() const { return least + std::max<Duration>(0, beyond_least_); }

 private:
  Duration beyond_least_ = 0;
};

}  // namespace holdfast
