// Groups of blocks, and one block in portable code.
#include "kernels/packing.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/packing_group.h"
#include "kernels/table.h"

namespace holdfast::kernels {
namespace {

constexpr std::size_t group_elements = group_blocks * packing_block;

const BlockKernels& kernels_for(Format format) { return *active_table().blocks[index(format)]; }

std::size_t num_blocks_of(std::size_t count) { return (count + packing_block - 1) / packing_block; }

// Up to eight blocks in full: the last one of a run may have to be filled up.
class Group {
 public:
  Group(Format format, const void* source, std::size_t count)
      : elements_(static_cast<const std::uint8_t*>(source)),
        num_blocks_(num_blocks_of(count)),
        block_bytes_(packing_block * element_bytes(format)) {
    if (count % packing_block == 0) return;
    const std::size_t size = element_bytes(format), begin = (num_blocks_ - 1) * packing_block;
    for (std::size_t i = 0; i < packing_block; ++i) {
      std::memcpy(filled_.data() + i * size, elements_ + std::min(begin + i, count - 1) * size, size);
    }
    ends_filled_ = true;
  }
  std::size_t num_blocks() const { return num_blocks_; }
  const void* block(std::size_t index) const {
    return ends_filled_ && index + 1 == num_blocks_ ? filled_.data() : elements_ + index * block_bytes_;
  }

 private:
  const std::uint8_t* elements_;
  std::size_t num_blocks_;
  std::size_t block_bytes_;
  bool ends_filled_ = false;
  std::array<std::uint8_t, packing_block * sizeof(float)> filled_;
};

// How the first blocks of a group are packed.
struct Shape {
  std::uint8_t zeros = 0;
  std::uint8_t base = 0;
  std::uint32_t further_bits = 0;
  std::size_t num_others = 0;  // blocks that are not zeros

  std::size_t num_bytes(Format format) const {
    if (num_others == 0) return sizeof zeros;
    return sizeof zeros + sizeof base + num_others * (first_bytes + rests_bytes(format)) + (further_bits + 7) / 8;
  }
};

// The exponents of a group.
class GroupExponents {
 public:
  GroupExponents(const Group& group, const BlockKernels& kernels) : kernels_(kernels) {
    std::size_t other = 0;
    for (std::size_t block = 0; block < group.num_blocks(); ++block) {
      sums_[block] = kernels.exponents(of_others_[other], group.block(block));
      if (sums_[block].has_bits) ++other;
    }
  }
  const Exponents& of_other(std::size_t other) const { return of_others_[other]; }

  Shape shape(std::size_t num_blocks) const {
    Shape shape;
    std::uint32_t sum = 0, num_scaled = 0;
    for (std::size_t block = 0; block < num_blocks; ++block) {
      sum += sums_[block].exponents;
      num_scaled += sums_[block].num_scaled;
      shape.num_others += sums_[block].has_bits;
      shape.zeros = static_cast<std::uint8_t>(shape.zeros | !sums_[block].has_bits << block);
    }
    if (shape.num_others != 0) choose_base(shape, num_scaled == 0 ? 0 : sum / num_scaled);
    return shape;
  }

 private:
  // One of three round the mean of all exponents but those of zeros. The best of all 256 would save a thousandth more.
  void choose_base(Shape& shape, std::uint32_t mean) const {
    const auto middle = static_cast<std::uint8_t>(mean);
    const auto bits = kernels_.further_bits(std::span(of_others_.data(), shape.num_others), middle);
    const auto* const least = std::min_element(bits.begin(), bits.end());
    shape.further_bits = *least;
    shape.base = static_cast<std::uint8_t>(middle - 1 + (least - bits.begin()));
  }

  const BlockKernels& kernels_;
  std::array<BlockSums, group_blocks> sums_;
  std::array<Exponents, group_blocks> of_others_;
};

// Fills exactly what its shape takes.
void pack_group(Format format, std::uint8_t* target, const Group& group, const GroupExponents& exponents,
                const Shape& shape, const BlockKernels& kernels) {
  *target++ = shape.zeros;
  if (shape.num_others == 0) return;
  *target++ = shape.base;
  BitWriter further(target + shape.num_others * first_bytes);
  for (std::size_t other = 0; other < shape.num_others; ++other) {
    const std::uint32_t first = kernels.write(further, exponents.of_other(other), shape.base);
    std::memcpy(target + other * first_bytes, &first, sizeof first);
  }
  // What the writer wrote beyond its end is within the first block's rests.
  std::uint8_t* rests = further.end();
  for (std::size_t block = 0; block < group.num_blocks(); ++block) {
    if ((shape.zeros >> block & 1) != 0) continue;
    kernels.save_rests(rests, group.block(block));
    rests += rests_bytes(format);
  }
}

// How many bytes it took; 0: these are no group of so many blocks.
std::size_t unpack_group(Format format, std::uint8_t* elements, std::size_t num_blocks,
                         std::span<const std::uint8_t> packed, const BlockKernels& kernels) {
  if (packed.empty()) return 0;
  const std::uint8_t zeros = packed[0];
  if (zeros >> num_blocks != 0) return 0;
  const std::size_t block_bytes = packing_block * element_bytes(format);
  const std::size_t num_others = num_blocks - static_cast<std::size_t>(std::popcount(zeros));
  if (num_others == 0) {
    std::memset(elements, 0, num_blocks * block_bytes);
    return 1;
  }
  const std::size_t before_further = 2 + num_others * first_bytes;
  const std::size_t all_rests = num_others * rests_bytes(format);
  if (packed.size() < before_further + all_rests) return 0;
  BitReader further(packed.subspan(before_further));
  std::array<Exponents, group_blocks> exponents;
  for (std::size_t other = 0; other < num_others; ++other) {
    std::uint32_t first;
    std::memcpy(&first, packed.data() + 2 + other * first_bytes, sizeof first);
    kernels.read(exponents[other], further, first, packed[1]);
    if (further.failed()) return 0;
  }
  const std::size_t num_bytes = before_further + further.bytes_taken() + all_rests;
  if (packed.size() < num_bytes || !further.rest_of_byte_is_zero()) return 0;
  const std::uint8_t* rests = packed.data() + num_bytes - all_rests;
  std::size_t other = 0;
  for (std::size_t block = 0; block < num_blocks; ++block) {
    std::uint8_t* into = elements + block * block_bytes;
    if ((zeros >> block & 1) != 0) {
      std::memset(into, 0, block_bytes);
      continue;
    }
    kernels.join(into, exponents[other], rests + other * rests_bytes(format));
    ++other;
  }
  return num_bytes;
}

// How many blocks from the beginning of a group fit, and what they take. Fewer may have another base, so that how many
// it are is found by trying.
std::pair<std::size_t, std::size_t> fit_group(Format format, const Group& group, std::size_t room,
                                              const BlockKernels& kernels) {
  const GroupExponents exponents(group, kernels);
  const auto bytes_of = [&](std::size_t num_blocks) { return exponents.shape(num_blocks).num_bytes(format); };
  const std::size_t bytes_of_all = bytes_of(group.num_blocks());
  if (bytes_of_all <= room) return {group.num_blocks(), bytes_of_all};
  std::size_t num_blocks = group.num_blocks() * room / bytes_of_all;
  std::size_t bytes = num_blocks == 0 ? 0 : bytes_of(num_blocks);
  while (bytes > room) bytes = --num_blocks == 0 ? 0 : bytes_of(num_blocks);
  while (true) {
    const std::size_t with_next = bytes_of(num_blocks + 1);
    if (with_next > room) return {num_blocks, bytes};
    bytes = with_next;
    ++num_blocks;
  }
}

}  // namespace

Packed fit_packed(Format format, const void* source, std::size_t count, std::size_t room) {
  const BlockKernels& kernels = kernels_for(format);
  const auto* elements = static_cast<const std::uint8_t*>(source);
  Packed fitting;
  while (fitting.num_elements < count) {
    const std::size_t in_group = std::min(group_elements, count - fitting.num_elements);
    const Group group(format, elements + fitting.num_elements * element_bytes(format), in_group);
    const auto [num_blocks, num_bytes] = fit_group(format, group, room - fitting.num_bytes, kernels);
    fitting.num_elements += std::min(in_group, num_blocks * packing_block);
    fitting.num_bytes += num_bytes;
    if (num_blocks < group.num_blocks()) break;
  }
  return fitting;
}

std::size_t pack(Format format, std::uint8_t* target, std::size_t room, const void* source, std::size_t count) {
  const BlockKernels& kernels = kernels_for(format);
  const auto* elements = static_cast<const std::uint8_t*>(source);
  std::size_t used = 0;
  for (std::size_t begin = 0; begin < count; begin += group_elements) {
    // Read once: what their owner changes meanwhile must neither take other room than was measured, nor join the
    // exponent of one value to the fraction of another.
    const std::size_t in_group = std::min(group_elements, count - begin);
    std::array<std::uint8_t, group_elements * sizeof(float)> read;
    std::memcpy(read.data(), elements + begin * element_bytes(format), in_group * element_bytes(format));
    const Group group(format, read.data(), in_group);
    const GroupExponents exponents(group, kernels);
    const Shape shape = exponents.shape(group.num_blocks());
    const std::size_t bytes = shape.num_bytes(format);
    if (room - used < bytes) return 0;
    pack_group(format, target + used, group, exponents, shape, kernels);
    used += bytes;
  }
  return used;
}

bool unpack(Format format, void* target, std::size_t count, std::span<const std::uint8_t> packed) {
  const BlockKernels& kernels = kernels_for(format);
  const std::size_t size = element_bytes(format);
  std::array<std::uint8_t, group_elements * sizeof(float)> last;
  for (std::size_t begin = 0; begin < count; begin += group_elements) {
    const std::size_t wanted = std::min(group_elements, count - begin);
    std::uint8_t* into = static_cast<std::uint8_t*>(target) + begin * size;
    std::uint8_t* elements = wanted % packing_block == 0 ? into : last.data();
    const std::size_t bytes = unpack_group(format, elements, num_blocks_of(wanted), packed, kernels);
    if (bytes == 0) return false;
    if (elements != into) std::memcpy(into, elements, wanted * size);
    packed = packed.subspan(bytes);
  }
  return std::all_of(packed.begin(), packed.end(), [](std::uint8_t byte) { return byte == 0; });
}

void fill_refused(std::span<std::uint8_t> target, std::size_t count) {
  // Groups of zeros, a byte each; and then not what a packet is filled up with.
  std::fill(target.begin(), target.end(), std::uint8_t{0xff});
  const std::size_t num_groups = (count + group_elements - 1) / group_elements;
  // With nothing after them they would be taken. A first group that has blocks takes more bytes than one: it is itself
  // too long, or leaves too few for the others.
  if (target.size() == num_groups) target[0] = 0;
}

// ---------------------------------------------------------------------------------------------------- one block

namespace {

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
BlockSums exponents_of_block(Exponents& exponents, const void* elements) {
  BlockSums sums;
  for (std::size_t i = 0; i < packing_block; ++i) {
    const Word<F> word = word_at<F>(elements, i);
    exponents[i] = static_cast<std::uint8_t>(word >> fraction_bits<F>);  // the sign falls off
    sums.has_bits = sums.has_bits || word != 0;
    sums.exponents += exponents[i];
    sums.num_scaled += exponents[i] != 0;
  }
  return sums;
}

std::array<std::uint32_t, 3> further_bits_of(std::span<const Exponents> blocks, std::uint8_t middle) {
  std::array<std::uint32_t, 3> bits{};
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const auto base = static_cast<std::uint8_t>(middle - 1 + i);
    for (const Exponents& block : blocks) {
      for (const std::uint8_t exponent : block) bits[i] += Ladder::further_bits[Ladder::distance(exponent, base)];
    }
  }
  return bits;
}

std::uint32_t write_block(BitWriter& further, const Exponents& exponents, std::uint8_t base) {
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < packing_block; ++i) {
    first |= std::uint32_t{Ladder::codes[0][Ladder::distance(exponents[i], base)]} << 2 * i;
  }
  std::uint32_t open = pairs_of_three(first);  // what no rung has told so far
  for (std::size_t rung = 1; rung < Ladder::num_rungs; ++rung) {
    for (std::size_t i = 0; i < packing_block; ++i) {
      if ((open >> 2 * i & 3) == 0) continue;
      const std::uint32_t code = Ladder::codes[rung][Ladder::distance(exponents[i], base)];
      further.put(code, 2);
      if (code != Ladder::further) open &= ~(3u << 2 * i);
    }
  }
  for (std::size_t i = 0; i < packing_block; ++i) {
    if ((open >> 2 * i & 3) != 0) further.put(exponents[i], Ladder::bare_bits);
  }
  return first;
}

void read_block(Exponents& exponents, BitReader& further, std::uint32_t first, std::uint8_t base) {
  const auto lowest = static_cast<std::uint8_t>(base - Ladder::below_base);
  std::uint32_t open = 0;
  const auto place = [&](std::size_t rung, std::size_t i, std::uint32_t code) {
    if (code == Ladder::further) {
      open |= 3u << 2 * i;
    } else {
      open &= ~(3u << 2 * i);
      exponents[i] = static_cast<std::uint8_t>(lowest + Ladder::distances[rung][code]);
    }
  };
  for (std::size_t i = 0; i < packing_block; ++i) place(0, i, first >> 2 * i & 3);
  for (std::size_t rung = 1; rung < Ladder::num_rungs; ++rung) {
    for (std::size_t i = 0; i < packing_block; ++i) {
      if ((open >> 2 * i & 3) != 0) place(rung, i, further.take(2));
    }
  }
  for (std::size_t i = 0; i < packing_block; ++i) {
    if ((open >> 2 * i & 3) != 0) exponents[i] = static_cast<std::uint8_t>(further.take(Ladder::bare_bits));
  }
}

template <Format F>
void save_rests_of_block(std::uint8_t* rests, const void* elements) {
  constexpr Word<F> fraction_mask = (Word<F>{1} << fraction_bits<F>)-1;
  for (std::size_t i = 0; i < packing_block; ++i) {
    const Word<F> word = word_at<F>(elements, i);
    const auto sign = static_cast<std::uint32_t>(word >> (8 * sizeof word - 1));
    const std::uint32_t rest = (word & fraction_mask) | sign << fraction_bits<F>;
    for (std::size_t byte = 0; byte < rest_bytes(F); ++byte) *rests++ = static_cast<std::uint8_t>(rest >> (8 * byte));
  }
}

template <Format F>
void join_block(void* elements, const Exponents& exponents, const std::uint8_t* rests) {
  for (std::size_t i = 0; i < packing_block; ++i) {
    std::uint32_t rest = 0;
    for (std::size_t byte = 0; byte < rest_bytes(F); ++byte) rest |= std::uint32_t{*rests++} << (8 * byte);
    const std::uint32_t sign = rest >> fraction_bits<F>;
    const std::uint32_t fraction = rest & ((1u << fraction_bits<F>)-1);
    const auto word = static_cast<Word<F>>(sign << (8 * sizeof(Word<F>) - 1) |
                                           std::uint32_t{exponents[i]} << fraction_bits<F> | fraction);
    std::memcpy(static_cast<std::uint8_t*>(elements) + i * sizeof word, &word, sizeof word);
  }
}

template <Format F>
constexpr BlockKernels kernels_of{exponents_of_block<F>,  further_bits_of, write_block, read_block,
                                  save_rests_of_block<F>, join_block<F>};

}  // namespace

constinit const BlockKernels f32_blocks_portable = kernels_of<Format::f32>;
constinit const BlockKernels bf16_blocks_portable = kernels_of<Format::bf16>;

}  // namespace holdfast::kernels
