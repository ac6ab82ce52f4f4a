// Every shipped scenario with a few seeds each, without Python: what the sanitizers run.
//
// The scenario files are flat `key = value` TOML, which holdfast.sim checks key by key. Here a key or a value that is
// not understood is a failure, so that no scenario runs with less than its file says. SEEDS_PER_SCENARIO in the
// environment sets how many seeds (1 if unset), FIRST_SEED where they begin.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "sim/run.h"
#include "testing/check.h"

namespace {

using namespace holdfast::sim;

std::filesystem::path scenario_folder() {
  return std::filesystem::path(__FILE__).parent_path() / "../../src/holdfast/sim/scenarios";
}

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoull(text);
}

template <class Value>
bool parse(const std::string& text, Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    value = text == "true";
    return value || text == "false";
  } else {
    std::istringstream stream(text);
    return static_cast<bool>(stream >> value) && stream.peek() == std::istringstream::traits_type::eof();
  }
}

bool set_field(Scenario& scenario, const std::string& key, const std::string& text) {
  bool understood = false;
  for_each_field(scenario, [&](const char* name, auto& field) {
    if (key == name) understood = parse(text, field);
  });
  return understood;
}

// The first line that is not understood; empty: all were.
std::string read_scenario(std::istream& lines, Scenario& scenario) {
  std::string line;
  while (std::getline(lines, line)) {
    if (line.empty() || line.front() == '#') continue;
    const std::size_t equals = line.find(" = ");
    if (equals == std::string::npos) return line;
    const std::string key = line.substr(0, equals);
    if (key != "about" && !set_field(scenario, key, line.substr(equals + 3))) return line;
  }
  return {};
}

}  // namespace

HF_CASE(a_line_that_is_not_understood_is_named) {
  Scenario scenario;
  std::istringstream good("# why\nabout = \"loss\"\nloss_ratio = 0.25\nmax_ranks = 3\ndies = true\n");
  HF_EQUAL(read_scenario(good, scenario), "");
  HF_EQUAL(scenario.loss_ratio, 0.25);
  HF_EQUAL(scenario.max_ranks, 3);
  HF_CHECK(scenario.dies);
  for (const char* bad : {"loss_rato = 0.25", "max_ranks = 3.5", "dies = 1", "loss_ratio = 0.25 # much", "[job]"}) {
    std::istringstream lines(bad);
    HF_EQUAL(read_scenario(lines, scenario), bad);
  }
}

HF_CASE(invariants_hold_in_every_shipped_scenario) {
  const std::uint64_t seeds = number_from_environment("SEEDS_PER_SCENARIO", 1);
  const std::uint64_t first_seed = number_from_environment("FIRST_SEED", 1);
  std::uint64_t num_scenarios = 0, num_runs = 0, num_datagrams = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scenario_folder())) {
    if (entry.path().extension() != ".toml") continue;
    std::ifstream file(entry.path());
    Scenario scenario;
    HF_EQUAL(entry.path().stem().string() + ": " + read_scenario(file, scenario), entry.path().stem().string() + ": ");
    const ManyResult result = run_many(scenario, first_seed, seeds, false);
    for (const RunResult& failed : result.failed) {
      HF_EQUAL("seed " + std::to_string(failed.seed) + " of " + entry.path().stem().string(),
               failed.violations.front());
    }
    ++num_scenarios;
    num_runs += result.num_runs;
    num_datagrams += result.num_datagrams;
  }
  HF_CHECK(num_scenarios >= 40);
  HF_EQUAL(num_runs, num_scenarios * seeds);
  std::printf("%ju scenarios, %ju runs, %ju datagrams\n", std::uintmax_t{num_scenarios}, std::uintmax_t{num_runs},
              std::uintmax_t{num_datagrams});
}

HF_TEST_MAIN
