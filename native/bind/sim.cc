// The simulator and the replay of traces. Runs release the GIL, so several can go at once.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
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

// What Python decides about a call; durations cross the border in seconds.
struct Choice {
  double deadline_s = 0;
  std::pair<double, double> early_wait_s;
  std::pair<std::uint32_t, std::uint32_t> samples_us;
  std::uint8_t credit = 0;
  std::tuple<double, double, double> limit_s;
};

Duration from_seconds(double seconds) { return static_cast<Duration>(std::llround(seconds * 1e9)); }
double to_seconds(Time time) { return static_cast<double>(time) / 1e9; }

// A run releases the GIL; each question and each report takes it again.
class PythonSteering final : public sim::Steering {
 public:
  PythonSteering(nb::callable choose, nb::callable learn, const sim::Scenario& scenario, std::uint64_t seed)
      : choose_(std::move(choose)), learn_(std::move(learn)), usual_(scenario, seed) {}

  sim::CallChoice choose(std::uint16_t rank, const sim::PlannedOperation& operation) override {
    nb::gil_scoped_acquire acquire;
    const std::size_t num_bytes = operation.total * element_bytes(operation.format);
    const auto chosen = nb::cast<std::optional<Choice>>(choose_(rank, operation.number, num_bytes));
    if (!chosen) return usual_.choose(rank, operation);
    sim::CallChoice choice;
    choice.deadline = from_seconds(chosen->deadline_s);
    choice.contributions = {from_seconds(chosen->early_wait_s.first), chosen->samples_us.first};
    choice.results = {from_seconds(chosen->early_wait_s.second), chosen->samples_us.second};
    choice.credit = chosen->credit;
    const auto [contributions, whole, results] = chosen->limit_s;
    choice.limit = {from_seconds(contributions), from_seconds(whole), from_seconds(results)};
    return choice;
  }

  void learn(std::uint16_t rank, const OperationReport& report) override {
    nb::gil_scoped_acquire acquire;
    learn_(rank, report);
  }

 private:
  nb::callable choose_;
  nb::callable learn_;
  sim::ScenarioSteering usual_;
};

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

  nb::class_<Choice>(module, "SimCall", "What a rank calls a simulated operation with.")
      .def(
          "__init__",
          [](Choice* self, double deadline_s, std::pair<double, double> early_wait_s,
             std::pair<std::uint32_t, std::uint32_t> samples_us, std::uint8_t credit,
             std::tuple<double, double, double> limit_s) {
            new (self) Choice{deadline_s, early_wait_s, samples_us, credit, limit_s};
          },
          nb::kw_only(), "deadline_s"_a, "early_wait_s"_a = std::pair(-1.0, -1.0), "samples_us"_a = std::pair(0u, 0u),
          "credit"_a = 0, "limit_s"_a = std::tuple(0.0, 0.0, 0.0),
          "`deadline_s` is twice t_B. `early_wait_s`: x t_C of each stage; negative: as the scenario says.");

  nb::class_<sim::SentMessage>(module, "SimMessage", "The elements of one rank's message to another, as they left.")
      .def_ro("operation", &sim::SentMessage::operation)
      .def_ro("between_groups", &sim::SentMessage::between_groups, "Of a hierarchical operation.")
      .def_prop_ro("is_result", [](const sim::SentMessage& message) { return message.stage == Stage::result; })
      .def_ro("sender", &sim::SentMessage::from)
      .def_ro("receiver", &sim::SentMessage::to)
      .def_prop_ro("first_s", [](const sim::SentMessage& message) { return to_seconds(message.sending.first_at); })
      .def_prop_ro("last_s", [](const sim::SentMessage& message) { return to_seconds(message.sending.last_at); })
      .def_prop_ro("num_datagrams", [](const sim::SentMessage& message) { return message.sending.num_datagrams; })
      .def_prop_ro(
          "payload_bytes", [](const sim::SentMessage& message) { return message.sending.payload_bytes; },
          "Of elements alone, without headers and tags.");

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
      .def_prop_ro("num_ended_at_limit", [](const sim::RunResult& run) { return run.tally.num_ended_at_limit; })
      .def_prop_ro("num_narrow_elements", [](const sim::RunResult& run) { return run.tally.num_narrow_elements; })
      .def_prop_ro("num_exact", [](const sim::RunResult& run) { return run.tally.num_exact; })
      .def_prop_ro("num_exact_failed", [](const sim::RunResult& run) { return run.tally.num_exact_failed; })
      .def_prop_ro("delivered", [](const sim::RunResult& run) { return run.tally.delivered; })
      .def_prop_ro("expected", [](const sim::RunResult& run) { return run.tally.expected; })
      .def_prop_ro("blocks", [](const sim::RunResult& run) { return run.tally.blocks; })
      .def_ro("messages", &sim::RunResult::messages, "By operation, sender, stage and receiver.")
      .def_prop_ro("network", [](const sim::RunResult& run) { return named(run.network); })
      .def_prop_ro("drops", [](const sim::RunResult& run) { return named(run.drops); });

  nb::class_<sim::ManyResult>(module, "SimRuns", "What many simulated runs came to.")
      .def_ro("num_runs", &sim::ManyResult::num_runs)
      .def_ro("num_failed", &sim::ManyResult::num_failed)
      .def_ro("failed", &sim::ManyResult::failed, "The first few that broke an invariant.")
      .def_ro("num_datagrams", &sim::ManyResult::num_datagrams)
      .def_ro("num_bounded", &sim::ManyResult::num_bounded)
      .def_ro("num_ended_at_limit", &sim::ManyResult::num_ended_at_limit)
      .def_ro("num_narrow_elements", &sim::ManyResult::num_narrow_elements)
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
      [](const Values& values, std::uint64_t seed, bool sample_blocks, std::optional<nb::callable> choose,
         std::optional<nb::callable> learn) {
        const sim::Scenario scenario = scenario_from(values);
        if (choose.has_value() != learn.has_value()) throw nb::value_error("a policy both chooses and learns");
        std::optional<PythonSteering> steering;
        if (choose) steering.emplace(*choose, *learn, scenario, seed);
        nb::gil_scoped_release release;
        return sim::run(scenario, seed, sample_blocks, steering ? &*steering : nullptr);
      },
      "values"_a, "seed"_a, "sample_blocks"_a = false, "choose"_a = nb::none(), "learn"_a = nb::none(),
      "One run of a scenario. `choose(rank, operation, num_bytes)` says what each call is made with (None: as the "
      "scenario says), `learn(rank, report)` is told how it ended.");
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
