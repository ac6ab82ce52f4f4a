#include "core/shard_sum.h"

#include <algorithm>
#include <cstring>

namespace holdfast {

ShardSum::ShardSum(std::uint32_t num_elements, Format format, std::uint16_t rank, std::uint16_t num_ranks,
                   BufferPool& pool)
    : num_elements_(num_elements),
      format_(format),
      rank_(rank),
      num_ranks_(num_ranks),
      pool_(pool),
      contributions_(num_ranks, Presence(num_elements)),
      summed_(num_elements) {}

std::size_t ShardSum::bytes_to_allocate() const {
  if (started_) return 0;
  const std::size_t kept = in_rank_order_ ? element_bytes(format_) * (num_ranks_ - 1u) : 0;
  return num_elements_ * (accumulator_bytes(format_) + kept);
}

void ShardSum::allocate() {
  started_ = true;
  accumulator_ = pool_.take(num_elements_ * accumulator_bytes(format_));
  if (!in_rank_order_) return;
  kept_.resize(num_ranks_);
  for (std::uint16_t sender = 0; sender < num_ranks_; ++sender) {
    if (sender != rank_) kept_[sender] = pool_.take(num_elements_ * element_bytes(format_));
  }
}

std::uint32_t ShardSum::add(std::uint16_t sender, std::uint32_t begin, std::uint32_t count,
                            const std::uint8_t* elements) {
  if (!started_) allocate();
  return contributions_[sender].mark(begin, count, [&](ElementRange run) {
    const std::uint8_t* at = elements + std::size_t{run.begin - begin} * element_bytes(format_);
    if (in_rank_order_) {
      const std::size_t size = element_bytes(format_);
      std::memcpy(kept_[sender].get() + run.begin * size, at, run.size() * size);
    } else {
      accumulate(run, at);
    }
  });
}

// The first contribution to a block is stored, later ones are added: no pass to clear the accumulator.
void ShardSum::accumulate(ElementRange run, const std::uint8_t* elements) {
  const auto source = [&](ElementRange part) {
    return elements + std::size_t{part.begin - run.begin} * element_bytes(format_);
  };
  summed_.for_each_run(run.begin, run.size(), true, [&](ElementRange part) {
    kernels::add(format_, accumulator_at(part.begin), source(part), part.size());
  });
  summed_.mark(run.begin, run.size(), [&](ElementRange part) {
    kernels::store(format_, accumulator_at(part.begin), source(part), part.size());
  });
}

void ShardSum::accumulate_in_rank_order() {
  for (std::uint16_t sender = 0; sender < num_ranks_; ++sender) {
    if (sender == rank_) continue;
    contributions_[sender].for_each_run(0, num_elements_, true, [&](ElementRange run) {
      accumulate(run, kept_[sender].get() + run.begin * element_bytes(format_));
    });
  }
}

std::uint32_t ShardSum::contributors_of(std::uint32_t block) const {
  std::uint32_t count = 0;
  for (std::uint16_t sender = 0; sender < num_ranks_; ++sender) {
    if (sender != rank_ && contributions_[sender].has_block(block)) ++count;
  }
  return count;
}

ShardSum::Result ShardSum::finish(const std::uint8_t* own, bool average) {
  Result result;
  if (num_elements_ == 0) return result;
  if (!started_) allocate();
  if (in_rank_order_) accumulate_in_rank_order();
  // Same-width formats can be narrowed in place; a 16-bit result needs room of its own.
  const bool in_place = element_bytes(format_) == accumulator_bytes(format_);
  result.elements = in_place ? accumulator_ : pool_.take(num_elements_ * element_bytes(format_));

  bool all_here = true;
  for (std::uint16_t sender = 0; sender < num_ranks_; ++sender) {
    all_here = all_here && (sender == rank_ || contributions_[sender].complete());
  }
  if (all_here) {
    combine({0, num_elements_}, num_ranks_ - 1u, own, average, result);
    return result;
  }
  const std::uint32_t num_blocks = summed_.num_blocks();
  for (std::uint32_t block = 0; block < num_blocks;) {
    const std::uint32_t contributors = contributors_of(block);
    std::uint32_t next = block + 1;
    while (next < num_blocks && contributors_of(next) == contributors) ++next;
    combine({block * block_elements, std::min(next * block_elements, num_elements_)}, contributors, own, average,
            result);
    block = next;
  }
  return result;
}

void ShardSum::combine(ElementRange run, std::uint32_t contributors, const std::uint8_t* own, bool average,
                       Result& result) {
  const std::size_t size = element_bytes(format_);
  std::uint8_t* out = result.elements.get() + run.begin * size;
  const double ranks = num_ranks_;
  if (contributors == 0 && num_ranks_ > 1) {
    std::memset(out, 0, run.size() * size);
    result.holes.push_back(run);
    return;
  }
  const std::uint32_t present = contributors + (own == nullptr ? 0 : 1);
  result.delivered += std::uint64_t{run.size()} * present;
  if (present < num_ranks_) result.gaps.push_back({run, num_ranks_ - present});
  const double total_weight = average ? 1.0 : ranks;
  double own_weight = 0;
  double others_weight = 0;
  if (own == nullptr) {
    others_weight = total_weight / contributors;
  } else if (contributors + 1 == num_ranks_) {
    own_weight = others_weight = total_weight / ranks;
  } else {
    own_weight = total_weight / ranks;
    others_weight = total_weight * (ranks - 1) / (ranks * contributors);
  }
  kernels::combine(format_, out, own == nullptr ? nullptr : own + run.begin * size, own_weight,
                   contributors == 0 ? nullptr : accumulator_at(run.begin), others_weight, run.size());
}

}  // namespace holdfast
