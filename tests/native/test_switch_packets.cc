// Super-packets cut and put together again, against packets that are built here independently, byte by byte.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "sim/random.h"
#include "switch/super_packet.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::lab;

namespace {

using Bytes = std::vector<std::uint8_t>;

void put16(Bytes& bytes, std::size_t at, unsigned value) {
  bytes[at] = static_cast<std::uint8_t>(value >> 8);
  bytes[at + 1] = static_cast<std::uint8_t>(value);
}
void put32(Bytes& bytes, std::size_t at, std::uint32_t value) {
  put16(bytes, at, value >> 16);
  put16(bytes, at + 2, value & 0xffff);
}

// The Internet checksum in the slow way of RFC 1071: one's complement addition, carry by carry.
std::uint16_t ones_complement_sum(const Bytes& bytes, std::uint16_t start = 0) {
  std::uint16_t sum = start;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto word = static_cast<std::uint16_t>(bytes[i] << 8 | (i + 1 < bytes.size() ? bytes[i + 1] : 0));
    const std::uint32_t wide = std::uint32_t{sum} + word;
    sum = static_cast<std::uint16_t>(wide > 0xffff ? wide - 0xffff : wide);
  }
  return sum;
}

struct Flow {
  bool tcp = true;
  std::size_t ip_options = 0;           // bytes, a multiple of 4
  std::size_t tcp_options = 0;          // bytes, a multiple of 4
  std::uint8_t flags = 0x10;            // ACK
  std::uint16_t id = 0xfffe;            // wraps
  std::uint32_t sequence = 0xfffffa00;  // wraps
  std::uint8_t tos = 2;

  std::size_t ip_header() const { return 20 + ip_options; }
  std::size_t header() const { return ip_header() + (tcp ? 20 + tcp_options : 8); }
};

Bytes payload_of(std::size_t bytes, std::uint64_t seed = 1) {
  sim::Random random(seed, 0);
  Bytes payload(bytes);
  for (std::uint8_t& byte : payload) byte = static_cast<std::uint8_t>(random.bits());
  return payload;
}

Bytes pseudo_header(const Bytes& packet, std::size_t ip_header) {
  Bytes pseudo(packet.begin() + 12, packet.begin() + 20);
  pseudo.push_back(0);
  pseudo.push_back(packet[9]);
  const std::size_t inner = packet.size() - ip_header;
  pseudo.push_back(static_cast<std::uint8_t>(inner >> 8));
  pseudo.push_back(static_cast<std::uint8_t>(inner));
  return pseudo;
}

// An IP packet with a partial (`complete` false) or a complete transport checksum.
Bytes packet_of(const Flow& flow, const Bytes& payload, bool complete) {
  Bytes packet(flow.header());
  packet.insert(packet.end(), payload.begin(), payload.end());
  packet[0] = static_cast<std::uint8_t>(0x40 | flow.ip_header() / 4);
  packet[1] = flow.tos;
  put16(packet, 2, static_cast<unsigned>(packet.size()));
  put16(packet, 4, flow.id);
  put16(packet, 6, 0x4000);
  packet[8] = 64;
  packet[9] = flow.tcp ? 6 : 17;
  put32(packet, 12, 0x0a4d0001);
  put32(packet, 16, 0x0a4d0002);
  for (std::size_t i = 0; i < flow.ip_options; ++i) packet[20 + i] = 1;  // no operation
  put16(packet, 10, 0);
  const Bytes ip(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(flow.ip_header()));
  put16(packet, 10, static_cast<std::uint16_t>(~ones_complement_sum(ip)));

  const std::size_t inner = flow.ip_header();
  put16(packet, inner, 40000);
  put16(packet, inner + 2, 5001);
  std::size_t checksum_at = inner + 6;
  if (flow.tcp) {
    put32(packet, inner + 4, flow.sequence);
    put32(packet, inner + 8, 77);
    packet[inner + 12] = static_cast<std::uint8_t>((20 + flow.tcp_options) / 4 << 4);
    packet[inner + 13] = flow.flags;
    put16(packet, inner + 14, 500);
    for (std::size_t i = 0; i < flow.tcp_options; ++i) packet[inner + 20 + i] = static_cast<std::uint8_t>(i + 1);
    checksum_at = inner + 16;
  } else {
    put16(packet, inner + 4, static_cast<unsigned>(packet.size() - inner));
  }
  std::uint16_t sum = ones_complement_sum(pseudo_header(packet, inner));
  if (complete) {
    put16(packet, checksum_at, 0);
    sum = ones_complement_sum(Bytes(packet.begin() + static_cast<std::ptrdiff_t>(inner), packet.end()), sum);
    sum = static_cast<std::uint16_t>(~sum);
  }
  put16(packet, checksum_at, sum);
  return packet;
}

Bytes frame_of(const Flow& flow, const Bytes& packet, std::size_t gso_size) {
  VnetHeader vnet;
  vnet.flags = VnetHeader::needs_checksum;
  vnet.gso_size = static_cast<std::uint16_t>(gso_size);
  vnet.gso_type = gso_size == 0 ? VnetHeader::gso_none : flow.tcp ? VnetHeader::gso_tcp4 : VnetHeader::gso_udp_l4;
  if (gso_size != 0 && flow.tcp && flow.flags & 0x80) vnet.gso_type |= VnetHeader::gso_ecn;
  vnet.header_bytes = gso_size == 0 ? 0 : static_cast<std::uint16_t>(flow.header());
  vnet.checksum_start = static_cast<std::uint16_t>(flow.ip_header());
  vnet.checksum_offset = flow.tcp ? 16 : 6;
  Bytes frame(sizeof vnet);
  std::memcpy(frame.data(), &vnet, sizeof vnet);
  frame.insert(frame.end(), packet.begin(), packet.end());
  return frame;
}

Bytes super_frame(const Flow& flow, const Bytes& payload, std::size_t gso_size) {
  return frame_of(flow, packet_of(flow, payload, false), gso_size);
}

// What a device that segments would have put on the wire: segment `index` of `count`.
Bytes expected_segment(Flow flow, const Bytes& payload, std::size_t gso_size, std::size_t index, bool complete = true) {
  const std::size_t count = (payload.size() + gso_size - 1) / gso_size;
  const std::size_t begin = index * gso_size, end = std::min(payload.size(), begin + gso_size);
  flow.id = static_cast<std::uint16_t>(flow.id + index);
  flow.sequence += static_cast<std::uint32_t>(begin);
  if (index + 1 != count) flow.flags &= 0xf6;  // no FIN, no PSH
  if (index != 0) flow.flags &= 0x7f;          // no CWR
  return packet_of(
      flow,
      Bytes(payload.begin() + static_cast<std::ptrdiff_t>(begin), payload.begin() + static_cast<std::ptrdiff_t>(end)),
      complete);
}

// As the kernel completes a partial checksum.
Bytes completed(const Packet& packet) {
  Bytes bytes(packet.view().begin(), packet.view().end());
  if (!packet.checksum_is_partial) return bytes;
  const Bytes summed(bytes.begin() + packet.checksum_start, bytes.end());
  put16(bytes, packet.checksum_start + packet.checksum_offset,
        static_cast<std::uint16_t>(~ones_complement_sum(summed)));
  return bytes;
}

bool checksums_are_right(const Bytes& packet) {
  const std::size_t ip_header = (packet[0] & 15) * 4u;
  const auto begin = packet.begin(), inner = begin + static_cast<std::ptrdiff_t>(ip_header);
  return ones_complement_sum(Bytes(begin, inner)) == 0xffff &&
         ones_complement_sum(Bytes(inner, packet.end()), ones_complement_sum(pseudo_header(packet, ip_header))) ==
             0xffff;
}

std::vector<Packet> cut_all(const Bytes& frame) {
  const SuperPacket super = SuperPacket::parse(frame);
  HF_CHECK(super.fault() == SuperPacket::Fault::none);
  std::vector<Packet> packets(super.num_packets());
  for (std::size_t i = 0; i < packets.size(); ++i) super.cut(i, packets[i]);
  return packets;
}

std::vector<Bytes> merge_all(const std::vector<Packet>& packets) {
  std::vector<Bytes> frames;
  Merger merger;
  const auto flush = [&] {
    if (merger.empty()) return;
    Bytes frame;
    for (const iovec& part : merger.frame()) {
      const auto* bytes = static_cast<const std::uint8_t*>(part.iov_base);
      frame.insert(frame.end(), bytes, bytes + part.iov_len);
    }
    frames.push_back(frame);
    merger.clear();
  };
  for (const Packet& packet : packets) {
    if (merger.add(packet)) continue;
    flush();
    HF_CHECK(merger.add(packet));
  }
  flush();
  return frames;
}

std::vector<Flow> flows() {
  std::vector<Flow> all;
  for (const bool tcp : {true, false}) {
    for (const std::size_t ip_options : {0, 8, 40}) {
      for (const std::size_t tcp_options : {0, 12, 40}) {
        for (const std::uint8_t flags : {0x10, 0x18, 0x19, 0x90, 0xd9}) {
          Flow flow;
          flow.tcp = tcp;
          flow.ip_options = ip_options;
          flow.tcp_options = tcp_options;
          flow.flags = flags;
          all.push_back(flow);
        }
      }
    }
  }
  return all;
}

}  // namespace

HF_CASE(what_is_cut_is_what_a_segmenting_device_sends) {
  for (const Flow& flow : flows()) {
    for (const std::size_t gso_size : {1400, 999, 1, 1401}) {
      for (const std::size_t extra : {std::size_t{0}, std::size_t{1}, gso_size / 2, gso_size - 1}) {
        const Bytes payload = payload_of(5 * gso_size + extra);
        const std::vector<Packet> packets = cut_all(super_frame(flow, payload, gso_size));
        HF_EQUAL(packets.size(), 5u + (extra > 0 ? 1 : 0));
        for (std::size_t i = 0; i < packets.size(); ++i) {
          HF_CHECK(completed(packets[i]) == expected_segment(flow, payload, gso_size, i));
          HF_CHECK(checksums_are_right(completed(packets[i])));
        }
      }
    }
  }
}

HF_CASE(all_segments_together_are_the_super_packet_again) {
  for (const Flow& flow : flows()) {
    for (const std::size_t bytes : {2800u, 2801u, 7777u, 16000u}) {
      const Bytes frame = super_frame(flow, payload_of(bytes), 1400);
      const std::vector<Bytes> frames = merge_all(cut_all(frame));
      HF_EQUAL(frames.size(), 1u);
      HF_CHECK(frames[0] == frame);
    }
  }
}

HF_CASE(survivors_of_a_loss_are_merged_on_both_sides_and_cut_to_the_same_packets) {
  for (const Flow& flow : flows()) {
    for (std::size_t lost = 0; lost < 7; ++lost) {
      const Bytes payload = payload_of(6 * 1300 + 77);
      std::vector<Packet> packets = cut_all(super_frame(flow, payload, 1300));
      packets.erase(packets.begin() + static_cast<std::ptrdiff_t>(lost));
      const std::vector<Bytes> frames = merge_all(packets);
      HF_EQUAL(frames.size(), lost == 0 || lost == 6 ? 1u : 2u);
      std::vector<Bytes> again;
      for (const Bytes& frame : frames) {
        for (const Packet& packet : cut_all(frame)) again.push_back(completed(packet));
      }
      HF_EQUAL(again.size(), 6u);
      for (std::size_t i = 0; i < again.size(); ++i) {
        HF_CHECK(again[i] == expected_segment(flow, payload, 1300, i < lost ? i : i + 1));
      }
    }
  }
}

HF_CASE(what_is_not_the_next_segment_is_not_merged) {
  for (const bool tcp : {true, false}) {
    Flow flow;
    flow.tcp = tcp;
    flow.tcp_options = tcp ? 12 : 0;
    const Bytes payload = payload_of(2000);
    const auto follows = [&](auto change, std::size_t first_bytes = 1000) {
      const Bytes first(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(first_bytes));
      Flow next = flow;
      next.id = static_cast<std::uint16_t>(flow.id + 1);
      next.sequence += static_cast<std::uint32_t>(first_bytes);
      Bytes second = packet_of(next, Bytes(payload.begin() + 1000, payload.end()), false);
      change(second);
      std::vector<Packet> packets = cut_all(super_frame(flow, first, 0));
      packets.push_back(cut_all(frame_of(next, second, 0))[0]);
      return merge_all(packets).size() == 1;
    };
    const std::size_t inner = flow.ip_header();
    const auto flip = [](std::size_t at, std::uint8_t bits) { return [=](Bytes& bytes) { bytes[at] ^= bits; }; };
    HF_CHECK(follows([](Bytes&) {}));
    HF_CHECK(!follows([](Bytes&) {}, 999));         // longer than the first
    HF_CHECK(!follows(flip(1, 1)));                 // ECN
    HF_CHECK(!follows(flip(5, 1)));                 // IP id
    HF_CHECK(!follows(flip(6, 0x40)));              // DF
    HF_CHECK(!follows(flip(8, 1)));                 // TTL
    HF_CHECK(!follows(flip(15, 1)));                // source
    HF_CHECK(!follows(flip(19, 4)));                // destination
    HF_CHECK(!follows(flip(inner + 1, 1)));         // source port
    HF_CHECK(!follows(flip(inner + 3, 1)));         // destination port
    HF_CHECK(follows(flip(flow.header() + 5, 1)));  // payload
    if (!tcp) continue;
    HF_CHECK(!follows(flip(inner + 7, 1)));   // sequence
    HF_CHECK(!follows(flip(inner + 11, 1)));  // acknowledgement
    HF_CHECK(!follows(flip(inner + 15, 1)));  // window
    HF_CHECK(!follows(flip(inner + 25, 1)));  // option
    for (const std::uint8_t flag : {0x02, 0x04, 0x20, 0x40, 0x80}) HF_CHECK(!follows(flip(inner + 13, flag)));
    for (const std::uint8_t flag : {0x01, 0x08}) HF_CHECK(follows(flip(inner + 13, flag)));
    flow.flags = 0x18;  // PSH ends a merge: data behind it would be pushed late
    HF_CHECK(!follows([](Bytes&) {}));
    flow.flags = 0x10;
  }
}

HF_CASE(an_acknowledgement_and_a_short_segment_end_a_merge) {
  Flow flow;
  const Bytes payload = payload_of(2500);
  std::vector<Packet> packets = cut_all(super_frame(flow, payload, 1000));  // 1000, 1000, 500
  Flow more = flow;
  more.id = static_cast<std::uint16_t>(flow.id + 3);
  more.sequence += 2500;
  packets.push_back(cut_all(super_frame(more, payload_of(500), 0))[0]);
  more.id = static_cast<std::uint16_t>(more.id + 1);
  more.sequence += 500;
  packets.push_back(cut_all(super_frame(more, {}, 0))[0]);
  HF_EQUAL(merge_all(packets).size(), 3u);
}

HF_CASE(a_merge_stays_below_64_kib) {
  Flow flow;
  std::vector<Packet> packets = cut_all(super_frame(flow, payload_of(60000), 1460));
  Flow more = flow;
  more.id = static_cast<std::uint16_t>(flow.id + packets.size());
  more.sequence += 60000;
  // Not a multiple: continue from a full-size run instead.
  packets.pop_back();
  more.id = static_cast<std::uint16_t>(flow.id + packets.size());
  more.sequence = flow.sequence + static_cast<std::uint32_t>(packets.size() * 1460);
  for (const Packet& packet : cut_all(super_frame(more, payload_of(20 * 1460), 1460))) packets.push_back(packet);
  std::size_t total = 0;
  for (const Bytes& frame : merge_all(packets)) {
    HF_CHECK(frame.size() <= sizeof(VnetHeader) + 0xffff);
    total += cut_all(frame).size();
  }
  HF_EQUAL(total, packets.size());
  HF_EQUAL(merge_all(packets).size(), 2u);
}

HF_CASE(packets_that_are_no_super_packets_pass_unchanged) {
  Flow flow;
  flow.tcp = false;
  Bytes packet = packet_of(flow, payload_of(901), true);
  const Bytes no_vnet(sizeof(VnetHeader));
  const auto pass = [&](const Bytes& bytes) {
    Bytes frame = no_vnet;
    frame.insert(frame.end(), bytes.begin(), bytes.end());
    const std::vector<Bytes> frames = merge_all(cut_all(frame));
    HF_EQUAL(frames.size(), 1u);
    HF_CHECK(frames[0] == frame);
  };
  pass(packet);  // complete checksum
  packet[9] = 1;
  pass(packet);  // ICMP
  packet[9] = 17;
  put16(packet, 6, 0x2000);
  pass(packet);  // the first fragment
  put16(packet, 6, 0x00b9);
  pass(packet);  // the last fragment: its first bytes are no UDP header
}

HF_CASE(fragments_and_unrelated_packets_are_never_merged) {
  Flow flow;
  flow.tcp = false;
  Bytes frame = super_frame(flow, payload_of(500), 0);
  put16(frame, sizeof(VnetHeader) + 6, 0x2000);
  std::vector<Packet> packets = cut_all(frame);
  packets.push_back(packets[0]);
  put16(frame, sizeof(VnetHeader) + 4, flow.id + 1);
  packets.push_back(cut_all(frame)[0]);
  HF_EQUAL(merge_all(packets).size(), 3u);
}

HF_CASE(trailing_bytes_beyond_the_ip_length_are_not_payload) {
  Flow flow;
  Bytes frame = super_frame(flow, payload_of(2500), 1000);
  const Bytes clean = frame;
  frame.insert(frame.end(), 33, 0xee);
  HF_CHECK(merge_all(cut_all(frame))[0] == clean);
}

HF_CASE(frames_that_contradict_themselves_are_refused) {
  Flow flow;
  flow.tcp_options = 12;
  const Bytes good = super_frame(flow, payload_of(5000), 1400);
  const std::size_t ip = sizeof(VnetHeader), inner = ip + 20;
  const auto fault = [&](auto change) {
    Bytes frame = good;
    change(frame);
    return SuperPacket::parse(frame).fault();
  };
  using Fault = SuperPacket::Fault;
  HF_CHECK(fault([](Bytes&) {}) == Fault::none);
  HF_CHECK(fault([&](Bytes& f) { f[ip] = 0x60; }) == Fault::not_ipv4);
  HF_CHECK(fault([&](Bytes& f) { f[ip] = 0x44; }) == Fault::malformed);          // IP header of 16 bytes
  HF_CHECK(fault([&](Bytes& f) { f[ip] = 0x4f; }) == Fault::malformed);          // where TCP is not
  HF_CHECK(fault([&](Bytes& f) { put16(f, ip + 2, 19); }) == Fault::malformed);  // shorter than its header
  HF_CHECK(fault([&](Bytes& f) { put16(f, ip + 2, 0); }) == Fault::malformed);
  HF_CHECK(fault([&](Bytes& f) { put16(f, ip + 2, 5053); }) == Fault::malformed);    // longer than the frame
  HF_CHECK(fault([&](Bytes& f) { put16(f, ip + 6, 0x2000); }) == Fault::malformed);  // a fragment to segment
  HF_CHECK(fault([&](Bytes& f) { f[ip + 9] = 17; }) == Fault::malformed);            // UDP announced as TCP
  HF_CHECK(fault([&](Bytes& f) { f[inner + 12] = 0x40; }) == Fault::malformed);      // TCP header of 16 bytes
  HF_CHECK(fault([&](Bytes& f) { f[1] = 3; }) == Fault::malformed);                  // UDP fragmentation offload
  HF_CHECK(fault([&](Bytes& f) { f[1] = 4; }) == Fault::malformed);                  // TCP over IPv6
  HF_CHECK(fault([&](Bytes& f) { f[0] = 0; }) == Fault::malformed);                  // no checksum to complete
  HF_CHECK(fault([&](Bytes& f) { f[4] = f[5] = 0; }) == Fault::malformed);           // segments of 0 bytes
  HF_CHECK(fault([&](Bytes& f) { f[4] = 0xff, f[5] = 0x07; }) == Fault::malformed);  // of 2047
  HF_CHECK(fault([&](Bytes& f) { f[6] = 0xff, f[7] = 0xff; }) == Fault::malformed);  // checksum outside
  HF_CHECK(fault([&](Bytes& f) { f[1] = 0; }) == Fault::malformed);                  // 5 kB and not to be cut
  HF_CHECK(SuperPacket::parse({}).fault() == Fault::malformed);
}

HF_CASE(a_truncated_frame_is_refused_whatever_its_length) {
  for (const bool tcp : {true, false}) {
    Flow flow;
    flow.tcp = tcp;
    const Bytes good = super_frame(flow, payload_of(2900), 1400);
    for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
      const Bytes frame(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes));  // exact: ASan sees the end
      HF_CHECK(SuperPacket::parse(frame).fault() == SuperPacket::Fault::malformed);
    }
  }
}

HF_CASE(random_damage_never_leads_outside_the_frame) {
  sim::Random random(7, 0);
  for (int round = 0; round < 20000; ++round) {
    Flow flow;
    flow.tcp = random.chance(0.5);
    flow.ip_options = random.below(11) * 4;
    flow.tcp_options = random.below(11) * 4;
    Bytes frame = super_frame(flow, payload_of(random.below(4000), random.bits()), random.below(3) * 700);
    for (std::uint64_t damage = random.below(6); damage > 0; --damage) {
      frame[random.below(std::min<std::size_t>(frame.size(), 60))] = static_cast<std::uint8_t>(random.bits());
    }
    frame.resize(frame.size() - random.below(std::min<std::size_t>(frame.size(), 40)));
    const SuperPacket super = SuperPacket::parse(frame);
    if (super.fault() != SuperPacket::Fault::none) continue;
    std::vector<Packet> packets(super.num_packets());
    for (std::size_t i = 0; i < packets.size(); ++i) super.cut(i, packets[i]);
    std::size_t again = 0;
    for (const Bytes& merged : merge_all(packets)) again += cut_all(merged).size();
    HF_EQUAL(again, packets.size());
  }
}

HF_TEST_MAIN
