// A rank of the job in the hands of somebody who holds its keys and says whatever he likes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/endpoint.h"

namespace holdfast::fuzz {

class Peer {
 public:
  // `victim` are the settings of the endpoint that will be lied to.
  Peer(const EndpointSettings& victim, std::uint16_t rank)
      : job_(victim.job),
        epoch_(victim.epoch),
        rank_(rank),
        protection_(victim.protection),
        sealer_(
            victim.job_key,
            Direction{victim.epoch, rank, victim.rank, victim.peers[rank].process, victim.peers[victim.rank].process},
            victim.protection, victim.packets_per_key) {}

  // The datagram with this header and payload, under the next number or the one given.
  std::vector<std::uint8_t> sealed(Header header, std::span<const std::uint8_t> payload) {
    header.transmission = next_++;
    return sealed_as(header, payload);
  }
  std::vector<std::uint8_t> sealed_as(Header header, std::span<const std::uint8_t> payload) {
    header.job = job_;
    header.epoch = epoch_;
    header.sender = rank_;
    header.key_phase = sealer_.next_phase();
    const std::size_t tag_size = tag_bytes_of(protection_);
    std::vector<std::uint8_t> bytes(header_bytes + payload.size() + tag_size);
    encode(header, std::span<std::uint8_t, header_bytes>(bytes.data(), header_bytes));
    if (tag_size != 0) {
      sealer_.seal(header.transmission, {bytes.data(), header_bytes}, payload, bytes.data() + header_bytes,
                   std::span<std::uint8_t, tag_bytes>(bytes.data() + bytes.size() - tag_bytes, tag_bytes));
    }
    if (protection_ != Protection::encrypted) {
      std::copy(payload.begin(), payload.end(), bytes.begin() + static_cast<std::ptrdiff_t>(header_bytes));
    }
    return bytes;
  }

 private:
  std::uint32_t job_;
  std::uint32_t epoch_;
  std::uint16_t rank_;
  Protection protection_;
  Sealer sealer_;
  std::uint64_t next_ = 0;
};

}  // namespace holdfast::fuzz
