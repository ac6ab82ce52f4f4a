#include "sim/workload.h"

#include <algorithm>
#include <cmath>

#include "core/division.h"
#include "sim/random.h"

namespace holdfast::sim {
namespace {

Duration from_ms(double ms) { return static_cast<Duration>(ms * static_cast<double>(millisecond)); }

constexpr double tiny_ratio = 0.2;  // operations of a handful of elements: shards of one element, or of none
constexpr std::uint64_t max_tiny_elements = 20;

std::uint32_t draw_size(const Scenario& scenario, Random& random) {
  const auto least = static_cast<std::uint64_t>(scenario.min_elements);
  const auto most = static_cast<std::uint64_t>(scenario.max_elements);
  if (random.chance(tiny_ratio)) {
    const std::uint64_t limit = std::min(most, std::max(least, max_tiny_elements));
    return static_cast<std::uint32_t>(least + random.below(limit - least + 1));
  }
  const double logarithm =
      random.uniform(std::log(static_cast<double>(least)), std::log(static_cast<double>(most + 1)));
  return static_cast<std::uint32_t>(
      std::clamp<double>(std::exp(logarithm), static_cast<double>(least), static_cast<double>(most)));
}

// Of what the others sum, the victim sums so many 64ths.
Division division_of(const Scenario& scenario, std::uint16_t num_ranks, std::uint16_t victim) {
  if (scenario.victim_shard_weight < 0) return {};
  constexpr std::uint8_t full = 64;
  std::vector<std::uint8_t> weights(num_ranks, full);
  weights[victim] = static_cast<std::uint8_t>(scenario.victim_shard_weight);
  return Division(std::move(weights));
}

}  // namespace

Workload::Workload(const Scenario& scenario, std::uint16_t num_ranks, std::uint16_t victim, std::uint64_t seed)
    : scenario_(scenario), num_ranks_(num_ranks), seed_(seed), division_(division_of(scenario, num_ranks, victim)) {
  Random random(seed, 2);
  deterministic_ = random.chance(scenario.deterministic_ratio);
  repairs_ = Random(seed, 4).chance(scenario.repaired_ratio);
  std::vector<Time> last_call(num_ranks, 0);
  Time base = 0;
  for (std::uint32_t number = 0; number < static_cast<std::uint32_t>(scenario.num_operations); ++number) {
    PlannedOperation operation;
    operation.number = number;
    operation.total = draw_size(scenario, random);
    operation.format =
        static_cast<Format>(scenario.format >= 0 ? static_cast<std::uint64_t>(scenario.format) : 1 + random.below(4));
    operation.delivery = random.chance(scenario.exact_ratio) ? Delivery::exact : Delivery::bounded;
    operation.average = !random.chance(scenario.sum_ratio);
    operation.deadline =
        from_ms(operation.delivery == Delivery::exact ? scenario.exact_deadline_ms : scenario.deadline_ms);
    base += from_ms(random.exponential(scenario.step_ms));
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      Time at = base + from_ms(random.uniform(0, scenario.call_skew_ms));
      if (rank == victim) at += from_ms(scenario.late_call_ms);
      at = last_call[rank] = std::max(at, last_call[rank]);
      const bool stays_away = rank == victim && scenario.calls_until >= 0 && number >= scenario.calls_until;
      operation.call_at.push_back(stays_away ? never : at);
      last_call_ = std::max(last_call_, at);
    }
    operations_.push_back(std::move(operation));
  }
  for (std::int64_t index = 0; index < (num_ranks > 1 ? scenario.num_notes : 0); ++index) {
    PlannedNote note;
    note.from = static_cast<std::uint16_t>(random.below(num_ranks));
    note.to = static_cast<std::uint16_t>((note.from + 1 + random.below(num_ranks - 1u)) % num_ranks);
    note.size = static_cast<std::uint32_t>(random.chance(tiny_ratio)
                                               ? random.below(2)
                                               : random.below(static_cast<std::uint64_t>(scenario.max_note_bytes) + 1));
    note.at = static_cast<Time>(random.uniform(0, static_cast<double>(last_call_)));
    notes_.push_back(note);
  }
}

Duration Workload::note_deadline() const { return from_ms(scenario_.note_deadline_ms); }

std::vector<std::uint8_t> Workload::gradient(const PlannedOperation& operation, std::uint16_t rank) const {
  Random random(seed_, 1000 + std::uint64_t{operation.number} * 1000 + rank);
  std::vector<float> values(operation.total);
  const auto offset = static_cast<float>(scenario_.rank_bias * rank);
  for (float& value : values) value = static_cast<float>(random.uniform(-1, 1)) + offset;
  const Division& division =
      operation.delivery == Delivery::exact ? Division::even() : division_.of_bucket(operation.total, num_ranks_);
  const Part part =
      Hierarchy(rank, num_ranks_, static_cast<std::uint16_t>(scenario_.num_groups)).part_of(operation.number);
  const ElementRange own = division.shard(operation.total, part.team.size, part.team.place_of(rank), operation.number);
  for (std::uint32_t i = own.begin; i < own.end; ++i) values[i] += static_cast<float>(scenario_.owner_bonus);
  std::vector<std::uint8_t> bytes(operation.total * element_bytes(operation.format));
  kernels::cast(operation.format, bytes.data(), Format::f32, values.data(), operation.total);
  return bytes;
}

std::vector<std::uint8_t> Workload::note_bytes(std::size_t note) const {
  Random random(seed_, 900'000'000 + note);
  std::vector<std::uint8_t> bytes(notes_[note].size);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.bits());
  return bytes;
}

}  // namespace holdfast::sim
