#include "core/hierarchy.h"

#include <stdexcept>

namespace holdfast {

Hierarchy::Hierarchy(std::uint16_t rank, std::uint16_t num_ranks, std::uint16_t num_groups, bool hosts_meet)
    : rank_(rank), num_ranks_(num_ranks), num_groups_(num_groups), hosts_meet_(hosts_meet) {
  if (num_groups == 1) return;
  if (num_groups == 0 || num_ranks % num_groups != 0 || num_ranks / num_groups < 2) {
    throw std::invalid_argument("groups have the same number of ranks each, at least two");
  }
}

Part Hierarchy::part_of(std::uint32_t number) const {
  const std::uint32_t call = call_of(number);
  if (flat() || (hosts_meet_ && !is_between_groups(number))) {
    return {Part::Kind::whole, {0, 1, num_ranks_}, call, 1, hosts_meet_};
  }
  const auto group_size = static_cast<std::uint16_t>(num_ranks_ / num_groups_);
  const auto place = static_cast<std::uint16_t>(rank_ % group_size);
  if (is_between_groups(number)) {
    // One further each time the groups have been round, so that after N calls every rank has summed every element.
    return {Part::Kind::between_groups, {place, group_size, num_groups_}, call / group_size, group_size, hosts_meet_};
  }
  return {Part::Kind::within_group, {static_cast<std::uint16_t>(rank_ - place), 1, group_size}, call, 1};
}

}  // namespace holdfast
