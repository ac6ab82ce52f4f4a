// What a peer with valid keys and bad manners says. Values are true (fuzz/elements.h, note_byte) whatever place, size
// and operation they claim, so that what a victim makes of them can be checked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/division.h"
#include "core/endpoint.h"
#include "fuzz/elements.h"
#include "fuzz/input.h"

namespace holdfast::fuzz {

inline std::uint8_t note_byte(std::uint32_t sender, std::uint32_t number, std::size_t at) {
  return static_cast<std::uint8_t>(sender * 31 + number * 17 + at * 7 + 1);
}

class Liar {
 public:
  using Bytes = std::vector<std::uint8_t>;
  struct Statement {
    Header header;
    Bytes payload;
  };

  Liar(Input& input, const EndpointSettings& victim) : input_(input), victim_(victim) {}

  // Of an operation around `next`, the victim's own.
  Statement data(std::uint16_t sender, std::uint32_t next) {
    Header header;
    const std::uint32_t kind = input_.below(10);
    header.stage = kind <= 4 ? Stage::contribution : Stage::result;
    header.type = kind == 4 || kind == 9 ? PacketType::end : kind == 8 ? PacketType::hole : PacketType::data;
    header.flags = static_cast<std::uint8_t>(input_.below(flag::all + 1));
    if (!input_.rarely()) header.flags &= static_cast<std::uint8_t>(~flag::sum);
    if (input_.rarely()) header.division = static_cast<std::uint8_t>(input_.below(Division::max_number + 1));
    header.encoded = input_.rarely();
    header.without_receiver = input_.rarely();
    header.without_owner = input_.rarely();
    header.operation = next + input_.below(8) - std::min(next, 2u);
    header.format = usual_format();
    header.credit = static_cast<std::uint8_t>(input_.below(3));
    header.total = input_.rarely() ? input_.take<std::uint32_t>() : usual_total();
    const std::uint16_t owner = header.stage == Stage::contribution ? victim_.rank : sender;
    const std::uint32_t count = choose_place(header, owner);
    Bytes payload;
    if (header.type == PacketType::data) {
      payload = elements_of(header.format, header.offset, count, [&](std::uint32_t i) {
        return header.stage == Stage::contribution ? gradient_at(sender, i) : result_at(sender, i);
      });
      if (header.stage == Stage::result) header.missing = input_.rarely() ? input_.take<std::uint32_t>() : 0;
    }
    return {header, payload};
  }

  Statement note(std::uint16_t sender) {
    Header header;
    header.type = PacketType::data;
    header.stage = Stage::note;
    header.format = Format::bytes;
    header.flags = flag::exact;
    header.operation = input_.rarely() ? input_.take<std::uint32_t>() : input_.below(12);
    header.total = input_.rarely() ? input_.take<std::uint32_t>() : 64 * input_.below(4) + input_.below(5);
    header.layout = header.operation % 3;
    header.missing = input_.rarely() ? input_.take<std::uint32_t>() : input_.below(3);
    header.offset = input_.rarely() ? input_.take<std::uint32_t>() : block_elements * input_.below(16);
    const std::uint32_t room = header.total - std::min(header.total, header.offset);
    Bytes payload(std::min(room, input_.between(1, 12) * block_elements));
    for (std::size_t i = 0; i < payload.size(); ++i) {
      payload[i] = note_byte(sender, header.operation, header.offset + i);
    }
    return {header, payload};
  }

  // To a victim that has sent so many datagrams.
  Statement ack(std::uint64_t sent) {
    Ack ack;
    ack.delay = Duration{input_.take<std::uint16_t>()} * microsecond;
    ack.receive_window = input_.flag() ? input_.take<std::uint32_t>() : 1 << 16;
    std::uint64_t above = sent + input_.below(4);
    for (std::uint32_t i = input_.between(1, 4); i > 0 && above > 2; --i) {
      const std::uint64_t last = above - 2 - std::min<std::uint64_t>(above - 2, input_.below(3));
      const std::uint64_t first = last - std::min<std::uint64_t>(last, input_.below(10));
      ack.ranges.push_back({first, last});
      above = first;
    }
    Header header;
    header.type = PacketType::ack;
    const bool is_sane = !ack.ranges.empty() && !input_.rarely();
    return {header, is_sane ? encode(ack) : input_.bytes(40)};
  }

  // A header nobody would write.
  Statement anything() {
    Header header;
    header.type = static_cast<PacketType>(input_.between(1, 8));
    header.stage = static_cast<Stage>(input_.below(4));
    header.format = static_cast<Format>(input_.below(5));
    header.flags = input_.take<std::uint8_t>();
    header.operation = input_.take<std::uint32_t>();
    header.layout = input_.take<std::uint32_t>();
    header.total = input_.take<std::uint32_t>();
    header.offset = input_.take<std::uint32_t>();
    header.missing = input_.take<std::uint32_t>();
    header.transmission = input_.take<std::uint64_t>() & max_transmission;
    const bool carries_values = carries_elements(header.type);  // these would not be true
    return {header, carries_values ? Bytes() : input_.bytes(input_.below(64))};
  }

  std::uint32_t usual_total() { return input_.flag() ? 100 : input_.below(400); }
  Format usual_format() { return input_.rarely() ? static_cast<Format>(input_.between(1, 4)) : Format::f32; }

 private:
  std::uint32_t choose_place(Header& header, std::uint16_t owner) {
    constexpr std::uint32_t most_elements = 300;  // of one datagram
    if (header.type == PacketType::end) return 0;
    const ElementRange shard =
        shard_range(header.total, victim_.num_ranks, responsible_shard(owner, header.operation, victim_.num_ranks));
    std::uint32_t count = 0;
    if (input_.rarely()) {
      header.offset = input_.flag() ? input_.take<std::uint32_t>() : input_.below(400);
      count = input_.below(most_elements);
    } else {
      const std::uint32_t blocks = shard.size() / block_elements + 1;
      header.offset = shard.begin + block_elements * input_.below(std::min(blocks, 256u));
      count = std::min(
          {input_.between(1, 8) * block_elements, shard.end - std::min(shard.end, header.offset), most_elements});
    }
    if (header.type == PacketType::hole) header.missing = input_.rarely() ? input_.take<std::uint32_t>() : count;
    return count;
  }

  Input& input_;
  const EndpointSettings& victim_;
};

}  // namespace holdfast::fuzz
