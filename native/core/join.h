// What ranks tell each other when a job forms, as they write it to the Store.
//
// The Store is not authenticated, so these are read like datagrams: every length and value is checked before it is
// used, and anything else is refused as a whole. Version and kind come first; network byte order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/keys.h"

namespace holdfast {

constexpr std::uint8_t join_version = 4;
// A boot id and a namespace number are 50 characters, a scoped IPv6 address at most 61.
constexpr std::size_t max_host_identity_bytes = 128;
constexpr std::size_t max_address_bytes = 64;
constexpr std::size_t max_join_bytes = 256;
// A datagram holds a block of any format or an ack, and fits one batch.
constexpr std::uint32_t min_datagram_bytes = 256;
constexpr std::uint32_t max_datagram_bytes = 65'280;
// Every rank keeps a path to every other.
constexpr std::uint16_t max_ranks = 4096;

// Whether gradients travel as their Hadamard transform; automatic: as the ranks agree while they train.
enum class HadamardChoice : std::uint8_t { off, on, automatic };

// First: which host a rank is on, and what all ranks must have in common.
struct Introduction {
  Protection protection = Protection::encrypted;
  bool deterministic = false;
  bool measures_deadline = false;  // else one was given
  bool uneven_shards = false;
  HadamardChoice hadamard = HadamardChoice::off;
  std::uint16_t hierarchy = 0;  // 0: off; 1: as the hosts suggest; else this many groups
  std::uint32_t warmup_operations = 0;
  std::array<std::uint8_t, 16> key_fingerprint{};
  std::string host_identity;  // printable, not empty
  bool operator==(const Introduction&) const = default;
};

// Then: where it listens, and which process it is.
struct Whereabouts {
  std::string address;  // numeric, with the scope where it has one; printable, not empty
  std::uint16_t port = 0;
  ProcessId process{};
  bool operator==(const Whereabouts&) const = default;
};

// Last: the largest datagram its paths allow.
struct DatagramLimit {
  std::uint32_t size = min_datagram_bytes;  // bytes
  bool operator==(const DatagramLimit&) const = default;
};

// Throw std::invalid_argument for what no peer would accept.
std::vector<std::uint8_t> encode(const Introduction& introduction);
std::vector<std::uint8_t> encode(const Whereabouts& whereabouts);
std::vector<std::uint8_t> encode(const DatagramLimit& limit);

std::optional<Introduction> decode_introduction(std::span<const std::uint8_t> message);
std::optional<Whereabouts> decode_whereabouts(std::span<const std::uint8_t> message);
std::optional<DatagramLimit> decode_datagram_limit(std::span<const std::uint8_t> message);

}  // namespace holdfast
