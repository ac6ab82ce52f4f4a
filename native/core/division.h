// Who is responsible for which part of a bucket (OptiReduce 2.1 and 3.1.1).
#pragma once

#include <cstdint>
#include <vector>

#include "core/presence.h"

namespace holdfast {

// Shard k of n: the first total % n shards hold one element more.
constexpr ElementRange shard_range(std::uint32_t total, std::uint32_t num_ranks, std::uint32_t shard) {
  const std::uint32_t base = total / num_ranks;
  const std::uint32_t larger = total % num_ranks;
  const std::uint32_t begin = base * shard + (shard < larger ? shard : larger);
  return {begin, begin + base + (shard < larger ? 1 : 0)};
}

// Responsibility rotates by one with every operation, so that tail drops do not always hit the same parameters.
constexpr std::uint32_t responsible_shard(std::uint32_t rank, std::uint32_t operation, std::uint32_t num_ranks) {
  return (rank + operation % num_ranks) % num_ranks;
}

// In the k-th turn (from 1) a rank sends to this peer, so that no receiver hears two first turns at once.
constexpr std::uint32_t peer_of_turn(std::uint32_t rank, std::uint32_t turn, std::uint32_t num_ranks) {
  return (rank + num_ranks - turn) % num_ranks;
}

// How large each rank's shard is. A rank whose network is slow can have a smaller one; the order in which the ranks'
// shards lie in the bucket rotates all the same.
class Division {
 public:
  // Without weights, or with weights for another number of ranks, every shard has the same size.
  Division() = default;
  explicit Division(std::vector<std::uint8_t> weights);
  static const Division& even();

  ElementRange shard(std::uint32_t total, std::uint32_t num_ranks, std::uint32_t rank, std::uint32_t operation) const;
  const std::vector<std::uint8_t>& weights() const { return weights_; }

 private:
  std::vector<std::uint8_t> weights_;  // by rank; empty: even
  std::uint64_t total_weight_ = 0;
};

}  // namespace holdfast
