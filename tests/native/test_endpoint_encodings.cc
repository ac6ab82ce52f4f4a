// Ranks of which some send coefficients and some gradients, because one has missed an agreement or has it later than
// the others. Whatever happens: nobody sums the two, and every operation ends by its bound without an error.
#include <algorithm>
#include <random>

#include "endpoint_network.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr std::uint32_t count = 4000;
constexpr Duration t_b = 40 * millisecond;
constexpr float gradient = 1;
constexpr float coefficient = 1000;

Parameters sending(bool encoded, std::uint32_t from_operation = 0) {
  Parameters parameters;
  parameters.from_operation = from_operation;
  parameters.t_b = t_b;
  parameters.encoded = encoded;
  return parameters;
}

std::vector<float> data_of(bool encoded) { return std::vector<float>(count, encoded ? coefficient : gradient); }

// The mean of what is alike is what each had; all that is missing is zero and named.
bool has_only_its_like(const std::vector<float>& data, const OperationReport& report, bool encoded) {
  std::vector<bool> missing(count);
  for (const ElementRange& range : report.missing) {
    std::fill(missing.begin() + range.begin, missing.begin() + range.end, true);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const float expected = missing[i] ? 0 : encoded ? coefficient : gradient;
    if (std::abs(data[i] - expected) > 1e-3f * expected) return false;
  }
  return true;
}

}  // namespace

HF_CASE(ranks_that_all_send_coefficients_lose_nothing) {
  Network network(2);
  for (std::uint16_t rank = 0; rank < 2; ++rank) network[rank].publish(sending(true));
  network.join();
  auto data = std::vector{data_of(true), data_of(true)};
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
  }
  network.run_for(3 * t_b);
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    HF_EQUAL(network.reports[rank].back().delivered, 2u * count);
    HF_EQUAL(all_drops(network[rank]), 0u);
  }
}

HF_CASE(an_exact_operation_is_the_same_whatever_was_agreed) {
  Network network(3);
  network[1].publish(sending(true));
  network.join();
  auto data = gradients(3, count);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::exact, second));
  }
  network.run_for(second);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    HF_CHECK(network.reports[rank].back().status == Status::done);
    HF_CHECK(is_mean(data[rank], 3));
  }
}

HF_CASE(one_rank_that_missed_the_agreement_loses_the_operation_and_the_others_its_contribution) {
  Network network(4);
  for (std::uint16_t rank = 0; rank < 4; ++rank) network[rank].publish(sending(rank != 3));
  network.join();
  std::vector<std::vector<float>> data;
  for (std::uint16_t rank = 0; rank < 4; ++rank) data.push_back(data_of(rank != 3));
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
  }
  network.run_for(3 * t_b);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    const OperationReport& report = network.reports[rank].back();
    HF_CHECK(report.status == Status::done);
    HF_CHECK(has_only_its_like(data[rank], report, rank != 3));
    HF_EQUAL(report.delivered, rank == 3 ? 0u : std::uint64_t{3} * (count - count / 4));
    HF_CHECK(drops(network[rank], Drop::other_encoding) > 0);
  }
}

HF_CASE(what_others_opened_early_begins_anew_when_the_own_call_will_be_encoded_otherwise) {
  Network network(3);
  for (std::uint16_t rank = 0; rank < 3; ++rank) network[rank].publish(sending(false));
  network.join();
  network[1].publish(sending(true, 0));
  auto early = data_of(false);
  network[2].call(network.now, call_on(early, Delivery::bounded));
  network.run_for(5 * millisecond);  // rank 0 has summed gradients of rank 2
  network[0].publish(sending(true, 0));
  auto data = std::vector{data_of(true), data_of(true)};
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
  }
  network.run_for(3 * t_b);
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    HF_CHECK(has_only_its_like(data[rank], network.reports[rank].back(), true));
    HF_CHECK(network.reports[rank].back().delivered > count);
  }
}

HF_CASE(nobody_sums_the_two_whoever_learns_of_the_agreement_when) {
  std::uint64_t all_delivered = 0;
  std::uint64_t all_unlike = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto num_ranks = static_cast<std::uint16_t>(2 + random() % 4);
    Network network(num_ranks);
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) network[rank].publish(sending(false));
    network.join();
    const std::uint32_t loss_percent = random() % 3 == 0 ? 20 : 0;
    network.filter = [&](auto, auto, Bytes&) { return random() % 100 >= loss_percent; };
    for (std::uint32_t operation = 0; operation < 6; ++operation) {
      std::vector<std::vector<float>> data(num_ranks);
      std::vector<bool> encoded(num_ranks);
      for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
        encoded[rank] = random() % 4 != 0;
        data[rank] = data_of(encoded[rank]);
        if (random() % 2 == 0) network.run_for(static_cast<Duration>(random() % 3) * millisecond);
        network[rank].publish(sending(encoded[rank], operation));
        network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
      }
      network.run_for(4 * t_b);
      for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
        HF_EQUAL(network.reports[rank].size(), operation + 1u);
        const OperationReport& report = network.reports[rank].back();
        HF_CHECK(report.status == Status::done);
        HF_CHECK(has_only_its_like(data[rank], report, encoded[rank]));
        all_delivered += report.delivered;
      }
    }
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) all_unlike += drops(network[rank], Drop::other_encoding);
  }
  HF_CHECK(all_delivered > 0);
  HF_CHECK(all_unlike > 0);
}

HF_TEST_MAIN
