#include "core/division.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace holdfast {

Division::Division(std::vector<std::uint8_t> weights, std::uint8_t number)
    : weights_(std::move(weights)),
      total_weight_(std::accumulate(weights_.begin(), weights_.end(), std::uint64_t{0})),
      number_(std::clamp<std::uint8_t>(number, 1, max_number)) {
  const bool same = std::adjacent_find(weights_.begin(), weights_.end(), std::not_equal_to<>()) == weights_.end();
  if (!same) return;
  weights_.clear();
  number_ = 0;
}

const Division& Division::even() {
  static const Division division;
  return division;
}

ElementRange Division::shard(std::uint32_t total, std::uint32_t num_ranks, std::uint32_t rank,
                             std::uint32_t operation) const {
  const std::uint32_t place = responsible_shard(rank, operation, num_ranks);
  if (weights_.size() != num_ranks) return shard_range(total, num_ranks, place);
  // The rank at place 0 is the one for which rank + operation is a multiple of num_ranks.
  const std::uint32_t first_rank = (num_ranks - operation % num_ranks) % num_ranks;
  std::uint64_t before = 0;
  for (std::uint32_t at = 0; at < place; ++at) before += weights_[(first_rank + at) % num_ranks];
  const auto boundary = [&](std::uint64_t weight) {
    return static_cast<std::uint32_t>(total * weight / total_weight_);
  };
  return {boundary(before), boundary(before + weights_[rank])};
}

}  // namespace holdfast
