// Whole endpoints that pack what they send, or not: the same results to the bit.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "endpoint_network.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr std::uint16_t num_ranks = 3;
constexpr std::size_t count = 20'000;
constexpr double always = std::numeric_limits<double>::infinity();

// A third bell, a third zeros with a few gradients between, a third of all sizes: packed, not packed, and back.
std::vector<float> mixed(std::uint16_t rank) {
  std::mt19937 random(rank + 1u);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    if (i < count / 3) {
      values[i] = value;
    } else if (i < 2 * count / 3) {
      values[i] = i % 50 == 0 ? value : 0.0f;
    } else {
      values[i] = std::ldexp(value, static_cast<int>(random() % 200) - 100);
    }
  }
  return values;
}

struct Outcome {
  std::vector<std::vector<float>> results;
  std::size_t num_packed = 0;
  std::size_t num_plain = 0;
  std::size_t num_bytes = 0;
};

// A few operations, so that the network is known; of the last one the results and what was sent.
Outcome outcome_of(double pack_below, bool same_host, int lost_one_in = 0) {
  Network network(num_ranks, [&](EndpointSettings& settings) {
    settings.pack_below_bytes_per_second = pack_below;
    for (PeerSettings& peer : settings.peers) peer.same_host = same_host;
  });
  Outcome outcome;
  int num_data = 0;
  network.filter = [&](std::uint16_t, std::uint16_t, Bytes& bytes) {
    const auto type = static_cast<PacketType>(bytes[1]);
    if (!carries_elements(type)) return true;
    ++(type == PacketType::packed ? outcome.num_packed : outcome.num_plain);
    outcome.num_bytes += bytes.size();
    return lost_one_in == 0 || ++num_data % lost_one_in != 0;
  };
  network.run_until(network.now + 100 * millisecond);
  for (int operation = 0; operation < 3; ++operation) {
    outcome = {};
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) outcome.results.push_back(mixed(rank));
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      Parameters parameters;
      parameters.deterministic = true;
      network[rank].publish(parameters);
      network[rank].call(network.now, call_on(outcome.results[rank], Delivery::exact));
    }
    network.run_until(network.now + 2 * second);
  }
  for (const auto& reports : network.reports) {
    HF_EQUAL(reports.size(), 3u);
    for (const OperationReport& report : reports) HF_CHECK(report.status == Status::done);
  }
  return outcome;
}

}  // namespace

HF_CASE(packed_or_not_the_results_are_the_same_to_the_bit) {
  const Outcome plain = outcome_of(0, false);
  HF_EQUAL(plain.num_packed, 0u);
  for (const int lost_one_in : {0, 7}) {
    const Outcome packed = outcome_of(always, false, lost_one_in);
    HF_CHECK(packed.num_packed > 0 && packed.num_plain > 0);  // what packing does not shorten leaves as it is
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      HF_CHECK(std::memcmp(packed.results[rank].data(), plain.results[rank].data(), count * sizeof(float)) == 0);
    }
    if (lost_one_in == 0) HF_CHECK(packed.num_bytes < plain.num_bytes * 4 / 5);
  }
}

HF_CASE(nothing_is_packed_where_the_network_is_fast_enough_or_is_none) {
  HF_EQUAL(outcome_of(1.0, false).num_packed, 0u);
  HF_EQUAL(outcome_of(always, true).num_packed, 0u);
  HF_CHECK(outcome_of(1e12, false).num_packed > 0);
}

HF_TEST_MAIN
