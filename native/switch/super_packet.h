// Offload, both ways: what one read of a TUN device gives (IFF_VNET_HDR: virtio header, then an IPv4 packet, maybe a
// super-packet that TCP or UDP left to the device to segment) is cut into packets of at most the MTU; and packets that
// follow each other in one flow are put together again, to be written at once. Lengths are never trusted.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "switch/packet.h"

namespace holdfast::lab {

// The 10 bytes that TUN puts before a packet unless told otherwise, in the machine's byte order (virtio 1.2, 5.1.6).
// The kernel's own <linux/virtio_net.h> is no C++ and, where it is old, does not know of UDP.
struct VnetHeader {
  static constexpr std::uint8_t needs_checksum = 1;                          // flags
  static constexpr std::uint8_t gso_none = 0, gso_tcp4 = 1, gso_udp_l4 = 5;  // gso_type
  static constexpr std::uint8_t gso_ecn = 0x80;                              // beside gso_tcp4

  std::uint8_t flags = 0;
  std::uint8_t gso_type = gso_none;
  std::uint16_t header_bytes = 0;
  std::uint16_t gso_size = 0;
  std::uint16_t checksum_start = 0;
  std::uint16_t checksum_offset = 0;
};
static_assert(sizeof(VnetHeader) == 10);

// One frame, checked. Cutting it cannot fail.
class SuperPacket {
 public:
  enum class Fault : std::uint8_t { none, not_ipv4, malformed };

  // The frame's bytes must stay while this is used.
  static SuperPacket parse(std::span<const std::uint8_t> frame);

  Fault fault() const { return fault_; }
  std::uint32_t destination() const;  // host byte order
  std::size_t num_packets() const { return num_packets_; }
  void cut(std::size_t index, Packet& packet) const;

 private:
  bool parse_transport(const VnetHeader& vnet);
  void cut_segment(std::size_t index, Packet& packet) const;

  Fault fault_ = Fault::malformed;
  std::span<const std::uint8_t> bytes_;  // the IP packet
  Transport transport_ = Transport::plain;
  std::size_t ip_header_bytes_ = 0;
  std::size_t header_bytes_ = 0;
  std::size_t segment_bytes_ = 0;  // payload of all packets but the last; 0: this is no super-packet
  std::size_t num_packets_ = 0;
  bool checksum_is_partial_ = false;
  std::uint16_t checksum_start_ = 0;
  std::uint16_t checksum_offset_ = 0;
};

// Packets of one flow on their way into one write.
class Merger {
 public:
  // False: does not continue what is here; write that first. An empty merger takes any packet. The packet must stay.
  bool add(const Packet& packet);
  bool empty() const { return num_packets_ == 0; }
  std::size_t num_packets() const { return num_packets_; }
  // One frame as TUN takes it; good until the next add().
  std::span<const iovec> frame();
  void clear() { num_packets_ = 0; }

 private:
  static constexpr std::size_t max_packets = 64;  // Linux takes up to 128 segments of UDP

  bool continues(const Packet& packet) const;
  void build_header();

  std::array<const Packet*, max_packets> packets_;
  std::size_t num_packets_ = 0;
  std::size_t payload_bytes_ = 0;
  VnetHeader vnet_{};
  std::array<std::uint8_t, 120> header_;  // IP and TCP headers are at most 60 bytes each
  std::array<iovec, max_packets + 2> parts_;
};

}  // namespace holdfast::lab
