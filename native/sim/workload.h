// Which operations and notes a run has, when each rank calls, and with which gradients: all from the seed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/operation.h"
#include "sim/scenario.h"

namespace holdfast::sim {

struct PlannedOperation {
  std::uint32_t number = 0;
  std::uint32_t total = 0;
  Format format = Format::f32;
  Delivery delivery = Delivery::bounded;
  bool average = true;
  Duration deadline = 0;
  std::vector<Time> call_at;  // by rank, since the start of the load; never: this rank does not call
};

struct PlannedNote {
  std::uint16_t from = 0;
  std::uint16_t to = 0;
  std::uint32_t size = 0;
  Time at = 0;  // since the start of the load
};

class Workload {
 public:
  Workload(const Scenario& scenario, std::uint16_t num_ranks, std::uint16_t victim, std::uint64_t seed);

  const std::vector<PlannedOperation>& operations() const { return operations_; }
  const std::vector<PlannedNote>& notes() const { return notes_; }  // a note's channel is its index here
  std::int64_t num_groups() const { return scenario_.num_groups; }
  bool deterministic() const { return deterministic_; }
  double narrow_behind_ratio() const { return scenario_.narrow_behind_ratio; }
  bool repairs() const { return repairs_; }
  const Division& division() const { return division_; }
  Time last_call() const { return last_call_; }
  Duration note_deadline() const;

  std::vector<std::uint8_t> gradient(const PlannedOperation& operation, std::uint16_t rank) const;
  std::vector<std::uint8_t> note_bytes(std::size_t note) const;

 private:
  const Scenario& scenario_;
  std::uint16_t num_ranks_;
  std::uint64_t seed_;
  bool deterministic_ = false;
  bool repairs_ = false;
  Division division_;
  Time last_call_ = 0;
  std::vector<PlannedOperation> operations_;
  std::vector<PlannedNote> notes_;
};

}  // namespace holdfast::sim
