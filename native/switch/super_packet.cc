#include "switch/super_packet.h"

#include <algorithm>
#include <cstring>

#include "switch/internet.h"

namespace holdfast::lab {
namespace {

constexpr std::size_t checksum_in(Transport transport) {
  return transport == Transport::tcp ? tcp::checksum : udp::checksum;
}

// Sets what depends on the number of bytes behind the headers: IP length and checksum, UDP length, partial checksum.
void set_payload_bytes(std::uint8_t* header, Transport transport, std::size_t ip_header_bytes, std::size_t header_bytes,
                       std::size_t payload_bytes) {
  set_ip_length(header, ip_header_bytes, header_bytes + payload_bytes);
  std::uint8_t* inner = header + ip_header_bytes;
  const std::size_t inner_bytes = header_bytes - ip_header_bytes + payload_bytes;
  if (transport == Transport::udp) store_big_endian(inner + udp::length, static_cast<std::uint16_t>(inner_bytes));
  store_big_endian(inner + checksum_in(transport), pseudo_header_sum(header, inner_bytes));
}

std::size_t ip_header_bytes_of(const std::uint8_t* packet) { return (packet[0] & 0x0f) * std::size_t{4}; }

}  // namespace

SuperPacket SuperPacket::parse(std::span<const std::uint8_t> frame) {
  SuperPacket result;
  if (frame.size() < sizeof(VnetHeader) + 1) return result;
  VnetHeader vnet;
  std::memcpy(&vnet, frame.data(), sizeof vnet);
  const std::span<const std::uint8_t> bytes = frame.subspan(sizeof vnet);
  if (bytes[0] >> 4 != 4) {
    result.fault_ = Fault::not_ipv4;
    return result;
  }
  if (bytes.size() < ip::min_header) return result;
  const std::size_t total = load_big_endian<std::uint16_t>(&bytes[ip::total_length]);
  result.ip_header_bytes_ = ip_header_bytes_of(bytes.data());
  if (result.ip_header_bytes_ < ip::min_header || total < result.ip_header_bytes_ || total > bytes.size()) {
    return result;
  }
  result.bytes_ = bytes.first(total);
  if (result.parse_transport(vnet)) result.fault_ = Fault::none;
  return result;
}

// Finds out what can be cut and merged. False: the frame contradicts itself.
bool SuperPacket::parse_transport(const VnetHeader& vnet) {
  const std::size_t total = bytes_.size();
  const bool is_fragment = (load_big_endian<std::uint16_t>(&bytes_[ip::fragment]) & ip::fragment_bits) != 0;
  const std::span<const std::uint8_t> inner = bytes_.subspan(ip_header_bytes_);
  if (vnet.flags & VnetHeader::needs_checksum) {
    if (std::size_t{vnet.checksum_start} + vnet.checksum_offset + 2 > total) return false;
    checksum_is_partial_ = true;
    checksum_start_ = vnet.checksum_start;
    checksum_offset_ = vnet.checksum_offset;
  }
  const auto has_checksum_at = [&](std::size_t offset) {
    return checksum_is_partial_ && checksum_start_ == ip_header_bytes_ && checksum_offset_ == offset;
  };
  if (is_fragment) {
    transport_ = Transport::plain;
  } else if (bytes_[ip::protocol] == ip::tcp && inner.size() >= tcp::min_header && has_checksum_at(tcp::checksum)) {
    const std::size_t tcp_header_bytes = (inner[tcp::data_offset] >> 4) * std::size_t{4};
    if (tcp_header_bytes < tcp::min_header || tcp_header_bytes > inner.size()) return false;
    transport_ = Transport::tcp;
    header_bytes_ = ip_header_bytes_ + tcp_header_bytes;
  } else if (bytes_[ip::protocol] == ip::udp && inner.size() >= udp::header && has_checksum_at(udp::checksum)) {
    if (load_big_endian<std::uint16_t>(&inner[udp::length]) != inner.size()) return false;
    transport_ = Transport::udp;
    header_bytes_ = ip_header_bytes_ + udp::header;
  }

  const unsigned gso_type = vnet.gso_type & ~unsigned{VnetHeader::gso_ecn};
  if (gso_type == VnetHeader::gso_none) {
    num_packets_ = 1;
    return total <= Packet::max_bytes;
  }
  const Transport announced = gso_type == VnetHeader::gso_tcp4     ? Transport::tcp
                              : gso_type == VnetHeader::gso_udp_l4 ? Transport::udp
                                                                   : Transport::plain;
  if (announced == Transport::plain || announced != transport_ || vnet.gso_size == 0) return false;
  segment_bytes_ = vnet.gso_size;
  if (header_bytes_ + std::min(segment_bytes_, total - header_bytes_) > Packet::max_bytes) return false;
  num_packets_ = std::max<std::size_t>(1, (total - header_bytes_ + segment_bytes_ - 1) / segment_bytes_);
  return true;
}

std::uint32_t SuperPacket::destination() const { return load_big_endian<std::uint32_t>(&bytes_[ip::destination]); }

void SuperPacket::cut(std::size_t index, Packet& packet) const {
  packet.transport = transport_;
  packet.header_bytes = static_cast<std::uint16_t>(header_bytes_);
  packet.checksum_is_partial = checksum_is_partial_;
  packet.checksum_start = checksum_start_;
  packet.checksum_offset = checksum_offset_;
  if (num_packets_ > 1) {
    cut_segment(index, packet);
  } else {
    packet.num_bytes = static_cast<std::uint16_t>(bytes_.size());
    std::memcpy(packet.bytes.data(), bytes_.data(), bytes_.size());
  }
}

void SuperPacket::cut_segment(std::size_t index, Packet& packet) const {
  const std::size_t begin = header_bytes_ + index * segment_bytes_;
  const std::size_t payload_bytes = std::min(segment_bytes_, bytes_.size() - begin);
  std::uint8_t* header = packet.bytes.data();
  std::memcpy(header, bytes_.data(), header_bytes_);
  std::memcpy(header + header_bytes_, &bytes_[begin], payload_bytes);
  packet.num_bytes = static_cast<std::uint16_t>(header_bytes_ + payload_bytes);

  const auto first_id = load_big_endian<std::uint16_t>(header + ip::identification);
  store_big_endian(header + ip::identification, static_cast<std::uint16_t>(first_id + index));
  if (transport_ == Transport::tcp) {
    std::uint8_t* inner = header + ip_header_bytes_;
    const auto first_sequence = load_big_endian<std::uint32_t>(inner + tcp::sequence);
    store_big_endian(inner + tcp::sequence, static_cast<std::uint32_t>(first_sequence + index * segment_bytes_));
    if (index > 0) inner[tcp::flags] &= static_cast<std::uint8_t>(~tcp::cwr);
    if (index + 1 < num_packets_) inner[tcp::flags] &= static_cast<std::uint8_t>(~(tcp::fin | tcp::psh));
  }
  set_payload_bytes(header, transport_, ip_header_bytes_, header_bytes_, payload_bytes);
}

bool Merger::add(const Packet& packet) {
  if (num_packets_ > 0 && !continues(packet)) return false;
  if (num_packets_ == 0) payload_bytes_ = 0;
  packets_[num_packets_++] = &packet;
  payload_bytes_ += packet.payload().size();
  return true;
}

bool Merger::continues(const Packet& packet) const {
  const Packet& first = *packets_[0];
  const Packet& last = *packets_[num_packets_ - 1];
  if (packet.transport == Transport::plain || packet.transport != first.transport) return false;
  if (packet.header_bytes != first.header_bytes || num_packets_ == max_packets) return false;
  const std::size_t segment_bytes = first.payload().size();
  const std::size_t bytes = packet.payload().size();
  if (bytes == 0 || bytes > segment_bytes || last.payload().size() != segment_bytes) return false;
  if (first.header_bytes + payload_bytes_ + bytes > 0xffff) return false;

  const std::uint8_t* ours = first.bytes.data();
  const std::uint8_t* its = packet.bytes.data();
  const std::size_t ip_header_bytes = ip_header_bytes_of(ours);
  const auto same = [&](std::size_t begin, std::size_t end) {
    return begin >= end || std::memcmp(ours + begin, its + begin, end - begin) == 0;
  };
  const auto id = [](const std::uint8_t* header) {
    return load_big_endian<std::uint16_t>(header + ip::identification);
  };
  if (static_cast<std::uint16_t>(id(ours) + num_packets_) != id(its)) return false;
  if (!same(0, ip::total_length) || !same(ip::fragment, ip::checksum) || !same(ip::source, ip_header_bytes)) {
    return false;
  }
  const std::size_t inner = ip_header_bytes;
  if (packet.transport == Transport::udp) return same(inner, inner + udp::length);  // the ports

  const std::uint8_t our_flags = ours[inner + tcp::flags];
  const std::uint8_t last_flags = last.bytes[inner + tcp::flags];
  const std::uint8_t its_flags = its[inner + tcp::flags];
  if ((our_flags | its_flags) & (tcp::syn | tcp::rst | tcp::urg)) return false;
  if (last_flags & (tcp::fin | tcp::psh)) return false;  // these stand on the last packet only
  if (its_flags & tcp::cwr) return false;                // and this on the first
  const std::uint8_t may_differ = tcp::fin | tcp::psh | tcp::cwr;
  if ((our_flags | may_differ) != (its_flags | may_differ)) return false;
  const auto sequence = [&](const std::uint8_t* header) {
    return load_big_endian<std::uint32_t>(header + inner + tcp::sequence);
  };
  return sequence(ours) + static_cast<std::uint32_t>(payload_bytes_) == sequence(its) &&
         same(inner, inner + tcp::sequence) &&                   // the ports
         same(inner + tcp::sequence + 4, inner + tcp::flags) &&  // acknowledgement, header length
         same(inner + tcp::flags + 1, inner + tcp::checksum) &&  // window
         same(inner + tcp::checksum + 2, first.header_bytes);    // urgent pointer, options
}

std::span<const iovec> Merger::frame() {
  const Packet& first = *packets_[0];
  vnet_ = {};
  if (first.checksum_is_partial) {
    vnet_.flags = VnetHeader::needs_checksum;
    vnet_.checksum_start = first.checksum_start;
    vnet_.checksum_offset = first.checksum_offset;
  }
  parts_[0] = {&vnet_, sizeof vnet_};
  const auto part = [](std::span<const std::uint8_t> bytes) {
    return iovec{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};  // writev only reads
  };
  if (num_packets_ == 1) {
    parts_[1] = part(first.view());
    return {parts_.data(), 2};
  }
  build_header();
  parts_[1] = part({header_.data(), first.header_bytes});
  for (std::size_t i = 0; i < num_packets_; ++i) parts_[2 + i] = part(packets_[i]->payload());
  return {parts_.data(), 2 + num_packets_};
}

void Merger::build_header() {
  const Packet& first = *packets_[0];
  const Packet& last = *packets_[num_packets_ - 1];
  std::memcpy(header_.data(), first.bytes.data(), first.header_bytes);
  const std::size_t ip_header_bytes = ip_header_bytes_of(header_.data());
  vnet_.header_bytes = first.header_bytes;
  vnet_.gso_size = static_cast<std::uint16_t>(first.payload().size());
  vnet_.gso_type = VnetHeader::gso_udp_l4;
  if (first.transport == Transport::tcp) {
    std::uint8_t& flags = header_[ip_header_bytes + tcp::flags];
    flags |= last.bytes[ip_header_bytes + tcp::flags] & (tcp::fin | tcp::psh);
    vnet_.gso_type = VnetHeader::gso_tcp4;
    if (flags & tcp::cwr) vnet_.gso_type |= VnetHeader::gso_ecn;
  }
  set_payload_bytes(header_.data(), first.transport, ip_header_bytes, first.header_bytes, payload_bytes_);
}

}  // namespace holdfast::lab
