// How one all-reduce of many ranks is made of two small ones (OptiReduce 3.1.2, hierarchical 2D).
//
// Ranks stand in groups of neighbours. *Within* a group goes a transpose all-reduce as among all ranks, but for one
// thing: before the owner of a shard answers, it reduces its sum *between* the groups, with those who have the same
// place in theirs, again by a transpose all-reduce. With N ranks in G groups of m that takes 2(m-1) + 2(G-1) rounds
// instead of 2(N-1), and the same bytes. The paper sends whole shards between groups: fewer rounds and many more bytes,
// and every group would have a sum of its own; see docs/decisions/0021.
//
// Where the ranks of a group share a host, they can do their part in its memory, and call only what is between the
// groups. A call without that bit is then one of all ranks: what is left when the memory has failed (0025).
#pragma once

#include <bit>
#include <cstdint>

#include "core/team.h"

namespace holdfast {

// An operation's number on the wire has this bit set where it is the part between the groups.
constexpr std::uint32_t between_groups_bit = 1u << 31;
constexpr std::uint32_t call_of(std::uint32_t number) { return number & ~between_groups_bit; }
constexpr bool is_between_groups(std::uint32_t number) { return (number & between_groups_bit) != 0; }
// Ascending with calls, whichever part it is.
constexpr std::uint32_t age_of(std::uint32_t number) { return std::rotl(number, 1); }

// What one operation is of a call.
struct Part {
  enum class Kind : std::uint8_t { whole, within_group, between_groups };
  Kind kind = Kind::whole;
  Team team;
  std::uint32_t rotation = 0;    // responsibility has moved on so often
  std::uint32_t ranks_each = 1;  // so many ranks' gradients are in each contribution
  bool hosts_meet = false;       // groups do their part in memory; ranks may be of two minds whether they still do
};

class Hierarchy {
 public:
  Hierarchy(std::uint16_t rank, std::uint16_t num_ranks, std::uint16_t num_groups, bool hosts_meet = false);

  bool flat() const { return num_groups_ == 1; }
  Part part_of(std::uint32_t number) const;

 private:
  std::uint16_t rank_;
  std::uint16_t num_ranks_;
  std::uint16_t num_groups_;
  bool hosts_meet_;
};

}  // namespace holdfast
