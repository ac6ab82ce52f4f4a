// wire: any bytes as a datagram, and any header as bytes.
#include <cstring>

#include "core/wire.h"
#include "fuzz/check.h"
#include "fuzz/input.h"

using namespace holdfast;

namespace {

using Octets = std::array<std::uint8_t, header_bytes>;

Octets octets_of(const Header& header) {
  Octets octets{};
  encode(header, octets);
  return octets;
}

// Every octet of a header means something: what was read is written again bit for bit.
void check_datagram(std::span<const std::uint8_t> datagram) {
  const std::size_t payload_bytes = datagram.size() < header_bytes ? 0 : datagram.size() - header_bytes;
  Header header;
  const auto drop = decode(datagram, payload_bytes, header);
  if (datagram.size() < header_bytes) FUZZ_CHECK(drop == Drop::truncated);
  if (drop) return;
  const Octets again = octets_of(header);
  FUZZ_CHECK(std::memcmp(again.data(), datagram.data(), header_bytes) == 0);
  if (header.stage == Stage::none) return;
  FUZZ_CHECK(header.offset <= header.total);
  FUZZ_CHECK(covered_elements(header, payload_bytes) <= header.total - header.offset);
  if (header.type == PacketType::narrow) FUZZ_CHECK(header.format == Format::f32 && header.packed_elements != 0);
  if (header.type == PacketType::data) FUZZ_CHECK(payload_bytes % element_bytes(header.format) == 0);
}

void check_fields(fuzz::Input& input) {
  Header header;
  header.type = static_cast<PacketType>(input.between(1, 8));
  header.flags = input.take<std::uint8_t>();
  header.key_phase = input.take<std::uint8_t>();
  header.job = input.take<std::uint32_t>();
  header.epoch = input.take<std::uint32_t>();
  header.sender = input.take<std::uint16_t>();
  header.credit = input.take<std::uint8_t>();
  header.stage = static_cast<Stage>(input.below(4));
  header.format = static_cast<Format>(input.below(5));
  header.transmission = input.take<std::uint64_t>() & max_transmission;
  header.packed_elements = input.take<std::uint16_t>();
  header.operation = input.take<std::uint32_t>();
  header.layout = input.take<std::uint32_t>();
  header.total = input.take<std::uint32_t>();
  header.offset = input.take<std::uint32_t>();
  header.completion_us = input.take<std::uint32_t>();
  header.missing = input.take<std::uint32_t>();
  const Octets octets = octets_of(header);
  Header read;
  const auto drop = decode(octets, input.take<std::uint16_t>(), read);
  FUZZ_CHECK(!drop || *drop == Drop::malformed || *drop == Drop::truncated);
  FUZZ_CHECK(octets_of(read) == octets);  // refused or not, nothing is read wrongly
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  if (input.flag()) {
    check_fields(input);
  } else {
    check_datagram(input.rest());
  }
  return 0;
}
