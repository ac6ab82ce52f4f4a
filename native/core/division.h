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

// The same in whole blocks: what lies on the grid of the whole lies on that of its shards.
constexpr ElementRange shard_of_blocks(std::uint32_t total, std::uint32_t num_ranks, std::uint32_t shard) {
  const std::uint32_t num_blocks = total / block_elements + (total % block_elements != 0 ? 1 : 0);
  const ElementRange blocks = shard_range(num_blocks, num_ranks, shard);
  const auto element = [total](std::uint32_t block) {
    return block > total / block_elements ? total : block * block_elements;
  };
  return {element(blocks.begin), element(blocks.end)};
}

// Responsibility rotates by one with every operation, so that tail drops do not always hit the same parameters.
constexpr std::uint32_t responsible_shard(std::uint32_t rank, std::uint32_t operation, std::uint32_t num_ranks) {
  return (rank + operation % num_ranks) % num_ranks;
}

// In the k-th turn (from 1) a rank sends to this peer, so that no receiver hears two first turns at once.
constexpr std::uint32_t peer_of_turn(std::uint32_t rank, std::uint32_t turn, std::uint32_t num_ranks) {
  return (rank + num_ranks - turn) % num_ranks;
}

// Smaller buckets are divided evenly whatever was agreed. There is little to gain, and with weights from 1 to 64 every
// rank has a shard of a larger one, so that each hears from all others.
constexpr bool may_be_uneven(std::uint32_t total, std::uint32_t num_ranks) {
  return num_ranks > 2 && total / num_ranks >= 64;
}

// How large each rank's shard is. A rank whose network is slow can have a smaller one; the order in which the ranks'
// shards lie in the bucket rotates all the same.
class Division {
 public:
  static constexpr std::uint8_t max_number = 7;

  // Without weights, or with weights for another number of ranks, every shard has the same size.
  Division() = default;
  // `number`, 1 to 7, is what packets carry: it differs from that of the division before, so that ranks of which one
  // has missed an agreement notice it.
  explicit Division(std::vector<std::uint8_t> weights, std::uint8_t number = 1);
  static const Division& even();

  // What a bucket of this size takes of it.
  const Division& of_bucket(std::uint32_t total, std::uint32_t num_ranks) const {
    return weights_.size() == num_ranks && may_be_uneven(total, num_ranks) ? *this : even();
  }
  ElementRange shard(std::uint32_t total, std::uint32_t num_ranks, std::uint32_t rank, std::uint32_t operation) const;
  const std::vector<std::uint8_t>& weights() const { return weights_; }
  std::uint8_t number() const { return number_; }  // 0: even

 private:
  std::vector<std::uint8_t> weights_;  // by rank; empty: even
  std::uint64_t total_weight_ = 0;
  std::uint8_t number_ = 0;
};

}  // namespace holdfast
