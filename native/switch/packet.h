// One IPv4 packet of at most the MTU, as it travels through the switch, and the shelf such packets come from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace holdfast::lab {

// `plain` packets are carried as they are; the others can be put together again.
enum class Transport : std::uint8_t { plain, tcp, udp };

struct Packet {
  static constexpr std::size_t max_bytes = 2032;  // with the fields below a packet is 2 KiB

  std::uint16_t num_bytes = 0;
  std::uint16_t header_bytes = 0;  // IP and transport; 0 when plain
  std::uint16_t checksum_start = 0;
  std::uint16_t checksum_offset = 0;
  // The transport checksum is only that of the pseudo-header, to be completed from `checksum_start` to the end by
  // whoever needs it: between hosts on one machine, nobody.
  bool checksum_is_partial = false;
  Transport transport = Transport::plain;
  std::array<std::uint8_t, max_bytes> bytes;

  std::span<const std::uint8_t> view() const { return {bytes.data(), num_bytes}; }
  std::span<const std::uint8_t> payload() const { return view().subspan(header_bytes); }
};

// Packets by number, used again; memory comes in chunks and only while the number under way grows.
class PacketPool {
 public:
  // 1 GiB: far more than any delay at lab rates holds, and a limit nevertheless.
  static constexpr std::size_t max_packets = 1 << 19;

  std::optional<std::uint32_t> take() {
    if (free_.empty() && !grow()) return std::nullopt;
    const std::uint32_t number = free_.back();
    free_.pop_back();
    return number;
  }
  void give_back(std::uint32_t number) { free_.push_back(number); }
  Packet& operator[](std::uint32_t number) { return chunks_[number / chunk_packets][number % chunk_packets]; }
  std::size_t num_taken() const { return chunks_.size() * chunk_packets - free_.size(); }

 private:
  static constexpr std::size_t chunk_packets = 256;

  bool grow() {
    const std::size_t begin = chunks_.size() * chunk_packets;
    if (begin >= max_packets) return false;
    chunks_.push_back(std::make_unique_for_overwrite<Packet[]>(chunk_packets));
    free_.reserve(begin + chunk_packets);
    for (std::size_t i = chunk_packets; i-- > 0;) free_.push_back(static_cast<std::uint32_t>(begin + i));
    return true;
  }

  std::vector<std::unique_ptr<Packet[]>> chunks_;
  std::vector<std::uint32_t> free_;
};

}  // namespace holdfast::lab
