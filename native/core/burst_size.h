// How many datagrams a path sends in one go. Large bursts save system calls and wake-ups on both hosts and are the
// first to overrun a shallow port, where those of several ranks meet; so they grow while nothing is lost, and what was
// too large once is not tried again soon.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/time.h"

namespace holdfast {

class BurstSize {
 public:
  static constexpr std::uint32_t first = 5;
  static constexpr std::uint32_t least = 3;  // of seven senders into 22 datagrams' room, which five each overran
  static constexpr std::uint32_t most = 11;  // 16 KiB of usual datagrams, and ports as shallow as 32 KiB exist
  // Packets whose fate is judged together, and how many of them may be lost by chance.
  static constexpr std::uint32_t window = 200;
  static constexpr std::uint32_t tolerated = 1;
  // Windows without loss before a size that lost is tried again.
  static constexpr std::uint32_t memory = 64;

  std::uint32_t datagrams() const { return datagrams_; }

  // What was sent before bursts became smaller says nothing about the smaller ones.
  void on_lost(Time sent_at) {
    if (sent_at > shrunk_at_) ++lost_;
  }

  // After the losses of so many packets, which were acknowledged or lost, have been told.
  void on_settled(Time now, std::size_t packets) {
    settled_ += packets;
    if (lost_ > tolerated) {
      ceiling_ = (datagrams_ + least) / 2;
      datagrams_ = least;
      quiet_windows_ = 0;
      shrunk_at_ = now;
    } else if (settled_ >= window) {
      if (++quiet_windows_ % memory == 0) ceiling_ = std::min(most, ceiling_ + 1);
      datagrams_ = std::min(ceiling_, datagrams_ + 1);
    } else {
      return;
    }
    settled_ = lost_ = 0;
  }

 private:
  std::uint32_t datagrams_ = first;
  std::uint32_t ceiling_ = most;
  std::uint32_t quiet_windows_ = 0;
  std::uint64_t settled_ = 0;
  std::uint64_t lost_ = 0;
  Time shrunk_at_ = -1;
};

}  // namespace holdfast
