#include "core/wire.h"

#include <algorithm>

#include "core/byte_order.h"
#include "kernels/packing.h"

namespace holdfast {

const char* name(Drop drop) {
  switch (drop) {
    case Drop::truncated: return "truncated";
    case Drop::version: return "version";
    case Drop::malformed: return "malformed";
    case Drop::foreign_job: return "foreign_job";
    case Drop::foreign_epoch: return "foreign_epoch";
    case Drop::unknown_sender: return "unknown_sender";
    case Drop::key_phase: return "key_phase";
    case Drop::authentication: return "authentication";
    case Drop::replay: return "replay";
    case Drop::too_old: return "too_old";
    case Drop::duplicate: return "duplicate";
    case Drop::late: return "late";
    case Drop::beyond_window: return "beyond_window";
    case Drop::early_over_cap: return "early_over_cap";
    case Drop::oversized: return "oversized";
    case Drop::mismatch: return "mismatch";
    case Drop::acknowledges_unsent: return "acknowledges_unsent";
    case Drop::misplaced: return "misplaced";
    case Drop::other_division: return "other_division";
    case Drop::other_encoding: return "other_encoding";
    case Drop::count_: break;
  }
  return "unknown";
}

namespace {

// Of the byte that also holds stage and format.
constexpr unsigned encoded_bit = 0x80;
constexpr unsigned without_receiver_bit = 0x40;
constexpr unsigned without_owner_bit = 0x08;

}  // namespace

void encode(const Header& header, std::span<std::uint8_t, header_bytes> out) {
  std::uint8_t* at = out.data();
  at[0] = wire_version;
  at[1] = static_cast<std::uint8_t>(header.type);
  at[2] = static_cast<std::uint8_t>(header.flags | header.division << flag::num_bits);
  at[3] = header.key_phase;
  store_big_endian(at + 4, header.job);
  store_big_endian(at + 8, header.epoch);
  store_big_endian(at + 12, header.sender);
  at[14] = header.credit;
  at[15] = static_cast<std::uint8_t>((header.encoded ? encoded_bit : 0) |
                                     (header.without_receiver ? without_receiver_bit : 0) |
                                     (header.without_owner ? without_owner_bit : 0) |
                                     static_cast<unsigned>(header.stage) << 4 | static_cast<unsigned>(header.format));
  store_big_endian(at + 16, header.transmission << 16 | header.packed_elements);
  store_big_endian(at + 24, header.operation);
  store_big_endian(at + 28, header.layout);
  store_big_endian(at + 32, header.total);
  store_big_endian(at + 36, header.offset);
  store_big_endian(at + 40, header.completion_us);
  store_big_endian(at + 44, header.missing);
}

namespace {

std::uint32_t whole_microseconds(Duration duration) {
  return static_cast<std::uint32_t>(std::clamp<Duration>(duration / microsecond, 0, UINT32_MAX));
}

bool carries_message(PacketType type) {
  return carries_elements(type) || type == PacketType::hole || type == PacketType::end;
}

// Does the packet make sense by itself: a payload where one belongs, inside the total it claims?
std::optional<Drop> check_fields(const Header& header, std::size_t payload_bytes) {
  if (is_packed(header.type) != (header.packed_elements != 0)) return Drop::malformed;
  const bool of_operation = header.stage == Stage::contribution || header.stage == Stage::result;
  const bool agreed = header.division != 0 || header.encoded;  // which exact operations have no need of
  if (agreed && (!of_operation || (header.flags & flag::exact) != 0)) return Drop::malformed;
  const bool lacks_somebody = header.without_receiver || header.without_owner;
  const bool may_lack = carries_elements(header.type) && header.stage == Stage::result && header.missing != 0;
  if (lacks_somebody && (!may_lack || (header.flags & flag::exact) != 0)) return Drop::malformed;
  if (!carries_message(header.type)) {
    const bool payload_expected = header.type == PacketType::ack;
    if (header.stage != Stage::none || payload_expected != (payload_bytes != 0)) return Drop::malformed;
    return std::nullopt;
  }
  if (header.stage == Stage::none) return Drop::malformed;
  if ((header.stage == Stage::note) != (header.format == Format::bytes)) return Drop::malformed;
  if (header.offset > header.total) return Drop::malformed;
  const std::uint32_t room = header.total - header.offset;
  switch (header.type) {
    case PacketType::data:
      if (payload_bytes % element_bytes(header.format) != 0) return Drop::truncated;
      // Only an empty note has an empty packet: it must arrive, too.
      if (payload_bytes == 0 && !(header.stage == Stage::note && header.total == 0)) return Drop::malformed;
      if (payload_bytes / element_bytes(header.format) > room) return Drop::malformed;
      return std::nullopt;
    case PacketType::narrow:
      if (header.format != Format::f32 || (header.flags & flag::exact) != 0) return Drop::malformed;
      [[fallthrough]];
    case PacketType::packed:
      if (!of_operation || !kernels::can_pack(header.format) || payload_bytes == 0) return Drop::malformed;
      if (header.packed_elements > room) return Drop::malformed;
      return std::nullopt;
    case PacketType::hole:
      if (payload_bytes != 0 || header.stage != Stage::result) return Drop::malformed;
      if (header.missing == 0 || header.missing > room) return Drop::malformed;
      return std::nullopt;
    default:
      if (payload_bytes != 0 || header.stage == Stage::note) return Drop::malformed;
      return std::nullopt;
  }
}

}  // namespace

std::optional<Drop> decode(std::span<const std::uint8_t> datagram, std::size_t payload_bytes, Header& out) {
  if (datagram.size() < header_bytes) return Drop::truncated;
  const std::uint8_t* at = datagram.data();
  if (at[0] != wire_version) return Drop::version;
  if (at[1] < 1 || at[1] > 8) return Drop::malformed;
  const Format format = static_cast<Format>(at[15] & 0x07);
  if (!is_known(format)) return Drop::malformed;
  out.type = static_cast<PacketType>(at[1]);
  out.flags = at[2] & flag::all;
  out.division = at[2] >> flag::num_bits;
  out.key_phase = at[3];
  out.job = load_big_endian<std::uint32_t>(at + 4);
  out.epoch = load_big_endian<std::uint32_t>(at + 8);
  out.sender = load_big_endian<std::uint16_t>(at + 12);
  out.credit = at[14];
  out.encoded = (at[15] & encoded_bit) != 0;
  out.without_receiver = (at[15] & without_receiver_bit) != 0;
  out.without_owner = (at[15] & without_owner_bit) != 0;
  out.stage = static_cast<Stage>(at[15] >> 4 & 3);
  out.format = format;
  const auto number_and_count = load_big_endian<std::uint64_t>(at + 16);
  out.transmission = number_and_count >> 16;
  out.packed_elements = static_cast<std::uint16_t>(number_and_count);
  out.operation = load_big_endian<std::uint32_t>(at + 24);
  out.layout = load_big_endian<std::uint32_t>(at + 28);
  out.total = load_big_endian<std::uint32_t>(at + 32);
  out.offset = load_big_endian<std::uint32_t>(at + 36);
  out.completion_us = load_big_endian<std::uint32_t>(at + 40);
  out.missing = load_big_endian<std::uint32_t>(at + 44);
  return check_fields(out, payload_bytes);
}

std::uint32_t covered_elements(const Header& header, std::size_t payload_bytes) {
  if (header.type == PacketType::hole) return header.missing;
  if (is_packed(header.type)) return header.packed_elements;
  return static_cast<std::uint32_t>(payload_bytes / element_bytes(header.format));
}

// Ack body: u64 largest | u32 delay in us | u32 card wait in us | u32 window | u16 ranges | u64 first range length - 1
// | then per further range: u32 gap (missing numbers between it and the one before) | u32 length - 1.
std::vector<std::uint8_t> encode(const Ack& ack) {
  std::vector<std::uint8_t> out(min_ack_bytes + 8 * (ack.ranges.size() - 1));
  std::uint8_t* at = out.data();
  store_big_endian(at, ack.ranges.front().last);
  store_big_endian(at + 8, whole_microseconds(ack.delay));
  store_big_endian(at + 12, ack.arrived_at);
  store_big_endian(at + 16, ack.receive_window);
  store_big_endian(at + 20, static_cast<std::uint16_t>(ack.ranges.size()));
  store_big_endian(at + 22, ack.ranges.front().last - ack.ranges.front().first);
  at += min_ack_bytes;
  for (std::size_t i = 1; i < ack.ranges.size(); ++i) {
    const std::uint64_t gap = ack.ranges[i - 1].first - ack.ranges[i].last - 1;
    store_big_endian(at, static_cast<std::uint32_t>(gap));
    store_big_endian(at + 4, static_cast<std::uint32_t>(ack.ranges[i].last - ack.ranges[i].first));
    at += 8;
  }
  return out;
}

std::optional<Ack> decode_ack(std::span<const std::uint8_t> payload) {
  if (payload.size() < min_ack_bytes) return std::nullopt;
  const std::uint8_t* at = payload.data();
  const std::size_t count = load_big_endian<std::uint16_t>(at + 20);
  if (count == 0 || count > max_ack_ranges) return std::nullopt;
  if (payload.size() != min_ack_bytes + 8 * (count - 1)) return std::nullopt;
  Ack ack;
  ack.delay = Duration{load_big_endian<std::uint32_t>(at + 8)} * microsecond;
  ack.arrived_at = load_big_endian<std::uint32_t>(at + 12);
  ack.receive_window = load_big_endian<std::uint32_t>(at + 16);
  ack.ranges.reserve(count);
  std::uint64_t last = load_big_endian<std::uint64_t>(at);
  std::uint64_t length = load_big_endian<std::uint64_t>(at + 22);
  if (length > last) return std::nullopt;
  ack.ranges.push_back({last - length, last});
  at += min_ack_bytes;
  for (std::size_t i = 1; i < count; ++i, at += 8) {
    const std::uint64_t gap = load_big_endian<std::uint32_t>(at);
    length = load_big_endian<std::uint32_t>(at + 4);
    const std::uint64_t above = ack.ranges.back().first;
    if (gap == 0 || above < gap + 1 || above - gap - 1 < length) return std::nullopt;
    last = above - gap - 1;
    ack.ranges.push_back({last - length, last});
  }
  return ack;
}

}  // namespace holdfast
