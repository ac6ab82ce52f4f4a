// Where things are in IPv4, TCP and UDP headers (RFC 791, 9293, 768), and the Internet checksum (RFC 1071).
#pragma once

#include <cstdint>
#include <span>

#include "core/byte_order.h"

namespace holdfast::lab {

namespace ip {
constexpr std::size_t min_header = 20, total_length = 2, identification = 4, fragment = 6, protocol = 9, checksum = 10,
                      source = 12, destination = 16;
constexpr std::uint16_t fragment_bits = 0x3fff;  // more fragments, and the offset
constexpr std::uint8_t tcp = 6, udp = 17;
}  // namespace ip

namespace tcp {
constexpr std::size_t min_header = 20, sequence = 4, data_offset = 12, flags = 13, checksum = 16;
constexpr std::uint8_t fin = 0x01, syn = 0x02, rst = 0x04, psh = 0x08, urg = 0x20, cwr = 0x80;
}  // namespace tcp

namespace udp {
constexpr std::size_t header = 8, length = 4, checksum = 6;
}  // namespace udp

inline std::uint32_t sum_words(std::span<const std::uint8_t> bytes, std::uint32_t sum = 0) {
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) sum += load_big_endian<std::uint16_t>(&bytes[i]);
  if (bytes.size() % 2 == 1) sum += std::uint32_t{bytes.back()} << 8;
  return sum;
}

inline std::uint16_t fold(std::uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

inline void set_ip_length(std::uint8_t* header, std::size_t header_bytes, std::size_t total) {
  store_big_endian(header + ip::total_length, static_cast<std::uint16_t>(total));
  store_big_endian(header + ip::checksum, std::uint16_t{0});
  const std::uint16_t sum = fold(sum_words({header, header_bytes}));
  store_big_endian(header + ip::checksum, static_cast<std::uint16_t>(~sum));
}

// Of the pseudo-header only, not inverted: what stands in the checksum field of a packet whose checksum is partial.
inline std::uint16_t pseudo_header_sum(const std::uint8_t* ip_header, std::size_t transport_bytes) {
  const std::uint32_t addresses = sum_words({ip_header + ip::source, 8});
  return fold(addresses + ip_header[ip::protocol] + static_cast<std::uint32_t>(transport_bytes));
}

}  // namespace holdfast::lab
