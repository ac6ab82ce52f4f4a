// What a rank's caller decides about its operations: how long one may take, which silence ends its stages, what it
// announces, how many senders it hears. The scenario decides unless somebody else does, such as a policy under test.
#pragma once

#include <cstdint>
#include <optional>

#include "core/operation.h"
#include "sim/scenario.h"
#include "sim/workload.h"

namespace holdfast::sim {

struct CallChoice {
  Duration deadline = 0;  // twice t_B
  StageTiming contributions;
  StageTiming results;
  TimeLimit limit;
  std::optional<std::uint8_t> credit;  // handed out from this call on, with t_B; none: as published
};

class Steering {
 public:
  virtual ~Steering() = default;
  // `rank` is about to call `operation`.
  virtual CallChoice choose(std::uint16_t rank, const PlannedOperation& operation) = 0;
  // `rank` has its result.
  virtual void learn(std::uint16_t rank, const OperationReport& report) = 0;
};

class ScenarioSteering final : public Steering {
 public:
  ScenarioSteering(const Scenario& scenario, std::uint64_t seed) : scenario_(scenario), seed_(seed) {}
  CallChoice choose(std::uint16_t rank, const PlannedOperation& operation) override;
  void learn(std::uint16_t, const OperationReport&) override {}

 private:
  const Scenario scenario_;
  const std::uint64_t seed_;
};

}  // namespace holdfast::sim
