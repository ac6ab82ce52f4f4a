// Runs of blocks, and one block in portable code.
#include "kernels/packing.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/packing_block.h"
#include "kernels/table.h"

namespace holdfast::kernels {
namespace {

const BlockKernels& kernels_for(Format format) { return *active_table().blocks[index(format)]; }

std::size_t num_blocks_of(std::size_t count) { return (count + packing_block - 1) / packing_block; }
std::size_t widths_bytes(std::size_t num_blocks) { return (num_blocks + 1) / 2; }

// A block in full: the last one of a run may have to be filled up.
class Blocks {
 public:
  Blocks(Format format, const void* source, std::size_t count)
      : source_(static_cast<const std::uint8_t*>(source)), count_(count), size_(element_bytes(format)) {}

  const void* at(std::size_t block) {
    const std::size_t begin = block * packing_block;
    if (count_ - begin >= packing_block) return source_ + begin * size_;
    for (std::size_t i = 0; i < packing_block; ++i) {
      std::memcpy(filled_.data() + i * size_, source_ + std::min(begin + i, count_ - 1) * size_, size_);
    }
    return filled_.data();
  }

 private:
  const std::uint8_t* source_;
  std::size_t count_;
  std::size_t size_;
  std::array<std::uint8_t, packing_block * sizeof(float)> filled_;
};

void set_nibble(std::uint8_t* widths, std::size_t block, std::uint8_t nibble) {
  std::uint8_t& both = widths[block / 2];
  both = block % 2 == 0 ? nibble : static_cast<std::uint8_t>(both | nibble << 4);
}

std::uint8_t nibble_of(const std::uint8_t* widths, std::size_t block) {
  return block % 2 == 0 ? widths[block / 2] & 0x0f : widths[block / 2] >> 4;
}

}  // namespace

Packed fit_packed(Format format, const void* source, std::size_t count, std::size_t room) {
  const BlockKernels& kernels = kernels_for(format);
  Blocks blocks(format, source, count);
  Packed fitting;
  std::size_t blocks_bytes = 0;
  for (std::size_t block = 0; block < num_blocks_of(count); ++block) {
    blocks_bytes += packed_block_bytes(format, kernels.shape(blocks.at(block)).nibble);
    const std::size_t bytes = widths_bytes(block + 1) + blocks_bytes;
    if (bytes > room) break;
    fitting = {std::min(count, (block + 1) * packing_block), bytes};
  }
  return fitting;
}

std::size_t pack(Format format, std::uint8_t* target, std::size_t room, const void* source, std::size_t count) {
  const BlockKernels& kernels = kernels_for(format);
  Blocks blocks(format, source, count);
  const std::size_t num_blocks = num_blocks_of(count);
  if (widths_bytes(num_blocks) > room) return 0;
  const std::uint8_t* end = target + room;
  std::uint8_t* at = target + widths_bytes(num_blocks);
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const void* elements = blocks.at(block);
    const BlockShape shape = kernels.shape(elements);
    set_nibble(target, block, shape.nibble);
    if (shape.nibble == Width::zeros) continue;
    const std::size_t bytes = packed_block_bytes(format, shape.nibble);
    if (static_cast<std::size_t>(end - at) < bytes) return 0;
    kernels.pack(at, elements, shape);
    at += bytes;
  }
  return static_cast<std::size_t>(at - target);
}

bool unpack(Format format, void* target, std::size_t count, std::span<const std::uint8_t> packed) {
  const BlockKernels& kernels = kernels_for(format);
  const std::size_t num_blocks = num_blocks_of(count);
  if (packed.size() < widths_bytes(num_blocks)) return false;
  if (num_blocks % 2 != 0 && nibble_of(packed.data(), num_blocks) != 0) return false;
  const std::size_t block_bytes = packing_block * element_bytes(format);
  std::span<const std::uint8_t> left = packed.subspan(widths_bytes(num_blocks));
  std::array<std::uint8_t, packing_block * sizeof(float)> last;
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const std::size_t wanted = std::min(block_bytes, count * element_bytes(format) - block * block_bytes);
    std::uint8_t* into = static_cast<std::uint8_t*>(target) + block * block_bytes;
    std::uint8_t* elements = wanted == block_bytes ? into : last.data();
    const std::uint8_t nibble = nibble_of(packed.data(), block);
    const std::size_t bytes = packed_block_bytes(format, nibble);
    if (left.size() < bytes) return false;
    if (nibble == Width::zeros) {
      std::memset(elements, 0, block_bytes);
    } else if (!kernels.unpack(elements, left.data(), nibble)) {
      return false;
    }
    if (elements != into) std::memcpy(into, elements, wanted);
    left = left.subspan(bytes);
  }
  return std::all_of(left.begin(), left.end(), [](std::uint8_t byte) { return byte == 0; });
}

// ---------------------------------------------------------------------------------------------------- one block

namespace {

using Bytes = std::array<std::uint8_t, packing_block>;
template <Format F>
using Word = std::conditional_t<F == Format::f32, std::uint32_t, std::uint16_t>;
template <Format F>
constexpr int fraction_bits = F == Format::f32 ? 23 : 7;

template <Format F>
Word<F> word_at(const void* elements, std::size_t index) {
  Word<F> word;
  std::memcpy(&word, static_cast<const std::uint8_t*>(elements) + index * sizeof word, sizeof word);
  return word;
}

template <Format F>
std::uint8_t exponent_of(Word<F> word) {
  return static_cast<std::uint8_t>(word >> fraction_bits<F>);  // the sign falls off
}

template <Format F>
BlockShape shape_of_block(const void* elements) {
  unsigned highest = 0, lowest = 255;
  bool has_zero = false;
  Word<F> any = 0;
  for (std::size_t i = 0; i < packing_block; ++i) {
    const Word<F> word = word_at<F>(elements, i);
    const unsigned exponent = exponent_of<F>(word);
    any = static_cast<Word<F>>(any | word);
    highest = std::max(highest, exponent);
    has_zero = has_zero || exponent == 0;
    if (exponent != 0) lowest = std::min(lowest, exponent);
  }
  if (any == 0) return {};
  return {Width::of_block(highest, lowest, has_zero), static_cast<std::uint8_t>(highest)};
}

template <Format F>
void pack_block(std::uint8_t* target, const void* elements, BlockShape shape) {
  *target++ = shape.highest;
  const unsigned bits = Width::bits(shape.nibble);
  Bytes codes;
  for (std::size_t i = 0; i < packing_block; ++i) {
    const std::uint8_t exponent = exponent_of<F>(word_at<F>(elements, i));
    const bool escaped = exponent == 0 && Width::is_escaped(shape.nibble);
    codes[i] = static_cast<std::uint8_t>(escaped ? (1u << bits) - 1 : shape.highest - exponent);
  }
  const auto [low, high] = std::bit_cast<CodeHalves>(codes);
  store_codes(target, low, high, bits);
  target += 2 * bits;
  constexpr Word<F> fraction_mask = (Word<F>{1} << fraction_bits<F>)-1;
  for (std::size_t i = 0; i < packing_block; ++i) {
    const Word<F> word = word_at<F>(elements, i);
    const auto sign = static_cast<std::uint32_t>(word >> (8 * sizeof word - 1));
    const std::uint32_t rest = (word & fraction_mask) | sign << fraction_bits<F>;
    for (std::size_t byte = 0; byte < rest_bytes(F); ++byte) *target++ = static_cast<std::uint8_t>(rest >> (8 * byte));
  }
}

template <Format F>
bool unpack_block(void* elements, const std::uint8_t* packed, std::uint8_t nibble) {
  const unsigned highest = *packed++;
  const unsigned bits = Width::bits(nibble);
  const unsigned escape = Width::is_escaped(nibble) ? (1u << bits) - 1 : 256;
  Bytes exponents = std::bit_cast<Bytes>(load_codes(packed, bits));
  for (std::uint8_t& code : exponents) {
    if (code != escape && code > highest) return false;
    code = static_cast<std::uint8_t>(code == escape ? 0 : highest - code);
  }
  packed += 2 * bits;
  for (std::size_t i = 0; i < packing_block; ++i) {
    std::uint32_t rest = 0;
    for (std::size_t byte = 0; byte < rest_bytes(F); ++byte) rest |= std::uint32_t{*packed++} << (8 * byte);
    const std::uint32_t sign = rest >> fraction_bits<F>;
    const std::uint32_t fraction = rest & ((1u << fraction_bits<F>)-1);
    const auto word = static_cast<Word<F>>(sign << (8 * sizeof(Word<F>) - 1) |
                                           std::uint32_t{exponents[i]} << fraction_bits<F> | fraction);
    std::memcpy(static_cast<std::uint8_t*>(elements) + i * sizeof word, &word, sizeof word);
  }
  return true;
}

template <Format F>
constexpr BlockKernels kernels_of{shape_of_block<F>, pack_block<F>, unpack_block<F>};

}  // namespace

constinit const BlockKernels f32_blocks_portable = kernels_of<Format::f32>;
constinit const BlockKernels bf16_blocks_portable = kernels_of<Format::bf16>;

}  // namespace holdfast::kernels
