// What a datagram says about itself: one fixed header for every delivery, and the body of an acknowledgement.
//
// Network byte order. A datagram is header | payload | tag, with the tag absent on insecure links. Offsets are in
// elements rather than bytes, so that no header can name half a float.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/time.h"
#include "kernels/kernels.h"

namespace holdfast {

constexpr std::uint8_t wire_version = 10;
constexpr std::size_t header_bytes = 48;
constexpr std::size_t tag_bytes = 16;
// 394 petabytes in full datagrams: more than any path will ever send. What is beyond would not open any more, for its
// number is a part of its seal.
constexpr std::uint64_t max_transmission = (1ull << 48) - 1;
// Where packing makes almost nothing of them, more elements travel in a datagram than fit it unpacked, but not without
// limit: one packet must not be able to say more than this many times what it holds.
constexpr std::uint32_t max_packing_ratio = 4;
constexpr std::uint32_t max_packed_elements = 65'520;  // the header has 16 bits for it; whole blocks

enum class PacketType : std::uint8_t {
  data = 1,    // elements of a message
  hole = 2,    // elements of a result that nobody but their owner contributed to: lost, do not wait for them
  end = 3,     // everything of this message has been sent once
  ack = 4,     // transmission numbers received
  ping = 5,    // alive; asks for an ack
  bye = 6,     // the sender leaves on purpose
  packed = 7,  // as data, its elements in fewer bytes (kernels/packing.h)
  narrow = 8,  // as packed, and each f32 rounded to bf16 before (core/narrowing.h); only of bounded operations
};

constexpr bool is_packed(PacketType type) { return type == PacketType::packed || type == PacketType::narrow; }
constexpr bool carries_elements(PacketType type) { return type == PacketType::data || is_packed(type); }

// Which part of an operation a message is. `note` messages belong to no operation: control, state, buffers.
enum class Stage : std::uint8_t { none = 0, contribution = 1, result = 2, note = 3 };

namespace flag {
constexpr std::uint8_t last_percentile = 1;  // among the last max(1 %, 16 packets) of its message (OptiReduce 3.2.1)
constexpr std::uint8_t exact = 2;            // sent again until it arrives
constexpr std::uint8_t ack_now = 4;          // the sender waits for this acknowledgement
constexpr std::uint8_t sum = 8;              // the operation wants the sum, not the mean
constexpr std::uint8_t closed = 16;          // on a result: its owner takes no more contributions
constexpr int num_bits = 5;
constexpr std::uint8_t all = (1 << num_bits) - 1;
}  // namespace flag

struct Header {
  PacketType type = PacketType::ping;
  std::uint8_t flags = 0;
  std::uint8_t division = 0;   // number of the division into shards, 0 to 7; packed with `flags` into one byte
  std::uint8_t key_phase = 0;  // low eight bits of the sender's key phase
  std::uint32_t job = 0;       // drops strangers cheaply; authentication does the rest
  std::uint32_t epoch = 0;     // membership
  std::uint16_t sender = 0;    // rank
  std::uint8_t credit = 0;     // senders this rank is willing to hear at once; 0: no limit
  bool encoded = false;        // elements are coefficients, not gradients; packed with `stage` and `format`
  // On the data of a bounded result, packed likewise: what the receiver contributed to it, or its owner, is not in it.
  bool without_receiver = false;
  bool without_owner = false;
  Stage stage = Stage::none;  // packed with these and `format` into one byte
  Format format = Format::bytes;
  std::uint64_t transmission = 0;     // never reused: nonce, round-trip time, loss detection; 48 bits
  std::uint16_t packed_elements = 0;  // on packed elements: how many
  // Or the number of a note; see hierarchy.h for the highest bit. On an ack: of operations before this one its sender
  // wants no results any more.
  std::uint32_t operation = 0;
  std::uint32_t layout = 0;         // which parameters in which order; for a note its channel
  std::uint32_t total = 0;          // elements of the whole bucket or note
  std::uint32_t offset = 0;         // first element of the payload within the bucket or note
  std::uint32_t completion_us = 0;  // how long the sender's last stage of this kind took
  // On the data of a result: how many contributor-elements of this payload its owner did not receive, so that whoever
  // gets it knows exactly what the numbers stand for; between groups also on contributions. On a hole: how many
  // elements from `offset` on are lost. On a note: how far back the oldest note is that its sender has not given up;
  // what is older will never be complete.
  std::uint32_t missing = 0;
};

// Why a datagram was dropped. Everything that is dropped is counted under exactly one of these.
enum class Drop : std::uint8_t {
  truncated,  // shorter than a header and its tag, or a payload that is not whole elements
  version,    // another wire version
  malformed,  // unknown type, stage, format or flag, or fields that contradict each other
  foreign_job,
  foreign_epoch,
  unknown_sender,  // a rank that is not a peer
  key_phase,       // not the current, next or previous key
  authentication,
  replay,               // a transmission number seen before
  too_old,              // behind the replay window
  duplicate,            // fresh datagram, elements already placed
  late,                 // its stage or operation has ended
  beyond_window,        // an operation further ahead than this rank may hold open
  early_over_cap,       // no room for what arrives before the own call
  oversized,            // total above what was agreed at join
  mismatch,             // shape, dtype or layout differs from what this rank has
  acknowledges_unsent,  // an ack of a number never sent
  misplaced,            // offset outside what this sender may write
  other_division,       // of a rank that divides the bucket otherwise
  other_encoding,       // of a rank that sends coefficients where this one has gradients, or the other way round
  count_,
};
constexpr std::size_t num_drops = static_cast<std::size_t>(Drop::count_);
const char* name(Drop drop);
using DropCounts = std::array<std::uint64_t, num_drops>;

void encode(const Header& header, std::span<std::uint8_t, header_bytes> out);

// Checks everything that can be checked without knowing the job; `payload_bytes` is what follows the header, less the
// tag.
std::optional<Drop> decode(std::span<const std::uint8_t> datagram, std::size_t payload_bytes, Header& out);

// How many elements this packet speaks of.
std::uint32_t covered_elements(const Header& header, std::size_t payload_bytes);

struct AckRange {
  std::uint64_t first = 0;  // inclusive
  std::uint64_t last = 0;   // inclusive
  bool operator==(const AckRange&) const = default;
};

struct Ack {
  Duration delay = 0;                // between receipt of `ranges.front().last` and this ack
  std::uint32_t arrived_at = 0;      // its receipt by the receiver's clock, see ForwardQueue
  std::uint32_t receive_window = 0;  // bytes this receiver lets the sender have in flight
  std::vector<AckRange> ranges;      // newest first, disjoint, not adjacent
};

constexpr std::size_t max_ack_ranges = 64;
constexpr std::size_t min_ack_bytes = 30;
constexpr std::size_t max_ack_bytes = min_ack_bytes + 8 * (max_ack_ranges - 1);

std::vector<std::uint8_t> encode(const Ack& ack);
std::optional<Ack> decode_ack(std::span<const std::uint8_t> payload);

}  // namespace holdfast
