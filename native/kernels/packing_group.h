// What the portable and the AVX2 path of packing share: the ladder of exponents, its bits, and the kernels of a block.
// Private to this folder.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/packing.h"

static_assert(std::endian::native == std::endian::little, "codes and rests are read and written as they lie in memory");

namespace holdfast::kernels {

constexpr std::size_t group_blocks = 8;
constexpr std::size_t first_bytes = 4;  // of a block: sixteen codes of two bits
constexpr std::size_t rest_bytes(Format format) { return format == Format::f32 ? 3 : 1; }
constexpr std::size_t rests_bytes(Format format) { return packing_block * rest_bytes(format); }

using Exponents = std::array<std::uint8_t, packing_block>;

// Nine exponents from `base - below_base` on have codes, on one of three rungs; a code of 3 leads to the next.
struct Ladder {
  static constexpr unsigned below_base = 5;
  static constexpr unsigned num_known = 9;
  static constexpr unsigned further = 3;
  static constexpr std::size_t num_rungs = 3;
  static constexpr unsigned bare_bits = 8;

  // Of sixteen entries, as a vector looks them up; most have no use for all.
  using Table = std::array<std::uint8_t, 16>;
  // By the distance from the lowest of the nine; `further` for those that a rung does not have, and for all beyond.
  alignas(16) static constexpr std::array<Table, num_rungs> codes{{
      {3, 3, 3, 3, 3, 0, 1, 2, 3, 3},
      {3, 3, 3, 0, 1, 3, 3, 3, 2, 3},
      {0, 1, 2, 3, 3, 3, 3, 3, 3, 3},
  }};
  // And back: the distance, by rung and code.
  alignas(16) static constexpr std::array<Table, num_rungs> distances{{{5, 6, 7}, {3, 4, 8}, {0, 1, 2}}};
  // Bits after the first two.
  alignas(16) static constexpr Table further_bits{4, 4, 4, 2, 2, 0, 0, 0, 2, 4 + bare_bits};

  static unsigned distance(std::uint8_t exponent, std::uint8_t base) {
    const auto distance = static_cast<std::uint8_t>(exponent - base + below_base);
    return distance < num_known ? distance : num_known;
  }
};

// The low bits of pairs that are 3, as pairs.
inline std::uint32_t pairs_of_three(std::uint32_t codes) { return (codes & codes >> 1 & 0x55555555) * 3; }

// Writes eight bytes from where it is on.
class BitWriter {
 public:
  static constexpr unsigned most_bits = 56;  // at a time

  explicit BitWriter(std::uint8_t* target) : at_(target) {}

  void put(std::uint64_t bits, unsigned num_bits) {
    kept_ |= bits << num_kept_;
    num_kept_ += num_bits;
    std::memcpy(at_, &kept_, sizeof kept_);
    at_ += num_kept_ / 8;
    kept_ >>= num_kept_ / 8 * 8;
    num_kept_ %= 8;
  }
  // The byte after the last bit.
  std::uint8_t* end() const { return at_ + (num_kept_ != 0); }

 private:
  std::uint8_t* at_;
  std::uint64_t kept_ = 0;
  unsigned num_kept_ = 0;
};

// Up to 32 bits at a time, of bytes that are followed by eight others at least: by rests, in all that is not malformed.
class BitReader {
 public:
  explicit BitReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint32_t take(unsigned num_bits) {
    if (at_ / 8 + sizeof(std::uint64_t) > bytes_.size()) {
      failed_ = true;
      return 0;
    }
    std::uint64_t word;
    std::memcpy(&word, bytes_.data() + at_ / 8, sizeof word);
    word >>= at_ % 8;
    at_ += num_bits;
    return static_cast<std::uint32_t>(word & ((std::uint64_t{1} << num_bits) - 1));
  }
  bool failed() const { return failed_; }
  std::size_t bytes_taken() const { return (at_ + 7) / 8; }
  bool rest_of_byte_is_zero() const { return at_ % 8 == 0 || bytes_[at_ / 8] >> at_ % 8 == 0; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

struct BlockSums {
  bool has_bits = false;         // else all of it is zero
  std::uint32_t exponents = 0;   // their sum
  std::uint32_t num_scaled = 0;  // elements with an exponent other than 0
};

// Of a block of sixteen elements, or of its exponents.
struct BlockKernels {
  BlockSums (*exponents)(Exponents& exponents, const void* elements) = nullptr;
  // How many bits `further` takes, with the base before `middle`, with that, and with the one after.
  std::array<std::uint32_t, 3> (*further_bits)(std::span<const Exponents> blocks, std::uint8_t middle) = nullptr;
  // Returns what stands in `first`.
  std::uint32_t (*write)(BitWriter& further, const Exponents& exponents, std::uint8_t base) = nullptr;
  void (*read)(Exponents& exponents, BitReader& further, std::uint32_t first, std::uint8_t base) = nullptr;
  void (*save_rests)(std::uint8_t* rests, const void* elements) = nullptr;
  void (*join)(void* elements, const Exponents& exponents, const std::uint8_t* rests) = nullptr;
};

extern const BlockKernels f32_blocks_portable;
extern const BlockKernels bf16_blocks_portable;
extern const BlockKernels f32_blocks_avx2;
extern const BlockKernels bf16_blocks_avx2;

}  // namespace holdfast::kernels
