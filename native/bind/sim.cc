// The simulator and the replay of traces. Runs release the GIL, so several can go at once.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bind/octets.h"
#include "sim/replay.h"
#include "sim/run.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace holdfast;

namespace {

using Counts = std::map<std::string, std::uint64_t>;
using Values = nb::typed<nb::dict, nb::str, nb::object>;

sim::Scenario scenario_from(const Values& values) {
  sim::Scenario scenario;
  std::size_t used = 0;
  sim::for_each_field(scenario, [&](const char* name, auto& field) {
    if (!values.contains(name)) return;
    field = nb::cast<std::remove_reference_t<decltype(field)>>(values[name]);
    ++used;
  });
  if (used != values.size()) throw nb::value_error("a scenario value that the simulator does not know");
  return scenario;
}

Values scenario_defaults() {
  const sim::Scenario scenario;
  Values values;
  sim::for_each_field(scenario, [&](const char* name, const auto& field) { values[name] = field; });
  return values;
}

Counts named(const DropCounts& drops) {
  Counts counts;
  for (std::size_t i = 0; i < num_drops; ++i) counts[name(static_cast<Drop>(i))] = drops[i];
  return counts;
}

Counts named(const sim::NetworkCounters& network) {
  Counts counts;
  sim::for_each_counter(network, network,
                        [&](const char* name, std::uint64_t value, std::uint64_t) { counts[name] = value; });
  return counts;
}

}  // namespace

void bind_sim(nb::module_& module) {
  nb::class_<sim::BlockSample>(module, "SimBlock", "One block of a simulated result beside what went into it.")
      .def_ro("operation", &sim::BlockSample::operation)
      .def_ro("owner", &sim::BlockSample::owner)
      .def_ro("contributors", &sim::BlockSample::contributors, "Bit r is set when rank r's part is in it.")
      .def_ro("value", &sim::BlockSample::value, "Mean over the block of the result.")
      .def_ro("gradients", &sim::BlockSample::gradients, "Mean over the block of each rank's gradient.");

  nb::class_<sim::RunResult>(module, "SimRun", "What one simulated run came to.")
      .def_ro("seed", &sim::RunResult::seed)
      .def_ro("num_ranks", &sim::RunResult::num_ranks)
      .def_ro("victim", &sim::RunResult::victim)
      .def_ro("digest", &sim::RunResult::digest, "Of every datagram sent, with its time.")
      .def_ro("virtual_seconds", &sim::RunResult::virtual_seconds)
      .def_ro("num_violations", &sim::RunResult::num_violations)
      .def_ro("violations", &sim::RunResult::violations, "The first few; each begins with the name of its invariant.")
      .def_ro("num_key_changes", &sim::RunResult::num_key_changes)
      .def_prop_ro("num_bounded", [](const sim::RunResult& run) { return run.tally.num_bounded; })
      .def_prop_ro("num_exact", [](const sim::RunResult& run) { return run.tally.num_exact; })
      .def_prop_ro("num_exact_failed", [](const sim::RunResult& run) { return run.tally.num_exact_failed; })
      .def_prop_ro("delivered", [](const sim::RunResult& run) { return run.tally.delivered; })
      .def_prop_ro("expected", [](const sim::RunResult& run) { return run.tally.expected; })
      .def_prop_ro("blocks", [](const sim::RunResult& run) { return run.tally.blocks; })
      .def_prop_ro("network", [](const sim::RunResult& run) { return named(run.network); })
      .def_prop_ro("drops", [](const sim::RunResult& run) { return named(run.drops); });

  nb::class_<sim::ManyResult>(module, "SimRuns", "What many simulated runs came to.")
      .def_ro("num_runs", &sim::ManyResult::num_runs)
      .def_ro("num_failed", &sim::ManyResult::num_failed)
      .def_ro("failed", &sim::ManyResult::failed, "The first few that broke an invariant.")
      .def_ro("num_datagrams", &sim::ManyResult::num_datagrams)
      .def_ro("num_bounded", &sim::ManyResult::num_bounded)
      .def_ro("num_exact", &sim::ManyResult::num_exact)
      .def_ro("num_exact_failed", &sim::ManyResult::num_exact_failed)
      .def_ro("delivered", &sim::ManyResult::delivered)
      .def_ro("expected", &sim::ManyResult::expected)
      .def_prop_ro("network", [](const sim::ManyResult& runs) { return named(runs.network); })
      .def_prop_ro("drops", [](const sim::ManyResult& runs) { return named(runs.drops); });

  nb::class_<sim::ReplayResult>(module, "Replay", "What came of running a trace again.")
      .def_ro("num_records", &sim::ReplayResult::num_records)
      .def_ro("num_datagrams_in", &sim::ReplayResult::num_datagrams_in)
      .def_ro("num_batches_out", &sim::ReplayResult::num_batches_out)
      .def_ro("num_reports_recorded", &sim::ReplayResult::num_reports_recorded)
      .def_ro("digest", &sim::ReplayResult::digest, "Over everything that was sent.")
      .def_ro("divergence", &sim::ReplayResult::divergence, "Where it first did something else; empty: nowhere.")
      .def_prop_ro("drops", [](const sim::ReplayResult& replay) { return named(replay.drops); })
      .def_ro("reports", &sim::ReplayResult::reports, "As the operations ended this time.");

  module.def("sim_defaults", &scenario_defaults, "Every value a scenario can set, with its default.");
  module.def(
      "sim_run",
      [](const Values& values, std::uint64_t seed, bool sample_blocks) {
        const sim::Scenario scenario = scenario_from(values);
        nb::gil_scoped_release release;
        return sim::run(scenario, seed, sample_blocks);
      },
      "values"_a, "seed"_a, "sample_blocks"_a = false, "One run of a scenario.");
  module.def(
      "sim_run_many",
      [](const Values& values, std::uint64_t first_seed, std::uint64_t count, bool stop_at_first_failure) {
        const sim::Scenario scenario = scenario_from(values);
        nb::gil_scoped_release release;
        return sim::run_many(scenario, first_seed, count, stop_at_first_failure);
      },
      "values"_a, "first_seed"_a, "count"_a, "stop_at_first_failure"_a = true, "Runs of a scenario, seed by seed.");
  module.def(
      "replay_trace",
      [](nb::bytes trace) {
        const auto bytes = holdfast::bind::octets_of(trace);
        nb::gil_scoped_release release;
        return sim::replay(bytes);
      },
      "trace"_a, "Feeds the recorded trace of a real rank to a fresh endpoint.");
}
