// One endpoint against a peer that holds the keys and says whatever a case likes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "endpoint_network.h"

namespace holdfast::testing {

// Rank 1 of a job of `num_ranks`, in the hands of somebody who knows its keys and says whatever he likes.
struct Rogue {
  EndpointSettings settings;
  Endpoint victim;
  Sealer sealer;
  std::uint64_t next = 0;
  Time now = start;

  explicit Rogue(
      const Change& change = [](EndpointSettings&) {}, std::uint16_t num_ranks = 2,
      const ProcessId& process = process_of(1))
      : settings([&] {
          EndpointSettings made = settings_for(0, num_ranks);
          change(made);
          return made;
        }()),
        victim(settings, start),
        sealer(settings.job_key, Direction{settings.epoch, 1, 0, process, process_of(0)}, settings.protection,
               1u << 20) {}

  Bytes sealed(Header header, const Bytes& payload) {
    header.job = settings.job;
    header.epoch = settings.epoch;
    header.sender = 1;
    header.key_phase = sealer.next_phase();
    Bytes bytes(header_bytes + payload.size() + tag_bytes);
    encode(header, std::span<std::uint8_t, header_bytes>(bytes.data(), header_bytes));
    sealer.seal(header.transmission, {bytes.data(), header_bytes}, payload, bytes.data() + header_bytes,
                std::span<std::uint8_t, tag_bytes>(bytes.data() + bytes.size() - tag_bytes, tag_bytes));
    return bytes;
  }

  // Says it, and answers how the victim dropped it.
  std::string say(Header header, const Bytes& payload = {}) {
    header.transmission = next++;
    return deliver(sealed(header, payload));
  }

  std::string deliver(Bytes datagram) {
    const DropCounts before = victim.drops();
    victim.receive(now, datagram);
    for (std::size_t i = 0; i < num_drops; ++i) {
      if (victim.drops()[i] != before[i]) return name(static_cast<Drop>(i));
    }
    return "accepted";
  }

  Header data_header(std::uint32_t operation, std::uint32_t total, Stage stage = Stage::contribution) const {
    Header header;
    header.type = PacketType::data;
    header.stage = stage;
    header.format = Format::f32;
    header.operation = operation;
    header.total = total;
    header.offset =
        stage == Stage::contribution
            ? shard_range(total, settings.num_ranks, responsible_shard(0, operation, settings.num_ranks)).begin
            : shard_range(total, settings.num_ranks, responsible_shard(1, operation, settings.num_ranks)).begin;
    return header;
  }
  // One block of a contribution to the victim's shard.
  std::string contribute(std::uint32_t operation, std::uint32_t total) {
    return say(data_header(operation, total), Bytes(64));
  }

  // What the victim sends back, as headers; acks are read into `acked`.
  std::vector<Header> replies(std::vector<AckRange>* acked = nullptr) {
    Opener opener(settings.job_key, Direction{settings.epoch, 0, 1, process_of(0), process_of(1)}, settings.protection);
    std::vector<Header> headers;
    TransmitBatch batch;
    while (victim.fill(now, batch)) {
      if (batch.peer != 1) continue;
      std::size_t part = 0;
      for (std::uint32_t i = 0; i < batch.num_datagrams; ++i) {
        Bytes bytes;
        for (std::uint32_t piece = 0; piece < batch.parts_per_datagram[i]; ++piece, ++part) {
          const auto* at = static_cast<const std::uint8_t*>(batch.parts[part].iov_base);
          bytes.insert(bytes.end(), at, at + batch.parts[part].iov_len);
        }
        Header header;
        const std::size_t payload_size = bytes.size() - header_bytes - tag_bytes;
        HF_CHECK(!decode(bytes, payload_size, header));
        const std::span<std::uint8_t> payload(bytes.data() + header_bytes, payload_size);
        HF_CHECK(
            !opener.open(header, std::span(bytes).first(header_bytes), payload,
                         std::span<const std::uint8_t, tag_bytes>(bytes.data() + bytes.size() - tag_bytes, tag_bytes)));
        if (header.type == PacketType::ack && acked != nullptr) *acked = decode_ack(payload)->ranges;
        headers.push_back(header);
      }
    }
    return headers;
  }

  std::string acknowledge(std::vector<AckRange> ranges, std::uint32_t window = 1 << 20,
                          std::uint32_t results_wanted_from = 0) {
    Ack ack;
    ack.receive_window = window;
    ack.ranges = std::move(ranges);
    Header header;
    header.type = PacketType::ack;
    header.operation = results_wanted_from;
    return say(header, encode(ack));
  }
  void become_alive() {
    replies();
    HF_EQUAL(acknowledge({{0, 0}}), "accepted");
    HF_CHECK(victim.path(1).state() == PeerState::alive);
  }
};

}  // namespace holdfast::testing
