// What an attacker knows about the job it attacks.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/endpoint.h"
#include "io/udp.h"

namespace holdfast::hostile {

using Bytes = std::vector<std::uint8_t>;
// Datagrams by kind, by drop cause or by packet type; printed as JSON.
using Counts = std::map<std::string, std::uint64_t>;

struct Target {
  std::uint16_t rank = 0;
  io::Address address;
  ProcessId process{};
};

struct Job {
  std::uint32_t job = 0;
  std::uint32_t epoch = 0;
  std::uint16_t num_ranks = 0;
  std::uint32_t datagram_bytes = 1472;
  std::vector<Target> targets;  // the honest ranks
};

// Datagrams seen on the wire, the newest ones, with the rank each was meant for.
class Captured {
 public:
  static constexpr std::size_t most = 2048;

  void add(std::uint16_t receiver, std::span<const std::uint8_t> datagram) {
    const std::lock_guard lock(mutex_);
    std::vector<Bytes>& kept = by_receiver_[receiver];
    if (kept.size() < most) kept.emplace_back();
    kept[num_seen_[receiver]++ % most].assign(datagram.begin(), datagram.end());
  }

  std::vector<Bytes> of(std::uint16_t receiver) const {
    const std::lock_guard lock(mutex_);
    const auto found = by_receiver_.find(receiver);
    return found == by_receiver_.end() ? std::vector<Bytes>{} : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint16_t, std::vector<Bytes>> by_receiver_;
  std::map<std::uint16_t, std::size_t> num_seen_;
};

}  // namespace holdfast::hostile
