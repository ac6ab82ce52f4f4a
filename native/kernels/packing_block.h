// One block of sixteen elements, packed and unpacked: what the portable and the AVX2 path share. Private to this
// folder.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/packing.h"

static_assert(std::endian::native == std::endian::little, "codes and rests are read and written as they lie in memory");

namespace holdfast::kernels {

// What the nibble of a block says.
struct Width {
  static constexpr std::uint8_t zeros = 15;
  static constexpr std::uint8_t widest = 8;          // every exponent lies within 8 bits of every other
  static constexpr std::uint8_t widest_escaped = 6;  // with a code for an exponent of 0

  // `lowest`: of the exponents that are not 0; `has_zero`: some are.
  static std::uint8_t of_block(unsigned highest, unsigned lowest, bool has_zero) {
    const unsigned spread = highest - std::min(lowest, highest);
    if (!has_zero || highest == 0) return static_cast<std::uint8_t>(std::bit_width(spread));
    const auto escaped = static_cast<std::uint8_t>(std::bit_width(spread + 1));
    if (escaped <= widest_escaped) return static_cast<std::uint8_t>(widest + escaped);
    return static_cast<std::uint8_t>(std::bit_width(highest));  // which lies that far above 0
  }
  static bool is_escaped(std::uint8_t nibble) { return nibble > widest && nibble != zeros; }
  static unsigned bits(std::uint8_t nibble) { return is_escaped(nibble) ? nibble - widest : nibble; }
};

constexpr std::size_t rest_bytes(Format format) { return format == Format::f32 ? 3 : 1; }

// Of a block, without its nibble.
constexpr std::size_t packed_block_bytes(Format format, std::uint8_t nibble) {
  if (nibble == Width::zeros) return 0;
  return 1 + 2 * Width::bits(nibble) + packing_block * rest_bytes(format);
}

struct BlockShape {
  std::uint8_t nibble = Width::zeros;
  std::uint8_t highest = 0;
};

// How a block would be packed; packed behind its nibble, and back. False: these bytes are no block.
struct BlockKernels {
  BlockShape (*shape)(const void* elements) = nullptr;
  void (*pack)(std::uint8_t* target, const void* elements, BlockShape shape) = nullptr;
  bool (*unpack)(void* elements, const std::uint8_t* packed, std::uint8_t nibble) = nullptr;
};

extern const BlockKernels f32_blocks_portable;
extern const BlockKernels bf16_blocks_portable;
extern const BlockKernels f32_blocks_avx2;
extern const BlockKernels bf16_blocks_avx2;

// Eight codes of one byte each to eight of `bits`, and back, by halves: pairs, fours, eights.
inline std::uint64_t close_ranks(std::uint64_t codes, unsigned bits) {
  codes = (codes & 0x00ff00ff00ff00ff) | (codes & 0xff00ff00ff00ff00) >> (8 - bits);
  codes = (codes & 0x0000ffff0000ffff) | (codes & 0xffff0000ffff0000) >> (16 - 2 * bits);
  return (codes & 0x00000000ffffffff) | (codes & 0xffffffff00000000) >> (32 - 4 * bits);
}

inline std::uint64_t open_ranks(std::uint64_t codes, unsigned bits) {
  const auto spread = [](std::uint64_t lanes, unsigned width, std::uint64_t low, unsigned apart) {
    const std::uint64_t kept = low * ((std::uint64_t{1} << width) - 1);
    return (lanes & kept) | (lanes >> width & kept) << apart;
  };
  codes = spread(codes, 4 * bits, 0x0000000000000001, 32);
  codes = spread(codes, 2 * bits, 0x0000000100000001, 16);
  return spread(codes, bits, 0x0001000100010001, 8);
}

// Sixteen codes of a byte each, by halves.
struct CodeHalves {
  std::uint64_t low, high;
};

// Writes eight bytes for either half: what is too much belongs to the rests, which are written after it.
inline void store_codes(std::uint8_t* target, std::uint64_t low, std::uint64_t high, unsigned bits) {
  low = close_ranks(low, bits);
  high = close_ranks(high, bits);
  std::memcpy(target, &low, sizeof low);
  std::memcpy(target + bits, &high, sizeof high);
}

// Reads eight bytes for either half, up to within the rests.
inline CodeHalves load_codes(const std::uint8_t* packed, unsigned bits) {
  std::uint64_t low, high;
  std::memcpy(&low, packed, sizeof low);
  std::memcpy(&high, packed + bits, sizeof high);
  return {open_ranks(low, bits), open_ranks(high, bits)};
}

}  // namespace holdfast::kernels
