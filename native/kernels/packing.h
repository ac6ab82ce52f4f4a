// Gradients in fewer bytes and without loss: most elements are of similar size, so few exponents are used.
//
// An f32 is a sign, eight bits of exponent and 23 of fraction. Sign and fraction are as good as random and travel as
// they are. Of exponents that are spread like a bell three quarters are one of three in a row, and 95 in 100 one of
// six. So two bits say which of the three it is, or that it is none of them; two more which of the three next to those,
// two more which of the three below, and eight what none of these say: 2.7 bits on average. Blocks of sixteen zeros,
// which layers with units that do not fire are full of, take one bit. Every bit pattern comes back as it was, NaNs and
// minus zero too.
//
// Packed, a run of elements is groups of eight blocks, of which the last may have fewer:
//   zeros      one byte: which of the blocks, the first one lowest, have no bit set. If all: nothing else follows
//   base       one byte: the lowest of the three exponents in a row. All sums with it are modulo 256
//   per other block
//     first    16 codes of two bits: 0 to 2 for base + 0 to 2, or 3 for none of these
//   further    per other block, bit by bit, what `first` leaves open
//     second   a code of two bits for each 3 in `first`: base - 2, base - 1, base + 3, or none of these
//     third    a code of two bits for each 3 in `second`: base - 5, base - 4, base - 3, or none of these
//     bare     eight bits for each 3 in `third`: the exponent
//              after the last block filled up to a byte with zeros
//   per other block
//     rest     per element sign and fraction: 3 bytes (f32) or 1 (bf16), the sign on top
// Everything is little-endian. A last block of fewer elements is filled up with its last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace holdfast::kernels {

constexpr std::size_t packing_block = 16;  // elements

// The others have a shorter exponent, or are not gradients.
constexpr bool can_pack(Format format) { return format == Format::f32 || format == Format::bf16; }

struct Packed {
  std::size_t num_elements = 0;
  std::size_t num_bytes = 0;
  bool operator==(const Packed&) const = default;
};

// How many whole blocks from the beginning of `source` fit into `room` bytes; its last block may be shorter. Where more
// blocks would take fewer bytes, because another base suits them better, it may be some less than would have fitted.
Packed fit_packed(Format format, const void* source, std::size_t count, std::size_t room);

// Packs all of them; returns the number of bytes, which fit_packed tells beforehand. 0: they do not fit into `room`,
// because somebody changed them meanwhile; nothing was written beyond it.
std::size_t pack(Format format, std::uint8_t* target, std::size_t room, const void* source, std::size_t count);

// The `count` elements that were packed. What follows them must be zeros: a packet may be filled up. False, and
// anything in `target`, when these bytes cannot be that many elements.
bool unpack(Format format, void* target, std::size_t count, std::span<const std::uint8_t> packed);

// Fills `target` with what `unpack` refuses to take for `count` elements.
void fill_refused(std::span<std::uint8_t> target, std::size_t count);

}  // namespace holdfast::kernels
