// A rank that was away while the others went on takes part again from where they are.
#include <vector>

#include "endpoint_network.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

constexpr std::uint16_t num_ranks = 3;

void call_on_ranks(Network& network, std::vector<std::vector<float>>& data, std::uint16_t first, std::uint16_t end) {
  for (std::uint16_t rank = first; rank < end; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded, 100 * millisecond));
  }
}

}  // namespace

HF_CASE(after_skipping_an_operation_is_complete_on_all_ranks) {
  Network network(num_ranks);
  network.join();
  std::vector<std::vector<std::vector<float>>> kept;  // memory outlives its operations
  for (int operation = 0; operation < 20; ++operation) {
    kept.push_back(gradients(num_ranks, 5000));
    call_on_ranks(network, kept.back(), 0, 2);
    network.run_for(120 * millisecond);
  }
  HF_EQUAL(network[2].next_operation(), 0u);
  HF_CHECK(network[2].open_operations() > 0);  // it has served what the others began
  network[2].skip_to(network.now, 20);
  HF_EQUAL(network[2].next_operation(), 20u);
  HF_EQUAL(network[2].open_operations(), 0u);
  HF_EQUAL(network[2].early_bytes(), 0u);
  auto data = gradients(num_ranks, 5000);
  call_on_ranks(network, data, 0, 3);
  network.run_for(120 * millisecond);
  for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
    HF_CHECK(is_mean(data[rank], num_ranks));
    HF_EQUAL(network.reports[rank].back().operation, 20u);
    HF_EQUAL(network.reports[rank].back().not_received, 0u);
  }
}

HF_CASE(nobody_skips_backwards) {
  Network network(num_ranks);
  network.join();
  auto data = gradients(num_ranks, 100);
  call_on_ranks(network, data, 0, 3);
  network.run_for(120 * millisecond);
  network[0].skip_to(network.now, 0);
  network[0].skip_to(network.now, 1);
  HF_EQUAL(network[0].next_operation(), 1u);
}

HF_CASE(what_others_may_have_is_told_apart_from_what_nobody_has) {
  Network network(num_ranks);
  network.join();
  auto data = gradients(num_ranks, 3000);
  // Rank 1's results do not reach rank 0, though the two hear each other.
  network.filter = [](std::uint16_t from, std::uint16_t to, Bytes& datagram) {
    Header header;
    const std::size_t payload_bytes = datagram.size() - header_bytes - tag_bytes;
    const bool readable = !decode(datagram, payload_bytes, header).has_value();
    const bool result = readable && header.type == PacketType::data && header.stage == Stage::result;
    return !(result && from == 1 && to == 0);
  };
  call_on_ranks(network, data, 0, 3);
  network.run_for(200 * millisecond);
  HF_EQUAL(network.reports[0].at(0).not_received, 1000u);
  HF_EQUAL(network.reports[1].at(0).not_received, 0u);
  HF_EQUAL(network.reports[2].at(0).not_received, 0u);
}

HF_TEST_MAIN
