// Gradients in fewer bytes and without loss: neighbours are of similar size, so their exponents are almost alike.
//
// An f32 is a sign, eight bits of exponent and 23 of fraction. Sign and fraction are as good as random and travel as
// they are. Of a block of sixteen elements the highest exponent is sent once, and of every element only how far its own
// lies below it: three bits mostly, where gradients are spread like a bell, instead of eight. Blocks of zeros, which
// layers with units that do not fire are full of, take half a byte. Every bit pattern comes back as it was, NaNs and
// minus zero too.
//
// Packed, a run of elements is
//   widths     a nibble per block, the first one low; of an odd number the last nibble is 0
//   per block, unless it is of zeros alone
//     highest  one byte: the highest exponent
//     codes    16 of `width` bits: how far below it each exponent lies. Two runs of eight codes, little-endian
//     rest     per element sign and fraction: 3 bytes (f32) or 1 (bf16), little-endian, the sign on top
// A last block of fewer elements is filled up with its last. A width of 0 to 8 is one; 9 to 14 stand for widths of 1 to
// 6 whose highest code means an exponent of 0, as that of a zero is, however far below; 15 is a block whose bits are
// all zero.
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

// How many whole blocks from the beginning of `source` fit into `room` bytes; its last block may be shorter.
Packed fit_packed(Format format, const void* source, std::size_t count, std::size_t room);

// Packs all of them; returns the number of bytes, which fit_packed tells beforehand. 0: they do not fit into `room`,
// because somebody changed them meanwhile; nothing was written beyond it.
std::size_t pack(Format format, std::uint8_t* target, std::size_t room, const void* source, std::size_t count);

// The `count` elements that were packed. What follows them must be zeros: a packet may be filled up. False, and
// anything in `target`, when these bytes cannot be that many elements.
bool unpack(Format format, void* target, std::size_t count, std::span<const std::uint8_t> packed);

}  // namespace holdfast::kernels
