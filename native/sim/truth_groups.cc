// The truth about hierarchical operations: sums of groups, and sums of those.
#include <algorithm>

#include "sim/truth.h"

namespace holdfast::sim {
namespace {

// The part of a group's sum that somebody in another group sums up.
Share share_of(const ShardTruth& group, ElementRange part, std::size_t element_size) {
  const auto begin = group.elements.begin() + static_cast<std::ptrdiff_t>(part.begin * element_size);
  Share share{{begin, begin + static_cast<std::ptrdiff_t>(part.size() * element_size)}, {}};
  for (std::uint32_t at = part.begin; at < part.end; at += block_elements) {
    const std::uint32_t block = at / block_elements;
    share.makeup.push_back(group.holes[block] ? 0 : group.contributors[block]);
  }
  return share;
}

}  // namespace

GroupsTruth Truth::groups(std::uint32_t call, const std::vector<std::pair<bool, bool>>& own_included,
                          const std::vector<std::vector<std::uint8_t>>& gradients) const {
  const std::uint32_t number = call | between_groups_bit;
  const std::size_t size = element_bytes(workload_.operations()[call].format);
  std::vector<ShardTruth> of_group;
  for (std::uint16_t rank = 0; rank < num_ranks_; ++rank) {
    of_group.push_back(shard(call, rank, own_included[rank].first, gradients));
  }
  GroupsTruth truth;
  for (std::uint16_t owner = 0; owner < num_ranks_; ++owner) {
    std::vector<Share> shares(num_ranks_);
    for (std::uint16_t rank = 0; rank < num_ranks_; ++rank) {
      if (take_part_together(number, owner, rank))
        shares[rank] = share_of(of_group[rank], shard_of(number, owner), size);
    }
    const auto num_groups = static_cast<std::size_t>(workload_.num_groups());
    truth.between.push_back(sum(number, owner, own_included[owner].second, num_groups, shares));
  }
  for (std::uint16_t rank = 0; rank < num_ranks_; ++rank) {
    ShardTruth whole = std::move(of_group[rank]);
    std::fill(whole.holes.begin(), whole.holes.end(), true);  // until something fills them
    for (std::uint16_t owner = 0; owner < num_ranks_; ++owner) {
      if (!take_part_together(number, rank, owner)) continue;
      const ShardTruth& part = truth.between[owner];
      const auto here = rank == owner ? std::vector<std::uint8_t>() : results_taken(number, rank, owner);
      for (std::uint32_t block = 0; block < part.holes.size(); ++block) {
        if (part.holes[block] || (rank != owner && here[block] != 1)) continue;
        const std::uint32_t begin = part.shard.begin + block * block_elements;
        const std::uint32_t count = std::min(block_elements, part.shard.end - begin);
        std::copy_n(part.elements.begin() + static_cast<std::ptrdiff_t>(block * block_elements * size), count * size,
                    whole.elements.begin() + static_cast<std::ptrdiff_t>(begin * size));
        whole.contributors[begin / block_elements] = part.contributors[block];
        whole.holes[begin / block_elements] = false;
      }
    }
    truth.within.push_back(std::move(whole));
  }
  return truth;
}

}  // namespace holdfast::sim
