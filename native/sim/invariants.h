// What must hold at the end of every run, whatever the network did. Each rule has a name, which a violation begins
// with.
#pragma once

#include "sim/world.h"

namespace holdfast::sim {

// One block of a result beside what went into it; for statistics over many runs.
struct BlockSample {
  std::uint32_t operation = 0;
  std::uint16_t owner = 0;
  std::uint64_t contributors = 0;  // bit r for each rank whose part is in it
  double value = 0;                // mean over the block of the result, as the owner has it
  std::vector<double> gradients;   // mean over the block, by rank
};

struct Tally {
  std::uint64_t num_bounded = 0;
  std::uint64_t num_ended_at_limit = 0;
  std::uint64_t num_narrow_elements = 0;  // that came in sixteen bits
  std::uint64_t num_exact = 0;
  std::uint64_t num_exact_failed = 0;
  std::uint64_t delivered = 0;  // contributor-elements, over all bounded reports
  std::uint64_t expected = 0;
  Duration longest_bounded = 0;
  std::vector<BlockSample> blocks;  // only where asked for
};

Tally check_invariants(World& world, bool sample_blocks);

}  // namespace holdfast::sim
