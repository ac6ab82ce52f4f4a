#include "sim/steering.h"

#include "sim/random.h"

namespace holdfast::sim {
namespace {

constexpr std::uint64_t longest_sample_us = 20'000;

}  // namespace

CallChoice ScenarioSteering::choose(std::uint16_t rank, const PlannedOperation& operation) {
  CallChoice choice;
  choice.deadline = operation.deadline;
  const bool changed = scenario_.later_credit >= 0 && operation.number >= scenario_.later_credit_from;
  if (changed) choice.credit = static_cast<std::uint8_t>(scenario_.later_credit);
  Random random(seed_, 500'000'000 + std::uint64_t{operation.number} * 1000 + rank);
  // Only bounded operations are steered by samples.
  if (operation.delivery == Delivery::bounded && random.chance(scenario_.announce_ratio)) {
    choice.contributions.sample_us = static_cast<std::uint32_t>(1 + random.below(longest_sample_us));
    choice.results.sample_us = static_cast<std::uint32_t>(1 + random.below(longest_sample_us));
  }
  // From one that is over when the call is made to one that is hardly ever met.
  if (operation.delivery == Delivery::bounded && random.chance(scenario_.limited_ratio)) {
    const Duration whole = 1 + static_cast<Duration>(random.below(static_cast<std::uint64_t>(operation.deadline)));
    choice.limit = {whole * 2 / 3, whole, whole / 3};
  }
  return choice;
}

}  // namespace holdfast::sim
