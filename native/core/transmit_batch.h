// A batch points into the memory of operations: send it, copy it or drop it before the next call into the endpoint.
//
// Datagrams for one peer that leave together: equal sizes, the last may be shorter, so that segmentation offload
// applies.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace holdfast {

struct TransmitBatch {
  std::uint16_t peer = 0;
  std::vector<iovec> parts;                       // the datagrams' bytes, in order
  std::vector<std::uint32_t> parts_per_datagram;  // how many of `parts` each datagram has
  std::uint32_t datagram_bytes = 0;
  std::uint32_t num_datagrams = 0;
  std::size_t total_bytes = 0;

  TransmitBatch() : scratch_(std::make_unique_for_overwrite<std::uint8_t[]>(scratch_bytes)) {}

  void clear() {
    parts.clear();
    parts_per_datagram.clear();
    datagram_bytes = num_datagrams = 0;
    total_bytes = scratch_used_ = 0;
  }

  // Headers, tags and ciphertext live here until the batch has left.
  std::uint8_t* reserve(std::size_t bytes) {
    std::uint8_t* at = scratch_.get() + scratch_used_;
    scratch_used_ += bytes;
    return at;
  }

  bool has_room(std::size_t bytes) const { return num_datagrams < max_datagrams && total_bytes + bytes <= max_bytes; }

  static constexpr std::size_t max_bytes = 65'280;
  static constexpr std::uint32_t max_datagrams = 64;  // UDP_MAX_SEGMENTS of older kernels

 private:
  static constexpr std::size_t scratch_bytes = 128 * 1024;
  std::unique_ptr<std::uint8_t[]> scratch_;
  std::size_t scratch_used_ = 0;
};

}  // namespace holdfast
