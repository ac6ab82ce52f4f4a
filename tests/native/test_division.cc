// Who is responsible for what: every element has one owner, shards follow the weights, and their order rotates.
#include <vector>

#include "core/division.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

// Are the shards, in the order of this operation, the bucket from end to end?
bool covers(const Division& division, std::uint32_t total, std::uint32_t num_ranks, std::uint32_t operation) {
  std::uint32_t reached = 0;
  for (std::uint32_t place = 0; place < num_ranks; ++place) {
    for (std::uint32_t rank = 0; rank < num_ranks; ++rank) {
      if (responsible_shard(rank, operation, num_ranks) != place) continue;
      const ElementRange shard = division.shard(total, num_ranks, rank, operation);
      if (shard.begin != reached || shard.end < shard.begin) return false;
      reached = shard.end;
    }
  }
  return reached == total;
}

}  // namespace

HF_CASE(every_element_has_one_owner) {
  for (const std::vector<std::uint8_t>& weights :
       {std::vector<std::uint8_t>{}, {64, 64, 64, 64}, {64, 1, 64, 64}, {0, 64, 64, 3}, {255, 255, 255, 1}}) {
    const Division division(weights);
    for (const std::uint32_t total : {0u, 1u, 3u, 17u, 262144u, 4294967295u}) {
      for (std::uint32_t operation = 0; operation < 9; ++operation) HF_CHECK(covers(division, total, 4, operation));
      HF_CHECK(covers(division, total, 4, 4294967295u));
    }
  }
}

HF_CASE(shards_follow_the_weights) {
  const Division division({64, 16, 64, 64});
  for (std::uint32_t operation = 0; operation < 8; ++operation) {
    HF_EQUAL(division.shard(208'000, 4, 1, operation).size(), 16'000u);
    HF_EQUAL(division.shard(208'000, 4, 2, operation).size(), 64'000u);
  }
}

HF_CASE(the_order_rotates) {
  const Division division({64, 16, 64, 64});
  HF_EQUAL(division.shard(208, 4, 1, 0).begin, 64u);
  HF_EQUAL(division.shard(208, 4, 1, 3).begin, 0u);  // after three operations it is the first
  HF_EQUAL(division.shard(208, 4, 1, 2).end, 208u);  // and before that the last
}

HF_CASE(a_rank_may_have_none) {
  const Division division({64, 0, 64});
  HF_EQUAL(division.shard(1000, 3, 1, 0).size(), 0u);
  HF_EQUAL(division.shard(1000, 3, 0, 0).size(), 500u);
}

HF_CASE(without_usable_weights_shards_are_even) {
  for (const Division& division : {Division(), Division({0, 0, 0}), Division({64, 1})}) {
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      HF_CHECK(division.shard(100, 3, rank, 5) == shard_range(100, 3, responsible_shard(rank, 5, 3)));
    }
  }
}

HF_TEST_MAIN
