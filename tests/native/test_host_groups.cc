// Ranks that meet in the memory of their hosts and call only what is between the hosts; and what becomes of a call for
// which some of them do so and others do not any more.
#include <vector>

#include "endpoint_network.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr std::uint32_t count = 1000;  // of a shard
constexpr Duration limit = 100 * millisecond;

Network two_ranks_each(std::uint16_t num_hosts) {
  return Network(static_cast<std::uint16_t>(2 * num_hosts), [num_hosts](EndpointSettings& settings) {
    settings.num_groups = num_hosts;
    settings.hosts_meet = true;
  });
}

Call between(std::vector<float>& shard, std::uint32_t number, Delivery delivery = Delivery::bounded) {
  Call call = call_on(shard, delivery, limit);
  call.number = number;
  call.between_groups = true;
  return call;
}

// Host h holds h + 1 everywhere, whichever shard it is.
std::vector<std::vector<float>> shards(std::uint16_t num_ranks) {
  std::vector<std::vector<float>> all;
  for (std::uint16_t rank = 0; rank < num_ranks; ++rank) all.emplace_back(count, static_cast<float>(rank / 2 + 1));
  return all;
}

bool is_all(const std::vector<float>& data, float value) {
  for (const float element : data) {
    if (element != value) return false;
  }
  return true;
}

}  // namespace

HF_CASE(counterparts_average_what_their_hosts_have_summed) {
  for (const Delivery delivery : {Delivery::bounded, Delivery::exact}) {
    Network network = two_ranks_each(3);
    network.join();
    auto data = shards(6);
    for (std::uint16_t rank = 0; rank < 6; ++rank) {
      const std::uint32_t number = network[rank].reserve();
      HF_EQUAL(number, 0u);
      network[rank].call(network.now, between(data[rank], number, delivery));
    }
    network.run_for(limit);
    for (std::uint16_t rank = 0; rank < 6; ++rank) {
      HF_CHECK(is_all(data[rank], 2.0f));
      HF_EQUAL(network.reports[rank].size(), 1u);
      const OperationReport& report = network.reports[rank].front();
      HF_EQUAL(report.operation, 0u);
      HF_EQUAL(report.delivered, 6u * count);
      HF_EQUAL(report.expected, 6u * count);
      HF_EQUAL(report.contributors, 6u);
      HF_EQUAL(report.not_received, 0u);
    }
  }
}

// Each rank takes its steps when it can; the numbers are what counts.
HF_CASE(what_was_reserved_may_be_called_out_of_order_and_after_what_came_later) {
  Network network = two_ranks_each(2);
  network.join();
  auto first = shards(4);
  auto next = shards(4);
  std::vector<std::vector<float>> of_all(4, std::vector<float>(count, 5.0f));
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    HF_EQUAL(network[rank].reserve(), 0u);
    HF_EQUAL(network[rank].reserve(), 1u);
    HF_EQUAL(network[rank].call(network.now, call_on(of_all[rank], Delivery::exact, limit)), 2u);
  }
  network.run_for(20 * millisecond);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    const bool backwards = rank % 2 == 1;
    network[rank].call(network.now, between(backwards ? next[rank] : first[rank], backwards ? 1 : 0));
    network.run_for(2 * millisecond);
    network[rank].call(network.now, between(backwards ? first[rank] : next[rank], backwards ? 0 : 1));
  }
  network.run_for(limit);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    HF_CHECK(is_all(first[rank], 1.5f) && is_all(next[rank], 1.5f) && is_all(of_all[rank], 5.0f));
    HF_EQUAL(network.reports[rank].size(), 3u);
  }
}

// What holds for an operation is what was published when it was reserved, not what came after.
HF_CASE(parameters_are_kept_for_what_is_reserved) {
  Network network = two_ranks_each(2);
  network.join();
  auto data = shards(4);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    network[rank].reserve();
    if (rank >= 2) continue;  // whose agreement comes later
    Parameters encoded;
    encoded.from_operation = 1;
    encoded.encoded = true;
    network[rank].publish(encoded);
  }
  for (std::uint16_t rank = 0; rank < 3; ++rank) network[rank].call(network.now, between(data[rank], 0));
  network.run_for(5 * millisecond);
  network[3].call(network.now, between(data[3], 0));
  network.run_for(limit);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    HF_EQUAL(drops(network[rank], Drop::other_encoding), 0u);
    HF_CHECK(is_all(data[rank], 1.5f));
  }
}

HF_CASE(without_a_majority_nobody_has_anything_and_everybody_knows) {
  Network network = two_ranks_each(2);
  network.join();
  auto data = shards(4);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    Call call = between(data[rank], network[rank].reserve());
    call.between_groups = rank >= 2;  // the first host does not meet any more
    network[rank].call(network.now, call);
  }
  network.run_for(2 * limit);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    HF_CHECK(is_all(data[rank], 0.0f));
    HF_EQUAL(network.reports[rank].size(), 1u);
    HF_EQUAL(network.reports[rank].front().not_received, count);
    HF_EQUAL(network.reports[rank].front().delivered, 0u);
  }
}

HF_CASE(of_two_camps_only_the_larger_has_a_result_and_the_other_knows) {
  for (const bool most_meet : {false, true}) {
    Network network = two_ranks_each(3);
    network.join();
    auto data = shards(6);
    for (std::uint16_t rank = 0; rank < 6; ++rank) {
      Call call = between(data[rank], network[rank].reserve());
      call.between_groups = (rank < 2) != most_meet;
      network[rank].call(network.now, call);
    }
    network.run_for(2 * limit);
    for (std::uint16_t rank = 0; rank < 6; ++rank) {
      const OperationReport& report = network.reports[rank].at(0);
      if (rank < 2) {
        HF_CHECK(is_all(data[rank], 0.0f));
        HF_EQUAL(report.not_received, count);
        continue;
      }
      // Of what the others would have owned there is nothing; the rest is a mean over hosts 1 and 2 alone.
      for (const float element : data[rank]) HF_CHECK(element == 0.0f || (element >= 2.0f && element <= 3.0f));
      HF_EQUAL(report.contributors, 4u);
    }
  }
}

HF_CASE(an_exact_part_between_hosts_fails_when_any_rank_of_the_job_is_gone) {
  Network network = two_ranks_each(2);
  network.join();
  auto data = shards(4);
  Call call = between(data[0], network[0].reserve(), Delivery::exact);
  call.deadline = 60 * second;
  network[0].call(network.now, call);
  network.frozen[3] = true;  // not a counterpart of rank 0, but its host will not have the sum
  network.run_for(20 * limit);
  HF_EQUAL(network.reports[0].size(), 1u);
  HF_CHECK(network.reports[0].front().status == Status::peer_dead);
}

HF_CASE(what_is_released_leaves_nothing_open) {
  Network network = two_ranks_each(2);
  network.join();
  auto data = shards(4);
  const std::uint32_t number = network[0].reserve();
  network[2].call(network.now, between(data[2], network[2].reserve()));
  network.run_for(10 * millisecond);
  HF_EQUAL(network[0].open_operations(), 1u);
  network[0].release_number(number);
  HF_EQUAL(network[0].open_operations(), 0u);
  network.run_for(3 * limit);
  HF_EQUAL(network[0].open_operations(), 0u);
  HF_CHECK(is_all(data[2], 0.0f));
  HF_EQUAL(network.reports[2].at(0).not_received, count);
}

HF_TEST_MAIN
