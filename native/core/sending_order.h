// Which path is asked first for something to send.
//
// Where the card is full all of them wait, and it makes room for one burst at a time. One path after the other would
// give each a burst, although bursts differ in size: a path that has lost something sends three datagrams in one go
// where others send eleven, so it got half of what they got, had most of its bytes left when they were done, and lost
// more of those. So that path goes first which has sent the fewest bytes; among equals they take turns (fair queueing).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace holdfast {

class SendingOrder {
 public:
  // Begins with the rank after the own one, or all ranks would begin with the same.
  SendingOrder(std::uint16_t rank, std::uint16_t num_ranks) : sent_bytes_(num_ranks, 0), waits_(num_ranks, false) {
    for (std::uint16_t step = 1; step < num_ranks; ++step) {
      order_.push_back(static_cast<std::uint16_t>((rank + step) % num_ranks));
    }
  }

  // All peers. `has_something`: to be sent, whether or not it may leave now.
  template <typename HasSomething>
  std::span<const std::uint16_t> peers(const HasSomething& has_something) {
    let_join(has_something);
    const auto before = [this](std::uint16_t one, std::uint16_t other) {
      return sent_bytes_[one] < sent_bytes_[other];
    };
    for (auto next = order_.begin(); next != order_.end(); ++next) {  // hardly any of them is out of its place
      std::rotate(std::upper_bound(order_.begin(), next, *next, before), next, next + 1);
    }
    return order_;
  }

  void has_sent(std::uint16_t peer, std::uint64_t bytes) {
    sent_bytes_[peer] += bytes;
    const auto found = std::find(order_.begin(), order_.end(), peer);
    std::rotate(found, found + 1, order_.end());
  }

 private:
  // Who had nothing to send stands where the last of the others does: it owes nothing, and has saved nothing up.
  template <typename HasSomething>
  void let_join(const HasSomething& has_something) {
    std::uint64_t least = UINT64_MAX;
    for (const std::uint16_t peer : order_) {
      waits_[peer] = waits_[peer] && has_something(peer);
      if (waits_[peer]) least = std::min(least, sent_bytes_[peer]);
    }
    for (const std::uint16_t peer : order_) {
      if (waits_[peer]) continue;
      sent_bytes_[peer] = least == UINT64_MAX ? 0 : least;
      waits_[peer] = has_something(peer);
    }
  }

  std::vector<std::uint16_t> order_;
  std::vector<std::uint64_t> sent_bytes_;  // by rank, since all of them had nothing to send
  std::vector<bool> waits_;                // by rank: it had something to send when it was last asked
};

}  // namespace holdfast
