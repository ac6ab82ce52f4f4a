// Whole endpoints back to back on a virtual clock: joining, and operations from call to report.
#include <random>
#include <stdexcept>
#include <vector>

#include "endpoint_network.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(ranks_join_within_two_round_trips) {
  Network network(3);
  network.run_for(3 * millisecond);
  for (std::uint16_t rank = 0; rank < 3; ++rank) HF_CHECK(network[rank].all_peers_alive());
  HF_EQUAL(network.changes[0], "1 alive; 2 alive; ");
}

HF_CASE(a_rank_that_comes_later_joins_when_it_comes) {
  Network network(2);
  network.frozen[1] = true;
  network.run_for(3 * second);
  HF_CHECK(!network[0].all_peers_alive());
  HF_EQUAL(network.changes[0], "");  // never there: not dead either
  network.frozen[1] = false;
  network.run_for(30 * millisecond);
  HF_CHECK(network[0].all_peers_alive() && network[1].all_peers_alive());
}

HF_CASE(exact_and_bounded_agree_to_the_bit_without_loss) {
  for (const std::uint16_t ranks : {2, 3, 4}) {
    for (const std::size_t count : {1u, 2u, 17u, 1000u, 50'001u}) {
      Network network(ranks);
      network.join();
      auto bounded = gradients(ranks, count);
      auto exact = gradients(ranks, count);
      for (std::uint16_t rank = 0; rank < ranks; ++rank) {
        HF_EQUAL(network[rank].call(network.now, call_on(bounded[rank], Delivery::bounded)), 0u);
        HF_EQUAL(network[rank].call(network.now, call_on(exact[rank], Delivery::exact)), 1u);
      }
      network.run_for(400 * millisecond);
      for (std::uint16_t rank = 0; rank < ranks; ++rank) {
        HF_EQUAL(network.reports[rank].size(), 2u);
        for (const OperationReport& report : network.reports[rank]) {
          HF_CHECK(report.status == Status::done && report.missing.empty());
          HF_CHECK(report.contributions.end == StageEnd::complete && report.results.end == StageEnd::complete);
          HF_EQUAL(report.delivered, report.expected);
        }
        HF_CHECK(is_mean(bounded[rank], ranks) && is_mean(exact[rank], ranks));
        HF_CHECK(bounded[rank] == bounded[0] && exact[rank] == exact[0]);
        HF_EQUAL(network[rank].open_operations(), 0u);
        HF_EQUAL(all_drops(network[rank]), 0u);
      }
    }
  }
}

HF_CASE(every_protection_and_datagram_size_carries_the_same) {
  for (const Protection protection : {Protection::encrypted, Protection::authenticated, Protection::insecure}) {
    for (const std::uint32_t datagram : {300u, 1472u, 8972u, 65'000u}) {
      Network network(2, [&](EndpointSettings& settings) {
        settings.protection = protection;
        settings.datagram_bytes = datagram;
        for (PeerSettings& peer : settings.peers) peer.same_host = datagram == 65'000;
      });
      network.join();
      auto data = gradients(2, 30'000);
      for (std::uint16_t rank = 0; rank < 2; ++rank)
        network[rank].call(network.now, call_on(data[rank], Delivery::exact));
      network.run_for(second);
      HF_CHECK(is_mean(data[0], 2) && data[0] == data[1]);
      HF_EQUAL(network.reports[0].size(), 1u);
    }
  }
}

HF_CASE(ranks_with_different_datagram_sizes_speak_of_the_same_blocks) {
  Network network(3, [](EndpointSettings& settings) {
    settings.datagram_bytes = settings.rank == 0 ? 1472 : settings.rank == 1 ? 8972 : 600;
  });
  network.join();
  auto data = gradients(3, 20'011);
  for (std::uint16_t rank = 0; rank < 3; ++rank)
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
  network.run_for(second);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    HF_CHECK(is_mean(data[rank], 3));
    HF_EQUAL(all_drops(network[rank]), 0u);
  }
}

HF_CASE(exact_survives_a_fifth_of_all_datagrams_lost_doubled_or_reordered) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    Network network(3, [](EndpointSettings& settings) { settings.packets_per_key = 60; });
    network.join();
    std::mt19937 random(seed);
    network.filter = [&](std::uint16_t from, std::uint16_t to, Bytes& bytes) {
      const auto later = static_cast<Duration>(random() % 5'000'000);
      if (random() % 10 == 0) network.in_flight.push({network.now + later, ++network.num_sent, from, to, bytes});
      return random() % 5 != 0;
    };
    auto data = gradients(3, 40'000);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::exact, 20 * second));
      network.run_for(millisecond);
    }
    network.run_for(20 * second);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      HF_EQUAL(network.reports[rank].size(), 1u);
      HF_CHECK(network.reports[rank].at(0).status == Status::done);
      HF_CHECK(is_mean(data[rank], 3) && data[rank] == data[0]);
      HF_CHECK(network[rank].path((rank + 1) % 3).counters().resent > 0);
      HF_CHECK(drops(network[rank], Drop::replay) > 0);
      HF_CHECK(network[rank].path((rank + 1) % 3).sealing_phase() >= 2);  // re-keyed in flight, under loss
      HF_EQUAL(drops(network[rank], Drop::authentication), 0u);
    }
    network.filter = [](auto, auto, Bytes&) { return true; };
    network.run_for(second);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      HF_CHECK(network[rank].path((rank + 1) % 3).bytes_in_flight() <= 64);  // at most a heartbeat
    }
  }
}

HF_CASE(bounded_under_loss_ends_in_time_and_reports_what_is_missing) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    Network network(3);
    network.join();
    std::mt19937 random(seed);
    network.filter = [&](auto, auto, Bytes&) { return random() % 10 != 0; };
    auto data = gradients(3, 30'000);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::bounded, 200 * millisecond));
    }
    network.run_for(200 * millisecond);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      HF_EQUAL(network.reports[rank].size(), 1u);
      const OperationReport& report = network.reports[rank].at(0);
      HF_CHECK(report.status == Status::done && report.elapsed <= 200 * millisecond);
      std::uint64_t missing = 0;
      for (const ElementRange& range : report.missing) {
        missing += range.size();
        for (std::uint32_t i = range.begin; i < range.end; ++i) HF_EQUAL(data[rank][i], 0.0f);
      }
      HF_CHECK(missing > 0 && missing < 30'000);
      HF_CHECK(report.delivered <= (30'000 - missing) * 3);
      HF_CHECK(report.delivered > (30'000 - missing) * 2);
    }
  }
}

HF_CASE(a_rank_a_second_late_costs_the_others_neither_time_nor_its_shard) {
  Network network(3);
  network.join();
  auto data = gradients(3, 3000);
  for (const std::uint16_t rank : {0, 1}) {
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded, 400 * millisecond));
  }
  Parameters parameters;
  parameters.t_b = 100 * millisecond;
  network[2].publish(parameters);  // what an uncalled operation goes by
  network.run_for(second);
  for (const std::uint16_t rank : {0, 1}) {
    HF_EQUAL(network.reports[rank].size(), 1u);
    HF_CHECK(network.reports[rank].at(0).elapsed <= 400 * millisecond);
  }
  network[2].call(network.now, call_on(data[2], Delivery::bounded, 400 * millisecond));
  network.run_for(second);
  HF_EQUAL(network.reports[2].size(), 1u);
  HF_CHECK(network.reports[2].at(0).waited_for_call > 900 * millisecond);
}

HF_CASE(the_duty_of_an_uncalled_operation_is_served_with_the_published_bound) {
  Network network(3);
  Parameters parameters;
  parameters.t_b = 100 * millisecond;
  for (std::uint16_t rank = 0; rank < 3; ++rank) network[rank].publish(parameters);
  network.join();
  auto data = gradients(3, 3000);
  for (const std::uint16_t rank : {0, 1}) network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
  network.run_for(300 * millisecond);
  for (const std::uint16_t rank : {0, 1}) {
    HF_EQUAL(network.reports[rank].size(), 1u);
    HF_CHECK(network.reports[rank].at(0).missing.empty());  // shard 2 came from the late rank's I/O thread
    HF_EQUAL(network.reports[rank].at(0).delivered, 2u * 3000);
    HF_CHECK(data[rank] == data[0]);
  }
  network[2].call(network.now, call_on(data[2], Delivery::bounded));
  HF_CHECK(data[2] == data[0]);  // everything was waiting for it
}

HF_CASE(one_rank_alone_needs_no_network) {
  Network network(1);
  auto data = gradients(1, 100);
  const auto before = data[0];
  network[0].call(network.now, call_on(data[0], Delivery::exact));
  network.run_for(second);
  HF_EQUAL(network.reports[0].size(), 1u);
  HF_CHECK(data[0] == before);
  HF_EQUAL(network.num_sent, 0u);
  HF_EQUAL(network[0].next_timer(), never);
}

HF_CASE(many_operations_in_flight_keep_apart) {
  Network network(2);
  network.join();
  std::vector<std::vector<std::vector<float>>> data;
  for (int i = 0; i < 20; ++i) data.push_back(gradients(2, 500 + 37 * static_cast<std::size_t>(i)));
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    for (auto& operation : data) network[rank].call(network.now, call_on(operation[rank], Delivery::exact));
    network.run_for(20 * millisecond);
  }
  network.run_for(second);
  for (auto& operation : data) HF_CHECK(is_mean(operation[0], 2) && operation[0] == operation[1]);
  HF_EQUAL(network.reports[1].size(), 20u);
}

HF_CASE(settings_that_could_never_work_are_refused) {
  const auto refused = [](const Change& change) {
    EndpointSettings settings = settings_for(0, 2);
    change(settings);
    try {
      Endpoint endpoint(settings, start);
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  HF_CHECK(!refused([](EndpointSettings&) {}));
  HF_CHECK(refused([](EndpointSettings& settings) { settings.datagram_bytes = 255; }));
  HF_CHECK(!refused([](EndpointSettings& settings) { settings.datagram_bytes = 256; }));
  HF_CHECK(!refused([](EndpointSettings& settings) { settings.datagram_bytes = 65'280; }));
  HF_CHECK(refused([](EndpointSettings& settings) { settings.datagram_bytes = 65'281; }));
  HF_CHECK(refused([](EndpointSettings& settings) { settings.peers.pop_back(); }));
  HF_CHECK(refused([](EndpointSettings& settings) { settings.rank = 2; }));
  HF_CHECK(refused([](EndpointSettings& settings) { settings.packets_per_key = 0; }));
  HF_CHECK(refused([](EndpointSettings& settings) { ++settings.packets_per_key; }));
}

HF_TEST_MAIN
