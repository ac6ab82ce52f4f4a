// Which blocks of a shard or note have arrived. Blocks are a fixed grid of elements agreed at join and independent of
// the datagram size, so that ranks with different MTUs, and later repairs, speak of the same blocks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace holdfast {

constexpr std::uint32_t block_elements = 16;

// A half-open range of elements.
struct ElementRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

// Elements that lack some of their contributors.
struct Gap {
  ElementRange range;
  std::uint32_t missing_per_element = 0;
};

class Presence {
 public:
  Presence() = default;
  explicit Presence(std::uint32_t num_elements) : num_elements_(num_elements), words_((num_blocks() + 63) / 64, 0) {}

  std::uint32_t num_elements() const { return num_elements_; }
  std::uint32_t num_blocks() const { return blocks_up_to(num_elements_); }
  std::uint32_t present_elements() const { return present_elements_; }
  std::uint32_t missing_elements() const { return num_elements_ - present_elements_; }
  bool complete() const { return present_elements_ == num_elements_; }
  bool has_block(std::uint32_t block) const { return words_[block / 64] >> (block % 64) & 1; }

  // Is every block of this range here?
  bool has(ElementRange range) const {
    return next_block(range.begin / block_elements, blocks_up_to(range.end), false) == blocks_up_to(range.end);
  }

  // On the grid and inside the shard: the only ranges that may be marked.
  bool fits(std::uint32_t begin, std::uint32_t count) const { return fits(num_elements_, begin, count); }
  static bool fits(std::uint32_t num_elements, std::uint32_t begin, std::uint32_t count) {
    return begin % block_elements == 0 && begin <= num_elements && count <= num_elements - begin &&
           (count % block_elements == 0 || begin + count == num_elements);
  }

  // Calls visit(range) for every maximal run of blocks within [begin, begin + count) that is not present yet, then
  // marks them. Returns how many elements were new.
  template <class Visit>
  std::uint32_t mark(std::uint32_t begin, std::uint32_t count, Visit visit) {
    const std::uint32_t before = present_elements_;
    for_each_run(begin, count, false, [&](ElementRange run) {
      visit(run);
      set_blocks(run.begin / block_elements, blocks_up_to(run.end));
      present_elements_ += run.size();
    });
    return present_elements_ - before;
  }

  // Calls visit(range) for every maximal run of present (or absent) blocks within [begin, begin + count).
  template <class Visit>
  void for_each_run(std::uint32_t begin, std::uint32_t count, bool present, Visit visit) const {
    const std::uint32_t end = begin + count;
    std::uint32_t block = begin / block_elements;
    const std::uint32_t last_block = blocks_up_to(end);
    while (block < last_block) {
      const std::uint32_t run_begin = next_block(block, last_block, present);
      if (run_begin == last_block) return;
      const std::uint32_t run_end = next_block(run_begin, last_block, !present);
      visit(ElementRange{run_begin * block_elements, run_end == last_block ? end : run_end * block_elements});
      block = run_end;
    }
  }

 private:
  // Rounded up, without passing 2^32 on the way.
  static std::uint32_t blocks_up_to(std::uint32_t end) {
    return end / block_elements + (end % block_elements != 0 ? 1 : 0);
  }

  // The first block at or after `block` whose bit equals `present`, or `limit`.
  std::uint32_t next_block(std::uint32_t block, std::uint32_t limit, bool present) const {
    while (block < limit) {
      std::uint64_t word = words_[block / 64];
      if (!present) word = ~word;
      word >>= block % 64;
      if (word != 0) return std::min(limit, block + static_cast<std::uint32_t>(std::countr_zero(word)));
      block = (block / 64 + 1) * 64;
    }
    return limit;
  }

  void set_blocks(std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t block = begin; block < end;) {
      const std::uint32_t bit = block % 64;
      const std::uint32_t span = std::min(64 - bit, end - block);
      const std::uint64_t mask = span == 64 ? ~0ull : ((1ull << span) - 1) << bit;
      words_[block / 64] |= mask;
      block += span;
    }
  }

  std::uint32_t num_elements_ = 0;
  std::uint32_t present_elements_ = 0;
  std::vector<std::uint64_t> words_;
};

}  // namespace holdfast
