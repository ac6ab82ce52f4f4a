// The sum of one shard as its contributions arrive in any order and possibly in part, and the unbiased mean of it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer_pool.h"
#include "core/presence.h"
#include "kernels/kernels.h"

namespace holdfast {

class ShardSum {
 public:
  // Between groups of ranks a contribution is itself a sum, of `ranks_each` gradients.
  ShardSum(std::uint32_t num_elements, Format format, std::uint16_t rank, std::uint16_t num_ranks, BufferPool& pool,
           std::uint32_t ranks_each = 1);

  // Bytes that accepting a first contribution will allocate; 0 when the memory is there.
  std::size_t bytes_to_allocate() const;
  // Keep contributions apart and sum them in rank order. Only before the first contribution.
  void sum_in_rank_order() { in_rank_order_ = !started_; }
  // Count what did not arrive as zero, as OptiReduce does: a sum that shrinks with every loss.
  void fill_with_zeros() { zero_fill_ = true; }
  // A block in which fewer gradients than this are is a hole.
  void require_gradients(std::uint32_t least) { least_gradients_ = least; }

  const Presence& from(std::uint16_t sender) const { return contributions_[sender]; }
  // Adds what is new of [begin, begin + count); returns how many elements were. Of the gradients that should be in it
  // it lacks `lacking`; if that is all of them, it has come, and is not added.
  std::uint32_t add(std::uint16_t sender, std::uint32_t begin, std::uint32_t count, const std::uint8_t* elements,
                    std::uint32_t lacking = 0);
  // Where the owner's own contribution lacks gradients; before anything is finished.
  void own_lacks(const std::vector<Gap>& gaps);

  struct Result {
    BufferPool::Buffer elements;      // in wire format
    std::vector<ElementRange> holes;  // blocks to which nobody but the owner, or too few contributed: zero, and lost
    std::vector<Gap> gaps;            // the rest of what lacks contributors, ascending
    std::uint64_t delivered = 0;      // contributor-elements in the result
  };
  // `own` is the owner's contribution, null when it never came.
  //
  // The owner's part always arrives, so averaging over what arrived would favour it. Per block the result is
  // own/N + (N-1)/N x the mean of the others that arrived; without an own part, the mean of the others.
  Result finish(const std::uint8_t* own, bool average);

  // The parts of this range to which everybody else has contributed, and that are not finished yet.
  std::vector<ElementRange> ready_in(ElementRange range) const;
  // The result of a part to which everybody has contributed, before the rest is in. `elements()` holds it from then on.
  void finish_part(ElementRange range, const std::uint8_t* own, bool average);
  const BufferPool::Buffer& elements() const { return result_.elements; }

 private:
  void allocate();
  void accumulate(ElementRange run, const std::uint8_t* elements);
  void accumulate_in_rank_order(ElementRange range);
  void allocate_result();
  // What is in a block, beside the elements.
  struct Makeup {
    std::uint32_t contributors = 0;  // other than the owner
    bool has_own = false;
    std::uint32_t lacking = 0;  // gradients, of those that the contributions and the own part should hold
    bool operator==(const Makeup&) const = default;
  };
  void combine(ElementRange run, const Makeup& makeup, const std::uint8_t* own, bool average);
  Makeup makeup_of(std::uint32_t block, bool has_own) const;
  std::vector<ElementRange> without_lack(const std::vector<ElementRange>& parts) const;
  void note_lacking(ElementRange run, std::uint32_t lacking);
  std::uint8_t* accumulator_at(std::uint32_t element) const {
    return accumulator_.get() + element * accumulator_bytes(format_);
  }

  std::uint32_t num_elements_;
  Format format_;
  std::uint16_t rank_;
  std::uint16_t num_ranks_;
  std::uint32_t ranks_each_;
  BufferPool& pool_;
  bool in_rank_order_ = false;
  bool zero_fill_ = false;
  std::uint32_t least_gradients_ = 0;
  bool started_ = false;
  std::vector<Presence> contributions_;
  std::vector<Presence> empty_;  // by sender: what came and held nothing; the own entry: where there is no own part
  std::vector<std::uint32_t> lacking_;  // by block; neither is there before something lacks
  Presence summed_;                     // blocks of the accumulator that hold something
  BufferPool::Buffer accumulator_;
  std::vector<BufferPool::Buffer> kept_;  // by sender, in wire format, when summing in rank order
  Presence finished_;                     // parts of the result that are there before the rest
  Result result_;
};

}  // namespace holdfast
