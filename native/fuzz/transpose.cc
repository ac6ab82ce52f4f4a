// The whole job as a state machine driven by a stream of operations: any datagram delivered, lost, copied, damaged or
// sent astray, clocks that step and jump, ranks that call, freeze, die and say other parameters, in any order. Whatever
// happens: every call ends by its deadline, every number is right or zero and said to be missing, nothing leaks.
#include "fuzz/check.h"
#include "fuzz/job.h"

using namespace holdfast;

namespace {

constexpr int max_steps = 400;
constexpr Duration silence_limit = 200 * millisecond;
constexpr Duration duty_limit = 300 * millisecond;
constexpr Duration longest_quieting = 5 * second;

fuzz::JobSettings settings_from(fuzz::Input& input) {
  fuzz::JobSettings settings;
  settings.num_ranks = static_cast<std::uint16_t>(input.between(2, 4));
  settings.protection = input.below(4) == 3 ? Protection::encrypted : Protection::insecure;
  settings.datagram_bytes = input.flag() ? 256 : 1472;
  settings.early_bytes_cap = input.below(4) == 3 ? input.between(1000, 8000) : 1u << 20;
  settings.silence_limit = silence_limit;
  settings.seed = input.take<std::uint8_t>();
  sim::Scenario& load = settings.load;
  load.exact_ratio = 0.3;
  load.num_operations = 4;
  load.max_elements = 400;
  load.num_notes = 3;
  load.max_note_bytes = 2000;
  load.deadline_ms = 40;
  load.exact_deadline_ms = load.note_deadline_ms = 300;
  return settings;
}

Parameters parameters_from(fuzz::Input& input, bool deterministic) {
  Parameters parameters;
  parameters.t_b = Duration{input.between(1, 30)} * millisecond;
  parameters.t_c = Duration{input.between(1, 30)} * millisecond;
  parameters.early_wait_ratio = input.below(5) / 4.0;
  parameters.credit = static_cast<std::uint8_t>(input.below(4));
  parameters.deterministic = deterministic;
  parameters.duty_limit = duty_limit;
  return parameters;
}

void trouble(fuzz::Job& job, std::uint16_t rank, fuzz::Input& input) {
  sim::Host& host = job.host(rank);
  switch (input.below(8)) {
    case 0:
    case 1:
    case 2: host.on_freeze(job.now()); break;
    case 3:
    case 4:
    case 5: job.thaw(rank); break;
    case 6: host.on_clock_jump(job.now(), Duration{input.below(256)} * millisecond); break;
    default:
      if (input.rarely()) host.on_death(job.now());
      break;
  }
}

void step(fuzz::Job& job, fuzz::Input& input) {
  const std::uint32_t choice = input.below(16);
  const auto rank = static_cast<std::uint16_t>(choice >= 8 && choice <= 11 ? input.below(job.num_ranks()) : 0);
  if (choice <= 7) return job.disturb(input);
  if (choice <= 10) return job.call(rank);
  if (choice == 11) return trouble(job, rank, input);
  if (choice == 12) return job.send_note();
  if (choice <= 14) return job.pass(Duration{input.below(256)} * 100 * microsecond);
  job.run_honestly(Duration{input.below(100)} * 100 * microsecond, [] { return false; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  fuzz::Job job(settings_from(input));
  job.publish(parameters_from(input, job.workload().deterministic()));
  if (input.flag()) job.run_honestly(second, [&] { return job.formed(); });
  for (int i = 0; i < max_steps && !input.empty(); ++i) step(job, input);
  for (std::uint16_t rank = 0; rank < job.num_ranks(); ++rank) job.thaw(rank);
  job.run_honestly(longest_quieting, [&] { return job.quiet(); });
  job.check_course();
  FUZZ_CHECK(job.quiet());
  fuzz::check_operations(job);
  fuzz::check_notes(job);
  return 0;
}
