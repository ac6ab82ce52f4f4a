// Ranks that have missed an agreement divide buckets otherwise than the rest, on a network that loses, cuts ranks off
// and heals. Whatever happens: two ranks that both have a value for an element have the same one.
#include <algorithm>
#include <random>

#include "endpoint_network.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr std::uint32_t count = 4000;
constexpr Duration t_b = 40 * millisecond;

Parameters dividing(Division division) {
  Parameters parameters;
  parameters.t_b = t_b;
  parameters.division = std::move(division);
  parameters.needs_majority = true;
  return parameters;
}

std::vector<bool> missing_of(const OperationReport& report) {
  std::vector<bool> missing(count);
  for (const ElementRange& range : report.missing) {
    std::fill(missing.begin() + range.begin, missing.begin() + range.end, true);
  }
  return missing;
}

// How many elements two ranks have different values for.
std::size_t num_contradictions(const Network& network, const std::vector<std::vector<float>>& data) {
  std::size_t contradictions = 0;
  for (std::size_t rank = 0; rank < data.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      const auto here = missing_of(network.reports[rank].back());
      const auto there = missing_of(network.reports[other].back());
      for (std::size_t i = 0; i < count; ++i) {
        contradictions += !here[i] && !there[i] && data[rank][i] != data[other][i];
      }
    }
  }
  return contradictions;
}

std::vector<std::vector<float>> reduce(Network& network) {
  auto data = gradients(network.ranks.size(), count);
  for (std::uint16_t rank = 0; rank < network.ranks.size(); ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
  }
  network.run_for(3 * t_b);
  for (const auto& reports : network.reports) HF_CHECK(!reports.empty());
  return data;
}

std::uint64_t delivered(const Network& network, std::uint16_t rank) { return network.reports[rank].back().delivered; }

}  // namespace

HF_CASE(one_rank_that_missed_the_agreement_loses_the_operation_and_the_others_its_contribution) {
  Network network(4);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    network[rank].publish(dividing(rank == 3 ? Division() : Division({64, 16, 64, 64})));
  }
  network.join();
  const auto data = reduce(network);
  HF_EQUAL(num_contradictions(network, data), 0u);
  HF_EQUAL(delivered(network, 3), 0u);
  HF_CHECK(delivered(network, 0) > 2 * count);
  HF_CHECK(drops(network[0], Drop::other_division) > 0);
}

HF_CASE(of_two_camps_of_the_same_size_none_has_results) {
  Network network(4);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    network[rank].publish(dividing(Division({64, 16, 64, 64}, rank < 2 ? 1 : 2)));
  }
  network.join();
  const auto data = reduce(network);
  for (std::uint16_t rank = 0; rank < 4; ++rank) HF_EQUAL(delivered(network, rank), 0u);
}

HF_CASE(ranks_never_have_different_values_however_they_divide_and_whoever_is_cut_off) {
  std::uint64_t all_delivered = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto num_ranks = static_cast<std::uint16_t>(3 + random() % 4);
    Network network(num_ranks, [](EndpointSettings& settings) { settings.silence_limit = 200 * millisecond; });
    network.join();
    std::vector<int> side(num_ranks, 0);  // whoever is not on the same side does not hear
    const std::uint32_t loss_percent = random() % 3 == 0 ? 30 : 0;
    network.filter = [&](std::uint16_t from, std::uint16_t to, Bytes&) {
      return side[from] == side[to] && random() % 100 >= loss_percent;
    };
    for (int round = 0; round < 6; ++round) {
      for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
        std::vector<std::uint8_t> weights(num_ranks, 64);
        const std::uint8_t number = random() % 3;
        if (number != 0) weights[number % num_ranks] = 8;
        Parameters parameters = dividing(Division(weights, number));
        parameters.from_operation = static_cast<std::uint32_t>(round);
        network[rank].publish(parameters);
        side[rank] = random() % 3 == 0 ? 1 : 0;
      }
      const auto data = reduce(network);
      HF_EQUAL(num_contradictions(network, data), 0u);
      for (std::uint16_t rank = 0; rank < num_ranks; ++rank) all_delivered += delivered(network, rank);
    }
  }
  HF_CHECK(all_delivered > 0);
}

HF_TEST_MAIN
