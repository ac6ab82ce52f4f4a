#include "core/shard_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace holdfast {

ShardSum::ShardSum(std::uint32_t num_elements, Format format, std::uint16_t rank, std::uint16_t num_ranks,
                   BufferPool& pool, std::uint32_t ranks_each)
    : num_elements_(num_elements),
      format_(format),
      rank_(rank),
      num_ranks_(num_ranks),
      ranks_each_(ranks_each),
      pool_(pool),
      contributions_(num_ranks, Presence(num_elements)),
      summed_(num_elements),
      finished_(num_elements) {}

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
                            const std::uint8_t* elements, std::uint32_t lacking) {
  if (!started_) allocate();
  return contributions_[sender].mark(begin, count, [&](ElementRange run) {
    if (lacking == ranks_each_) {
      if (empty_.empty()) empty_.assign(num_ranks_, Presence(num_elements_));
      empty_[sender].mark(run.begin, run.size(), [](ElementRange) {});
      return;
    }
    note_lacking(run, lacking);
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

void ShardSum::accumulate_in_rank_order(ElementRange range) {
  for (std::uint16_t sender = 0; sender < num_ranks_; ++sender) {
    if (sender == rank_) continue;
    const auto add_kept = [&](ElementRange run) {
      accumulate(run, kept_[sender].get() + run.begin * element_bytes(format_));
    };
    contributions_[sender].for_each_run(range.begin, range.size(), true, [&](ElementRange run) {
      if (empty_.empty()) return add_kept(run);
      empty_[sender].for_each_run(run.begin, run.size(), false, add_kept);
    });
  }
}

void ShardSum::note_lacking(ElementRange run, std::uint32_t lacking) {
  if (lacking == 0) return;
  if (lacking_.empty()) lacking_.assign(summed_.num_blocks(), 0);
  const std::uint32_t end_block = (run.end + block_elements - 1) / block_elements;
  for (std::uint32_t block = run.begin / block_elements; block < end_block; ++block) lacking_[block] += lacking;
}

void ShardSum::own_lacks(const std::vector<Gap>& gaps) {
  for (const Gap& gap : gaps) {
    if (gap.missing_per_element < ranks_each_) {
      note_lacking(gap.range, gap.missing_per_element);
      continue;
    }
    if (empty_.empty()) empty_.assign(num_ranks_, Presence(num_elements_));
    empty_[rank_].mark(gap.range.begin, gap.range.size(), [](ElementRange) {});
  }
}

ShardSum::Makeup ShardSum::makeup_of(std::uint32_t block, bool has_own) const {
  Makeup makeup;
  makeup.has_own = has_own && (empty_.empty() || !empty_[rank_].has_block(block));
  for (std::uint16_t sender = 0; sender < num_ranks_; ++sender) {
    if (sender == rank_ || !contributions_[sender].has_block(block)) continue;
    if (empty_.empty() || !empty_[sender].has_block(block)) ++makeup.contributors;
  }
  if (!lacking_.empty()) makeup.lacking = lacking_[block];
  return makeup;
}

std::vector<ElementRange> ShardSum::ready_in(ElementRange range) const {
  std::vector<ElementRange> parts{range};
  const auto keep = [&parts](const Presence& where, bool present) {
    std::vector<ElementRange> kept;
    for (const ElementRange& part : parts) {
      where.for_each_run(part.begin, part.size(), present, [&](ElementRange run) { kept.push_back(run); });
    }
    parts = std::move(kept);
  };
  keep(finished_, false);
  for (std::uint16_t sender = 0; sender < num_ranks_ && !parts.empty(); ++sender) {
    if (sender != rank_) keep(contributions_[sender], true);
  }
  return empty_.empty() && lacking_.empty() ? parts : without_lack(parts);
}

// What of these parts came from everybody and held all that it should.
std::vector<ElementRange> ShardSum::without_lack(const std::vector<ElementRange>& parts) const {
  std::vector<ElementRange> whole;
  for (const ElementRange& part : parts) {
    for (std::uint32_t begin = part.begin; begin < part.end; begin += block_elements) {
      if (makeup_of(begin / block_elements, true) != Makeup{num_ranks_ - 1u, true, 0}) continue;
      const ElementRange block{begin, std::min(begin + block_elements, part.end)};
      if (!whole.empty() && whole.back().end == block.begin) {
        whole.back().end = block.end;
      } else {
        whole.push_back(block);
      }
    }
  }
  return whole;
}

// Same-width formats can be narrowed in place; a 16-bit result needs room of its own.
void ShardSum::allocate_result() {
  if (result_.elements) return;
  if (!started_) allocate();
  const bool in_place = element_bytes(format_) == accumulator_bytes(format_);
  result_.elements = in_place ? accumulator_ : pool_.take(num_elements_ * element_bytes(format_));
}

void ShardSum::finish_part(ElementRange range, const std::uint8_t* own, bool average) {
  allocate_result();
  finished_.mark(range.begin, range.size(), [&](ElementRange run) {
    if (in_rank_order_) accumulate_in_rank_order(run);
    combine(run, {num_ranks_ - 1u, true, 0}, own, average);
  });
}

ShardSum::Result ShardSum::finish(const std::uint8_t* own, bool average) {
  if (num_elements_ == 0) return {};
  allocate_result();
  finished_.for_each_run(0, num_elements_, false, [&](ElementRange rest) {
    if (in_rank_order_) accumulate_in_rank_order(rest);
    const std::uint32_t end_block = (rest.end + block_elements - 1) / block_elements;
    for (std::uint32_t block = rest.begin / block_elements; block < end_block;) {
      const Makeup makeup = makeup_of(block, own != nullptr);
      std::uint32_t next = block + 1;
      while (next < end_block && makeup_of(next, own != nullptr) == makeup) ++next;
      combine({block * block_elements, std::min(next * block_elements, num_elements_)}, makeup, own, average);
      block = next;
    }
  });
  return std::move(result_);
}

void ShardSum::combine(ElementRange run, const Makeup& makeup, const std::uint8_t* own, bool average) {
  const std::size_t size = element_bytes(format_);
  std::uint8_t* out = result_.elements.get() + run.begin * size;
  const double ranks = num_ranks_;
  const std::uint32_t contributors = makeup.contributors;
  const bool own_alone_counts = zero_fill_ && makeup.has_own;
  const std::uint32_t present = (contributors + (makeup.has_own ? 1 : 0)) * ranks_each_ - makeup.lacking;
  if ((contributors == 0 && num_ranks_ > 1 && !own_alone_counts) || present < least_gradients_) {
    std::memset(out, 0, run.size() * size);
    result_.holes.push_back(run);
    return;
  }
  result_.delivered += std::uint64_t{run.size()} * present;
  if (present < num_ranks_ * ranks_each_) result_.gaps.push_back({run, num_ranks_ * ranks_each_ - present});
  const double total_weight = average ? 1.0 : ranks;
  double own_weight = 0;
  double others_weight = 0;
  if (zero_fill_) {
    own_weight = others_weight = total_weight / ranks;
  } else if (!makeup.has_own) {
    others_weight = total_weight / contributors;
  } else if (contributors + 1 == num_ranks_) {
    own_weight = others_weight = total_weight / ranks;
  } else {
    own_weight = total_weight / ranks;
    others_weight = total_weight * (ranks - 1) / (ranks * contributors);
  }
  kernels::combine(format_, out, makeup.has_own ? own + run.begin * size : nullptr, own_weight,
                   contributors == 0 ? nullptr : accumulator_at(run.begin), others_weight, run.size());
}

}  // namespace holdfast
