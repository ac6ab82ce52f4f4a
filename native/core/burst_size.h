// How many datagrams a path sends in one go. Large bursts save system calls and wake-ups on both hosts and are the
// first to overrun a shallow port, where those of several ranks meet; so they grow while nothing is lost.
#pragma once

#include <algorithm>
#include <cstdint>

namespace holdfast {

class BurstSize {
 public:
  static constexpr std::uint32_t least = 5;
  static constexpr std::uint32_t most = 12;
  static constexpr std::uint32_t step = 1;
  // Packets whose fate is judged together, and how many of them may be lost by chance.
  static constexpr std::uint32_t window = 200;
  static constexpr std::uint32_t tolerated = 1;

  std::uint32_t datagrams() const { return datagrams_; }

  void on_settled(std::size_t acknowledged, std::size_t lost) {
    lost_ += lost;
    settled_ += acknowledged + lost;
    if (lost_ > tolerated) {
      datagrams_ = std::max(least, datagrams_ / 2);
    } else if (settled_ >= window) {
      datagrams_ = std::min(most, datagrams_ + step);
    } else {
      return;
    }
    settled_ = lost_ = 0;
  }

 private:
  std::uint32_t datagrams_ = least;
  std::uint64_t settled_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace holdfast
