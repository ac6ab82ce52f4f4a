// What an insider says that is not so: sealed with the right key, wrong in exactly one respect.
#pragma once

#include <string>

#include "job.h"

namespace holdfast::hostile {

// What all ranks of the attacked job call: exact sums and bounded means in turn, all of one size.
struct Schedule {
  std::uint32_t total = 0;

  bool is_exact(std::uint32_t operation) const { return operation % 2 == 0; }
};

// Where the liar stands when it speaks.
struct Occasion {
  const Job& job;
  const Schedule& schedule;
  std::uint16_t own_rank = 0;
  std::uint16_t victim = 0;
  std::uint32_t next_operation = 0;  // the first one that the liar has not called
  std::uint64_t index = 0;           // lies of this kind told to this victim before
};

struct Lie {
  Header header;  // the transmission number and the key phase are the liar's own
  Bytes payload;
};

// Throws std::invalid_argument for a kind that it does not know.
Lie lie_of(const std::string& kind, const Occasion& occasion);

}  // namespace holdfast::hostile
