// How long the others wait for a rank that is away, and for one that is on its way back.
#include <vector>

#include "endpoint_network.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr std::uint16_t num_ranks = 4;
constexpr Duration deadline = 100 * millisecond;

struct Job {
  Network network{num_ranks};
  std::vector<std::vector<std::vector<float>>> kept;  // memory outlives its operations

  Job() {
    network.join();
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      Parameters parameters;
      parameters.t_b = deadline / 2;
      parameters.t_c = 10 * millisecond;
      network[rank].publish(parameters);
    }
  }

  // One operation of the first ranks; how long it took rank 0.
  Duration take(std::uint16_t num_callers, Duration pause = 0) {
    kept.push_back(gradients(num_ranks, 5000));
    for (std::uint16_t rank = 0; rank < num_callers; ++rank) {
      network[rank].call(network.now, call_on(kept.back()[rank], Delivery::bounded, deadline));
    }
    const std::size_t before = network.reports[0].size();
    while (network.reports[0].size() == before) network.run_for(millisecond);
    network.run_for(pause);
    return network.reports[0].back().elapsed;
  }

  // As rank 0 saw it in the last operation.
  Duration silence_of(std::uint16_t rank) { return network.reports[0].back().peers[rank].silence; }

  // Nothing comes from this rank, and nothing gets there.
  void cut_off(std::uint16_t rank) {
    network.filter = [rank](std::uint16_t from, std::uint16_t to, Bytes&) { return from != rank && to != rank; };
  }
  void reconnect() {
    network.filter = [](auto, auto, Bytes&) { return true; };
    network.run_for(200 * millisecond);  // a probe and its answer
  }
};

}  // namespace

HF_CASE(a_rank_that_is_away_costs_the_others_its_bound_once) {
  Job job;
  job.take(num_ranks);
  job.cut_off(3);
  HF_CHECK(job.take(3) >= deadline / 2);
  for (int i = 0; i < 5; ++i) HF_CHECK(job.take(3) < deadline / 3);
}

HF_CASE(one_that_answers_again_has_some_operations_to_take_part) {
  Job job;
  job.cut_off(3);
  job.take(3);
  job.take(3);
  job.reconnect();
  for (int i = 0; i < 8; ++i) HF_CHECK(job.take(3) < deadline / 3);
  HF_CHECK(job.take(3) >= deadline / 2);  // it is there, and late: the bound is what it may cost
}

HF_CASE(one_that_was_taken_for_dead_has_them_too) {
  Job job;
  job.cut_off(3);
  for (int i = 0; i < 20; ++i) job.take(3, 100 * millisecond);
  HF_CHECK(job.network.changes[0].find("3 dead") != std::string::npos);
  job.reconnect();
  for (int i = 0; i < 8; ++i) HF_CHECK(job.take(3) < deadline / 3);
}

HF_CASE(one_that_took_part_again_is_waited_for) {
  Job job;
  job.cut_off(3);
  job.take(3);
  job.take(3);
  job.reconnect();
  job.network[3].skip_to(job.network.now, job.network[0].next_operation());
  HF_CHECK(job.take(num_ranks) < deadline / 3);
  HF_EQUAL(job.network.reports[0].back().delivered, 5000u * num_ranks);
  HF_CHECK(job.take(3) >= deadline / 2);
}

HF_CASE(one_that_is_only_late_is_waited_for) {
  Job job;
  job.take(num_ranks);
  for (int i = 0; i < 3; ++i) HF_CHECK(job.take(3, 10 * millisecond) >= deadline / 2);
  HF_EQUAL(job.silence_of(3), Duration{0});  // it has answered all the time
}

HF_CASE(an_operation_tells_how_long_a_rank_was_silent_in_it) {
  Job job;
  job.take(num_ranks);
  HF_EQUAL(job.silence_of(3), Duration{0});
  job.cut_off(3);
  const Duration waited = job.take(3);
  HF_CHECK(job.silence_of(3) > waited - 5 * millisecond && job.silence_of(3) <= waited);
  HF_EQUAL(job.silence_of(2), Duration{0});
  const Duration next = job.take(3);  // of the silence, which goes on, what fell into this one
  HF_CHECK(job.silence_of(3) > 0 && job.silence_of(3) <= next);
  job.reconnect();
  job.network.run_for(second);
  job.network[3].skip_to(job.network.now, job.network[0].next_operation());
  job.take(num_ranks);
  HF_EQUAL(job.silence_of(3), Duration{0});
}

// On a long road nothing comes sooner than in a round trip.
HF_CASE(a_round_trip_is_no_silence) {
  Job job;
  job.network.delay = 30 * millisecond;
  job.take(num_ranks, second);
  job.take(num_ranks, second);
  for (std::uint16_t rank = 1; rank < num_ranks; ++rank) HF_EQUAL(job.silence_of(rank), Duration{0});
}

HF_TEST_MAIN
