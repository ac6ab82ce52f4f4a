// How an endpoint leads a call through its two parts, within a group and between the groups (see hierarchy.h).
#include "core/endpoint.h"

namespace holdfast {

// The part between the groups is not called by the program but by the one within, as soon as that has its sum.
void Endpoint::sum_groups(Time now, std::uint32_t call) {
  const auto within = operations_.find(call);
  if (within == operations_.end()) return;
  Operation& group = *within->second;
  const std::uint32_t number = call | between_groups_bit;
  if (group.wants_groups()) {
    if (forgotten_.erase(number) != 0) {
      group.on_groups_forgotten(now);
      return;
    }
    const Call between = group.call_between_groups(now);
    auto found = operations_.find(number);
    if (found == operations_.end()) {
      found = open_operation(now, number, Operation::identity_of(between), settings_.rank);
    }
    found->second->on_call(now, between);
  }
  if (!group.awaits_groups()) return;
  if (const auto found = operations_.find(number); found != operations_.end() && found->second->ended()) {
    group.on_groups_summed(now, *found->second);
  }
}

// Is there still a call to come that opens this operation, or a sum of the group that does?
bool Endpoint::may_be_called(std::uint32_t number) const {
  if (settings_.hosts_meet) {
    const bool to_come = call_of(number) >= next_operation_ || reserved_.contains(call_of(number));
    return to_come && !forgotten_.contains(number);
  }
  if (is_between_groups(number)) {
    const auto within = operations_.find(call_of(number));
    if (within != operations_.end()) return !within->second->contributions_closed();
  }
  return call_of(number) >= next_operation_ && !forgotten_.contains(call_of(number));
}

bool Endpoint::is_past(std::uint32_t number) const { return forgotten_.contains(number) || !may_be_called(number); }

// ---------------------------------------------------------------------------------------------------- hosts that meet

std::uint32_t Endpoint::reserve() {
  reserved_.insert(next_operation_);
  return next_operation_++;
}

void Endpoint::release_number(std::uint32_t number) {
  reserved_.erase(number);
  refuse(number);
  refuse(number | between_groups_bit);
}

// What others opened here and this rank will not call.
void Endpoint::refuse(std::uint32_t number) {
  forgotten_.erase(number);
  const auto found = operations_.find(number);
  if (found == operations_.end() || found->second->called()) return;
  found->second->abandon();
  operations_.erase(found);
}

}  // namespace holdfast
