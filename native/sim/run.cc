#include "sim/run.h"

#include "core/digest.h"
#include "sim/world.h"

namespace holdfast::sim {
namespace {

constexpr std::size_t max_failed_kept = 5;

std::vector<SentMessage> messages_of(const World& world) {
  std::vector<SentMessage> messages;
  const auto append = [&](std::uint32_t operation, bool between_groups, Stage stage, std::uint16_t from,
                          const std::vector<Sending>& sent) {
    for (std::uint16_t to = 0; to < sent.size(); ++to) {
      if (sent[to].num_datagrams != 0) messages.push_back({operation, between_groups, stage, from, to, sent[to]});
    }
  };
  for (const PlannedOperation& planned : world.workload().operations()) {
    for (const auto& host : world.hosts()) {
      const HostOperation& operation = host->operations()[planned.number];
      for (const HostPart* part : {&operation.whole, &operation.between_groups}) {
        const bool between_groups = part == &operation.between_groups;
        append(planned.number, between_groups, Stage::contribution, host->rank(), part->contributions_sent);
        append(planned.number, between_groups, Stage::result, host->rank(), part->results_sent);
      }
    }
  }
  return messages;
}

}  // namespace

RunResult run(const Scenario& scenario, std::uint64_t seed, bool sample_blocks, Steering* steering) {
  World world(scenario, seed, steering);
  world.run();
  RunResult result;
  result.tally = check_invariants(world, sample_blocks);
  result.seed = seed;
  result.num_ranks = world.num_ranks();
  result.victim = world.victim();
  result.virtual_seconds = static_cast<double>(world.now()) / static_cast<double>(second);
  result.num_violations = world.violations().count();
  result.violations = world.violations().texts();
  result.network = world.network().counters();
  result.messages = messages_of(world);
  Digest digest;
  for (const auto& host : world.hosts()) {
    digest.add(host->digest());
    result.num_wakes += host->num_wakes();
    for (std::size_t i = 0; i < num_drops; ++i) result.drops[i] += host->endpoint().drops()[i];
    for (std::uint16_t peer = 0; peer < world.num_ranks(); ++peer) {
      if (peer != host->rank()) result.num_key_changes += host->endpoint().path(peer).sealing_phase();
    }
  }
  result.digest = digest.value();
  return result;
}

ManyResult run_many(const Scenario& scenario, std::uint64_t first_seed, std::uint64_t count,
                    bool stop_at_first_failure) {
  ManyResult all;
  for (std::uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    RunResult one = run(scenario, seed);
    ++all.num_runs;
    all.num_datagrams += one.network.sent;
    all.num_bounded += one.tally.num_bounded;
    all.num_ended_at_limit += one.tally.num_ended_at_limit;
    all.num_narrow_elements += one.tally.num_narrow_elements;
    all.num_exact += one.tally.num_exact;
    all.num_exact_failed += one.tally.num_exact_failed;
    all.delivered += one.tally.delivered;
    all.expected += one.tally.expected;
    for (std::size_t i = 0; i < num_drops; ++i) all.drops[i] += one.drops[i];
    for_each_counter(all.network, one.network,
                     [](const char*, std::uint64_t& sum, std::uint64_t value) { sum += value; });
    if (one.num_violations == 0) continue;
    ++all.num_failed;
    if (all.failed.size() < max_failed_kept) all.failed.push_back(std::move(one));
    if (stop_at_first_failure) break;
  }
  return all;
}

}  // namespace holdfast::sim
