// One bounded operation as it should be, by blocks and by counting: what was taken, and the result that follows from
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/operation.h"
#include "fuzz/elements.h"
#include "fuzz/input.h"

namespace holdfast::fuzz {

struct BoundedSetting {
  static constexpr std::uint32_t layout = 7;

  std::uint16_t num_ranks;
  std::uint16_t rank;
  std::uint32_t number;
  Operation::Identity identity;
  Parameters parameters;

  explicit BoundedSetting(Input& input)
      : num_ranks(static_cast<std::uint16_t>(input.between(2, 4))),
        rank(static_cast<std::uint16_t>(input.below(num_ranks))),
        number(input.below(6)) {
    identity.total = input.rarely() ? input.below(8) : input.between(0, 299);
    identity.layout = layout;
    identity.format = static_cast<Format>(input.between(1, 4));
    identity.average = input.flag();
    parameters.t_b = Duration{input.between(1, 50)} * millisecond;
    parameters.t_c = Duration{input.between(1, 50)} * millisecond;
    parameters.early_wait_ratio = input.below(5) / 4.0;
    parameters.deterministic = input.flag();
    parameters.duty_limit = 300 * millisecond;
  }
};

// By blocks, the grid worked out by counting.
class BoundedModel {
 public:
  explicit BoundedModel(const BoundedSetting& setting) : setting_(setting) {
    const std::uint32_t n = setting.num_ranks;
    for (std::uint32_t index = 0, begin = 0; index < n; ++index) {
      const std::uint32_t end = begin + setting.identity.total / n + (index < setting.identity.total % n ? 1 : 0);
      shards_.push_back({begin, end});
      begin = end;
    }
    contributions_.assign(n, std::vector<bool>(num_blocks(shard(setting.rank)), false));
    for (std::uint16_t owner = 0; owner < n; ++owner) results_.emplace_back(num_blocks(shard(owner)), ' ');
  }

  ElementRange shard(std::uint16_t owner) const { return shards_[(owner + setting_.number) % setting_.num_ranks]; }
  static std::uint32_t num_blocks(ElementRange shard) { return (shard.size() + block_elements - 1) / block_elements; }
  std::uint32_t block_size(std::uint16_t owner, std::uint32_t block) const {
    return std::min(block_elements, shard(owner).size() - block * block_elements);
  }

  // Are these whole blocks of that shard?
  bool fits(std::uint16_t owner, std::uint32_t offset, std::uint32_t count) const {
    const ElementRange range = shard(owner);
    if (offset < range.begin || std::uint64_t{offset} + count > range.end) return false;
    const bool ends_on_grid = (offset + count - range.begin) % block_elements == 0 || offset + count == range.end;
    return (offset - range.begin) % block_elements == 0 && ends_on_grid;
  }
  // Marks; how many elements were new.
  std::uint32_t contribute(std::uint16_t sender, std::uint32_t offset, std::uint32_t count) {
    std::uint32_t added = 0;
    for_blocks(setting_.rank, offset, count, [&](std::uint32_t block) {
      if (contributions_[sender][block]) return;
      contributions_[sender][block] = true;
      added += block_size(setting_.rank, block);
    });
    return added;
  }
  std::uint32_t place(std::uint16_t owner, std::uint32_t offset, std::uint32_t count, bool hole) {
    std::uint32_t added = 0;
    for_blocks(owner, offset, count, [&](std::uint32_t block) {
      if (results_[owner][block] != ' ') return;
      results_[owner][block] = hole ? 'h' : 'v';
      added += block_size(owner, block);
    });
    return added;
  }

  std::uint32_t contributors(std::uint32_t block) const {
    std::uint32_t count = 0;
    for (const auto& from : contributions_) count += from[block] ? 1 : 0;
    return count;
  }
  double own_result(std::uint32_t element, bool own_included) const {
    const std::uint32_t block = (element - shard(setting_.rank).begin) / block_elements;
    double others = 0;
    for (std::uint16_t rank = 0; rank < setting_.num_ranks; ++rank) {
      if (contributions_[rank][block]) others += gradient_at(rank, element);
    }
    const double n = setting_.num_ranks;
    const double mean_of_others = others / contributors(block);
    const double mean =
        own_included ? gradient_at(setting_.rank, element) / n + (n - 1) / n * mean_of_others : mean_of_others;
    return setting_.identity.average ? mean : mean * n;
  }
  char result(std::uint16_t owner, std::uint32_t block) const { return results_[owner][block]; }
  std::uint32_t contributed(std::uint16_t sender) const {
    std::uint32_t elements = 0;
    for (std::uint32_t block = 0; block < contributions_[sender].size(); ++block) {
      if (contributions_[sender][block]) elements += block_size(setting_.rank, block);
    }
    return elements;
  }
  std::uint32_t results(std::uint16_t owner) const {
    std::uint32_t elements = 0;
    for (std::uint32_t block = 0; block < results_[owner].size(); ++block) {
      if (results_[owner][block] == 'v') elements += block_size(owner, block);
    }
    return elements;
  }

 private:
  template <class Visit>
  void for_blocks(std::uint16_t owner, std::uint32_t offset, std::uint32_t count, Visit visit) const {
    const std::uint32_t begin = offset - shard(owner).begin;
    for (std::uint32_t at = begin; at < begin + count; at += block_elements) visit(at / block_elements);
  }

  const BoundedSetting& setting_;
  std::vector<ElementRange> shards_;
  std::vector<std::vector<bool>> contributions_;  // by sender
  std::vector<std::vector<char>> results_;        // by owner: ' ' nothing, 'v' values, 'h' a hole
};

}  // namespace holdfast::fuzz
