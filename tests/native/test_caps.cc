// Every cap in one place, each exactly reached and exceeded by one: what a peer can make a rank hold, read or answer.
#include <stdexcept>
#include <string>

#include "core/endpoint.h"
#include "core/join.h"
#include "io/udp.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

using Bytes = std::vector<std::uint8_t>;
using Ranges = std::vector<AckRange>;

constexpr Time now = 100 * second;

EndpointSettings settings_for(std::uint16_t num_ranks) {
  EndpointSettings settings;
  settings.num_ranks = num_ranks;
  settings.job_key.fill(9);
  settings.peers.resize(num_ranks);
  for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
    settings.peers[rank].process = {static_cast<std::uint8_t>(rank), static_cast<std::uint8_t>(rank >> 8)};
  }
  return settings;
}

// Rank 0, and rank 1 that says to it whatever a case wants said, under the right key.
struct Pair {
  EndpointSettings settings;
  Endpoint victim;
  Sealer sealer;
  Opener opener;
  std::uint64_t next = 0;

  explicit Pair(const EndpointSettings& chosen = settings_for(2))
      : settings(chosen),
        victim(settings, now),
        sealer(settings.job_key, to_victim(), settings.protection, default_packets_per_key),
        opener(settings.job_key, reversed(to_victim()), settings.protection) {}

  Direction to_victim() const { return {0, 1, 0, settings.peers[1].process, settings.peers[0].process}; }

  std::string say(Header header, const Bytes& payload = {}) {
    header.sender = 1;
    header.transmission = next++;
    Bytes bytes(header_bytes + payload.size() + tag_bytes);
    encode(header, std::span<std::uint8_t, header_bytes>(bytes.data(), header_bytes));
    sealer.seal(header.transmission, {bytes.data(), header_bytes}, payload, bytes.data() + header_bytes,
                std::span<std::uint8_t, tag_bytes>(bytes.data() + bytes.size() - tag_bytes, tag_bytes));
    const DropCounts before = victim.drops();
    victim.receive(now, bytes);
    for (std::size_t i = 0; i < num_drops; ++i) {
      if (victim.drops()[i] != before[i]) return name(static_cast<Drop>(i));
    }
    return "accepted";
  }

  // One block of a contribution to the victim's shard.
  std::string contribute(std::uint32_t operation, std::uint32_t total) {
    Header header;
    header.type = PacketType::data;
    header.stage = Stage::contribution;
    header.format = Format::f32;
    header.operation = operation;
    header.total = total;
    header.offset = shard_range(total, 2, responsible_shard(0, operation, 2)).begin;
    return say(header, Bytes(64));
  }

  // The first bytes of a note, which are all of it if it has no more.
  std::string begin_note(std::uint32_t number, std::uint32_t total, std::size_t bytes) {
    Header header;
    header.type = PacketType::data;
    header.stage = Stage::note;
    header.operation = header.missing = number;  // no note before it was given up
    header.total = total;
    return say(header, Bytes(bytes));
  }

  std::string ping() {
    Header header;
    header.flags = flag::ack_now;
    return say(header);
  }

  std::string acknowledge(const Ranges& ranges) {
    Header header;
    header.type = PacketType::ack;
    return say(header, encode(Ack{.receive_window = 1 << 20, .ranges = ranges}));
  }

  // What the victim acknowledges now.
  Ranges acknowledged() {
    Ranges ranges;
    TransmitBatch batch;
    while (victim.fill(now, batch)) {
      Bytes bytes;
      for (std::uint32_t piece = 0; piece < batch.parts_per_datagram[0]; ++piece) {
        const auto* at = static_cast<const std::uint8_t*>(batch.parts[piece].iov_base);
        bytes.insert(bytes.end(), at, at + batch.parts[piece].iov_len);
      }
      Header header;
      const std::size_t size = bytes.size() - header_bytes - tag_bytes;
      HF_CHECK(!decode(bytes, size, header));
      const std::span<std::uint8_t> payload(bytes.data() + header_bytes, size);
      const std::span<const std::uint8_t, tag_bytes> tag(bytes.data() + bytes.size() - tag_bytes, tag_bytes);
      HF_CHECK(!opener.open(header, std::span(bytes).first(header_bytes), payload, tag));
      if (header.type == PacketType::ack) ranges = decode_ack(payload)->ranges;
    }
    return ranges;
  }

  std::uint32_t call(std::vector<float>& data) {
    Call own;
    own.data = reinterpret_cast<std::uint8_t*>(data.data());
    own.count = static_cast<std::uint32_t>(data.size());
    return victim.call(now, own);
  }
};

}  // namespace

HF_CASE(peers) {
  const Endpoint largest(settings_for(max_ranks), now);
  HF_CHECK(largest.path(max_ranks - 1).state() == PeerState::joining);
  HF_THROWS(Endpoint(settings_for(max_ranks + 1), now), std::invalid_argument);
}

HF_CASE(open_operations) {
  Pair pair;
  const std::uint32_t cap = pair.settings.max_open_operations;
  for (std::uint32_t operation = 0; operation < cap; ++operation) HF_EQUAL(pair.contribute(operation, 64), "accepted");
  HF_EQUAL(pair.contribute(cap, 64), "beyond_window");
  HF_EQUAL(pair.victim.open_operations(), cap);
  // The window follows the own calls.
  std::vector<float> data(64);
  pair.call(data);
  HF_EQUAL(pair.contribute(cap, 64), "accepted");
  HF_EQUAL(pair.contribute(cap + 1, 64), "beyond_window");
}

HF_CASE(early_bytes) {
  constexpr std::uint32_t total = 64;
  const std::size_t bitmaps = Operation::bookkeeping_bytes({total, 0, Format::f32, Delivery::bounded, true}, 2);
  const std::size_t sum = total / 2 * sizeof(float);
  for (const std::size_t too_few : {0u, 1u}) {
    EndpointSettings settings = settings_for(2);
    settings.early_bytes_cap = 3 * (bitmaps + sum) - too_few;
    Pair pair(settings);
    HF_EQUAL(pair.contribute(0, total), "accepted");
    HF_EQUAL(pair.contribute(1, total), "accepted");
    HF_EQUAL(pair.contribute(2, total), too_few == 0 ? "accepted" : "early_over_cap");
    HF_EQUAL(pair.contribute(3, total), "early_over_cap");
    HF_CHECK(pair.victim.early_bytes() <= settings.early_bytes_cap);
  }
}

HF_CASE(operation_bytes) {
  EndpointSettings settings = settings_for(2);
  settings.max_operation_bytes = 4096;
  Pair pair(settings);
  HF_EQUAL(pair.contribute(0, 1024), "accepted");
  HF_EQUAL(pair.contribute(1, 1025), "oversized");
}

HF_CASE(ack_ranges_written) {
  for (const std::size_t gaps : {max_ack_ranges - 1, max_ack_ranges}) {
    Pair pair;
    for (std::size_t gap = 0; gap < gaps; ++gap, ++pair.next) HF_EQUAL(pair.ping(), "accepted");
    HF_EQUAL(pair.ping(), "accepted");
    const Ranges ranges = pair.acknowledged();
    HF_EQUAL(ranges.size(), max_ack_ranges);
    HF_EQUAL(ranges.front().last, 2 * gaps);
    // Beyond the cap the oldest is left out.
    HF_EQUAL(ranges.back().first, gaps < max_ack_ranges ? 0u : 2u);
    HF_CHECK(encode(Ack{.ranges = ranges}).size() <= max_ack_bytes);
  }
}

HF_CASE(ack_ranges_read) {
  for (const std::size_t count : {max_ack_ranges, max_ack_ranges + 1}) {
    Ranges ranges;
    for (std::uint64_t number = 2 * count; number >= 2; number -= 2) ranges.push_back({number, number});
    HF_EQUAL(ranges.size(), count);
    Pair pair;
    // Well-formed ones are read, and refused for what they say: nothing of it was ever sent.
    HF_EQUAL(pair.acknowledge(ranges), count <= max_ack_ranges ? "acknowledges_unsent" : "malformed");
  }
}

HF_CASE(note_bytes) {
  EndpointSettings settings = settings_for(2);
  settings.max_note_bytes = 1000;
  Pair pair(settings);
  HF_EQUAL(pair.begin_note(0, 1001, 16), "oversized");
  HF_EQUAL(pair.begin_note(0, 600, 16), "accepted");
  HF_EQUAL(pair.begin_note(1, 401, 16), "oversized");
  HF_EQUAL(pair.begin_note(1, 400, 16), "accepted");
  HF_EQUAL(pair.begin_note(2, 1, 1), "oversized");
}

HF_CASE(notes_in_number) {
  for (const std::uint32_t total : {17u, 16u}) {  // never finished; finished and never taken
    Pair pair;
    for (std::uint32_t number = 0; number < NoteInbox::max_notes; ++number) {
      HF_EQUAL(pair.begin_note(number, total, 16), "accepted");
    }
    HF_EQUAL(pair.begin_note(NoteInbox::max_notes, total, 16), "oversized");
    if (total == 17) continue;
    HF_EQUAL(pair.victim.take_notes().size(), NoteInbox::max_notes);
    HF_EQUAL(pair.begin_note(NoteInbox::max_notes, total, 16), "oversized");
    pair.victim.release_note(1, total);
    HF_EQUAL(pair.begin_note(NoteInbox::max_notes, total, 16), "accepted");
    HF_EQUAL(pair.begin_note(NoteInbox::max_notes + 1, total, 16), "oversized");
  }
}

// One kernel read a turn of the reactor (native/io/udp.cc): 32 buffers where a read is one datagram, and 8 where it may
// be a whole batch of up to 64.
HF_CASE(datagrams_a_wake_up) {
  struct Way {
    bool batches;
    std::size_t num_reads;
    std::size_t datagrams_a_read;
  };
  for (const Way& way : {Way{false, 32, 1}, Way{true, 8, 64}}) {
    io::UdpOptions options;
    options.use_segmentation = way.batches;
    io::UdpSocket sender(io::Address::parse("127.0.0.1", 0), options);
    io::UdpSocket receiver(io::Address::parse("127.0.0.1", 0), options);
    if (way.batches && (!sender.has_gso() || !receiver.has_gro())) continue;  // a kernel without segmentation
    Bytes bytes(100 * way.datagrams_a_read);
    for (std::size_t read = 0; read <= way.num_reads; ++read) {
      io::OutgoingBatch batch;
      batch.to = &receiver.local();
      batch.datagram_bytes = 100;
      batch.num_datagrams = static_cast<std::uint32_t>(way.datagrams_a_read);
      batch.total_bytes = bytes.size();
      for (std::size_t i = 0; i < way.datagrams_a_read; ++i) batch.parts.push_back({bytes.data() + 100 * i, 100});
      batch.parts_per_datagram.assign(way.datagrams_a_read, 1);
      HF_CHECK(sender.send(batch) == io::SendResult::sent);
    }
    const auto ignore = [](std::span<std::uint8_t>, Duration) {};
    HF_EQUAL(receiver.receive(1, ignore), way.num_reads * way.datagrams_a_read);
    HF_EQUAL(receiver.receive(1, ignore), way.datagrams_a_read);
    HF_EQUAL(receiver.receive(1, ignore), 0u);
  }
}

HF_TEST_MAIN
