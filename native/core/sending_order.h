// Which path is asked first for something to send.
//
// Where the card is full all of them wait, and it makes room for one burst at a time. One path after the other would
// give each a burst, although bursts differ in size: a path that has lost something sends three datagrams in one go
// where others send eleven, so it got half of what they got, had most of its bytes left when they were done, and lost
// more of those. So that path goes first which has sent the fewest bytes (start-time fair queueing); among equals they
// take turns.
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
    for (const std::uint16_t peer : order_) {
      const bool waits = has_something(peer);
      // Who had nothing to send has not saved it up.
      if (waits && !waits_[peer]) sent_bytes_[peer] = std::max(sent_bytes_[peer], served_);
      waits_[peer] = waits;
    }
    const auto before = [this](std::uint16_t one, std::uint16_t other) {
      return sent_bytes_[one] < sent_bytes_[other];
    };
    for (auto next = order_.begin(); next != order_.end(); ++next) {  // hardly any of them is out of its place
      std::rotate(std::upper_bound(order_.begin(), next, *next, before), next, next + 1);
    }
    return order_;
  }

  // What had nothing waiting was an acknowledgement, and takes nobody's turn.
  void has_sent(std::uint16_t peer, std::uint64_t bytes) {
    if (!waits_[peer]) return;
    served_ = std::max(served_, sent_bytes_[peer]);
    sent_bytes_[peer] = std::max(sent_bytes_[peer] + bytes, served_ - std::min(served_, most_behind));
    const auto found = std::find(order_.begin(), order_.end(), peer);
    std::rotate(found, found + 1, order_.end());
  }

 private:
  // Some large bursts. Who could not send, because its peer stood still, does not come before all others for longer.
  static constexpr std::uint64_t most_behind = 64 * 1024;

  std::vector<std::uint16_t> order_;
  std::vector<std::uint64_t> sent_bytes_;  // by rank
  std::vector<bool> waits_;                // by rank: it had something to send when it was last asked
  std::uint64_t served_ = 0;               // what the one had sent whose turn it was last, before it; never less
};

}  // namespace holdfast
