// Runs a scenario: one seed, or many.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/wire.h"
#include "sim/invariants.h"
#include "sim/network.h"
#include "sim/scenario.h"

namespace holdfast::sim {

// The elements of one rank's message to another, as they left: who sends to whom when.
struct SentMessage {
  std::uint32_t operation = 0;
  bool between_groups = false;
  Stage stage = Stage::none;
  std::uint16_t from = 0;
  std::uint16_t to = 0;
  Sending sending;
};

struct RunResult {
  std::uint64_t seed = 0;
  std::uint16_t num_ranks = 0;
  std::uint16_t victim = 0;
  std::uint64_t digest = 0;  // of every datagram sent, with its time
  double virtual_seconds = 0;
  std::uint64_t num_violations = 0;
  std::vector<std::string> violations;  // the first few, each beginning with the name of its invariant
  Tally tally;
  NetworkCounters network;
  DropCounts drops{};                 // summed over the ranks
  std::uint64_t num_key_changes = 0;  // summed over the directed paths
  std::uint64_t num_wakes = 0;
  std::vector<SentMessage> messages;  // by operation, sender, stage and receiver
};

RunResult run(const Scenario& scenario, std::uint64_t seed, bool sample_blocks = false, Steering* steering = nullptr);

struct ManyResult {
  std::uint64_t num_runs = 0;
  std::uint64_t num_failed = 0;
  std::vector<RunResult> failed;  // the first few
  std::uint64_t num_datagrams = 0;
  std::uint64_t num_bounded = 0;
  std::uint64_t num_ended_at_limit = 0;
  std::uint64_t num_narrow_elements = 0;  // that came in sixteen bits
  std::uint64_t num_exact = 0;
  std::uint64_t num_exact_failed = 0;
  std::uint64_t delivered = 0;
  std::uint64_t expected = 0;
  DropCounts drops{};
  NetworkCounters network;
};

ManyResult run_many(const Scenario& scenario, std::uint64_t first_seed, std::uint64_t count,
                    bool stop_at_first_failure);

}  // namespace holdfast::sim
