// A trace of a real rank, run again: the same calls into a fresh endpoint, in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/report.h"
#include "core/wire.h"

namespace holdfast::sim {

struct ReplayResult {
  std::uint64_t num_records = 0;
  std::uint64_t num_datagrams_in = 0;
  std::uint64_t num_batches_out = 0;
  std::uint64_t digest = 0;  // over everything that was sent
  std::vector<OperationReport> reports;
  std::uint64_t num_reports_recorded = 0;
  DropCounts drops{};
  std::string divergence;  // where the replay first did something else; empty: nowhere
};

ReplayResult replay(std::span<const std::uint8_t> trace);

}  // namespace holdfast::sim
