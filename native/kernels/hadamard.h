// The randomised Hadamard transform, block by block, in place (OptiReduce, section 3.3).
//
// Every coefficient of an encoded block holds a little of every element, so that what a lost packet takes away is a
// little of everything. Random signs, the same on all ranks because they follow from the seed, make that little
// independent of the gradient: over seeds, the decoded block has the gradient as its mean.
//
// A block is not a run of elements but strides over the whole array (hadamard_layout.h): coefficients that travel in
// one packet belong to many blocks. Coefficient j stands where element j stood, so nothing is ever moved.
//
// Both paths give the same bits. NaN and Inf make their whole block non-finite; which NaN it is may differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace holdfast::kernels {

struct ElementRange {
  std::size_t begin, end;
  bool operator==(const ElementRange&) const = default;
};

// How many blocks an array of so many elements has.
std::size_t num_hadamard_blocks(std::size_t count);

// values = H (signs x values) / sqrt(block), so that a block keeps its Euclidean length.
void hadamard_encode(float* values, std::size_t count, std::uint64_t seed);

// values = signs x H values / sqrt(block), each block times `block_scale`, which may be null: one for all.
void hadamard_decode(float* values, std::size_t count, std::uint64_t seed, const float* block_scale);

// How many coefficients of each block lie in `missing`: ascending, apart, within `count`.
std::vector<std::uint32_t> missing_of_blocks(std::size_t count, std::span<const ElementRange> missing);

// Decodes what arrived. A block of n coefficients, of which `missing` left r, is scaled by n / r: without that every
// loss would shrink it. Missing coefficients must be zero. Returns the elements of blocks of which nothing arrived.
std::vector<ElementRange> hadamard_decode_partial(float* values, std::size_t count, std::uint64_t seed,
                                                  std::span<const ElementRange> missing);

}  // namespace holdfast::kernels
