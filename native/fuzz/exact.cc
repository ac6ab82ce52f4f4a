// The exact machine: operations and notes that must arrive whole, over a network that does its worst for less time than
// makes a peer dead, and is honest from then on. Everything must then arrive, once and bit for bit.
#include "fuzz/check.h"
#include "fuzz/job.h"

using namespace holdfast;

namespace {

constexpr int max_steps = 300;
constexpr Duration longest_trouble = 400 * millisecond;  // well inside the second that makes a silent peer dead
constexpr Duration deadline = 20 * second;

fuzz::JobSettings settings_from(fuzz::Input& input) {
  fuzz::JobSettings settings;
  settings.num_ranks = static_cast<std::uint16_t>(input.between(2, 3));
  settings.protection = input.rarely() ? Protection::encrypted : Protection::insecure;
  settings.datagram_bytes = input.flag() ? 256 : 1472;
  settings.receive_buffer_bytes = input.flag() ? 1u << 20 : 4096;
  settings.max_note_bytes = input.flag() ? 1u << 20 : 3000;
  settings.seed = input.take<std::uint8_t>();
  sim::Scenario& load = settings.load;
  load.exact_ratio = 1;
  load.num_operations = 2;
  load.max_elements = 300;
  load.num_notes = 5;
  load.max_note_bytes = 3000;
  load.deterministic_ratio = 0;
  load.exact_deadline_ms = load.note_deadline_ms = deadline / millisecond;
  return settings;
}

void step(fuzz::Job& job, fuzz::Input& input) {
  const std::uint32_t choice = input.below(16);
  const Time trouble_left = longest_trouble - job.now();
  if (choice <= 9) return job.disturb(input);
  if (choice <= 11) return job.call(static_cast<std::uint16_t>(input.below(job.num_ranks())));
  if (choice == 12) return job.send_note();
  if (trouble_left <= 0) return;
  if (choice <= 14) return job.pass(std::min(trouble_left, Duration{input.below(256)} * 100 * microsecond));
  job.run_honestly(std::min(trouble_left, Duration{input.below(50)} * 100 * microsecond), [] { return false; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  fuzz::Job job(settings_from(input));
  Parameters parameters;
  parameters.duty_limit = deadline;
  job.publish(parameters);
  for (int i = 0; i < max_steps && !input.empty(); ++i) step(job, input);
  job.call_everything();
  while (job.now() < longest_trouble && !input.empty()) step(job, input);
  job.run_honestly(deadline, [&] { return job.quiet(); });
  job.check_course();
  FUZZ_CHECK(job.quiet());
  fuzz::check_operations(job);
  fuzz::check_notes(job);
  for (std::uint16_t rank = 0; rank < job.num_ranks(); ++rank) {
    for (const sim::HostOperation& operation : job.host(rank).operations()) {
      FUZZ_CHECK(operation.report.status == Status::done);
    }
    for (const sim::HostNote& note : job.host(rank).notes()) {
      if (note.sent) FUZZ_CHECK(note.fate == NoteFate::delivered);
    }
  }
  return 0;
}
