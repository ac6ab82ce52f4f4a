// What holds an endpoint's datagrams back: the receiver's window, the rate, and the card's queue.
#include <algorithm>
#include <functional>
#include <vector>

#include "endpoint_network.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(in_flight_stays_within_the_receivers_window) {
  Network network(2, [](EndpointSettings& settings) { settings.receive_buffer_bytes = 200'000; });
  network.delay = 20 * millisecond;
  network.run_for(200 * millisecond);
  std::uint64_t most = 0;
  network.filter = [&](auto, auto, Bytes&) {
    most = std::max(most, network[0].path(1).bytes_in_flight());
    return true;
  };
  network[0].send_note(network.now, 1, 1, Bytes(3'000'000), 60 * second);
  network.run_for(10 * second);
  HF_EQUAL(network.notes[1].size(), 1u);
  HF_CHECK(most > 50'000);
  HF_CHECK(most <= 100'000);  // half of the buffer
}

HF_CASE(heartbeats_neither_set_nor_forget_the_rate) {
  Network network(2);
  network.run_for(10 * second);
  HF_EQUAL(network[0].path(1).rate().bandwidth_bytes_per_second(), 0.0);
  network[0].send_note(network.now, 1, 1, Bytes(5'000'000), 60 * second);
  network.run_for(5 * second);
  const double before = network[0].path(1).rate().bandwidth_bytes_per_second();
  HF_CHECK(before > 10e6);
  for (int i = 0; i < 60; ++i) {
    network[0].send_note(network.now, 1, 1, Bytes(100), 60 * second);
    network.run_for(second);
  }
  HF_CHECK(network[0].path(1).rate().bandwidth_bytes_per_second() >= before);
}

HF_CASE(a_window_of_two_datagrams_does_not_wait_for_delayed_acks) {
  Network network(2, [](EndpointSettings& settings) {
    settings.datagram_bytes = 65'000;
    settings.receive_buffer_bytes = 4 * 65'000;
    for (PeerSettings& peer : settings.peers) peer.same_host = true;
  });
  network.delay = 10 * microsecond;
  network.join();
  network[0].send_note(network.now, 1, 1, Bytes(40 * 64'000), second);
  network.run_for(2 * millisecond);  // 20 round trips take 0.4 ms; 20 delayed acks would take 20 ms
  HF_EQUAL(network.notes[1].size(), 1u);
}

HF_CASE(without_room_in_the_card_acks_and_ends_leave_and_data_waits) {
  Network network(2);
  network.join();
  auto data = gradients(2, 32);
  TransmitBatch batch;
  const auto types_sent = [&](bool card_has_room) {
    std::vector<PacketType> types;
    const std::uint64_t waiting = card_has_room ? 0 : network[0].wanted_card_queue_bytes();
    while (network[0].fill(network.now, batch, waiting)) {
      std::size_t part = 0;
      for (std::uint32_t i = 0; i < batch.num_datagrams; part += batch.parts_per_datagram[i++]) {
        types.push_back(static_cast<PacketType>(static_cast<const std::uint8_t*>(batch.parts[part].iov_base)[1]));
      }
    }
    return types;
  };
  const auto has = [](const std::vector<PacketType>& types, PacketType type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  network[1].call(network.now, call_on(data[1], Delivery::bounded, second));
  network.flush(1);
  network.now += 2 * millisecond;
  while (!network.in_flight.empty()) {
    Network::Datagram datagram = network.in_flight.top();
    network.in_flight.pop();
    network[datagram.to].receive(network.now, datagram.bytes);
  }
  network[0].call(network.now, call_on(data[0], Delivery::bounded, second));
  const auto without_room = types_sent(false);
  HF_CHECK(has(without_room, PacketType::ack));
  HF_CHECK(!has(without_room, PacketType::data));
  HF_CHECK(has(types_sent(true), PacketType::data));
  network.now += 10 * millisecond;
  network[0].on_timer(network.now);
  const auto afterwards = types_sent(false);
  HF_CHECK(has(afterwards, PacketType::end));
  HF_CHECK(!has(afterwards, PacketType::data));
}

HF_CASE(what_stays_on_the_host_says_nothing_about_the_card) {
  const auto card_queue_after_an_operation = [](bool same_host) {
    Network network(3, [same_host](EndpointSettings& settings) {
      for (PeerSettings& peer : settings.peers) peer.same_host = same_host;
    });
    network.join();
    auto data = gradients(3, 200'000);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::exact, second));
    }
    network.run_for(second);
    HF_CHECK(is_mean(data[0], 3));
    return network[0].wanted_card_queue_bytes();
  };
  HF_CHECK(card_queue_after_an_operation(false) > 32 * 1024);
  HF_EQUAL(card_queue_after_an_operation(true), 32u * 1024);
}

HF_CASE(each_path_keeps_to_its_share_of_a_busy_card_while_an_operation_is_open) {
  Network network(4);
  network.join();
  network.card_queue_bytes = 1000;  // never empty: the card is the bottleneck
  network.delay = 5 * millisecond;
  auto data = gradients(4, 4'000'000);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::exact, 10 * second));
  }
  for (int i = 0; i < 200 && network[0].card_bytes_per_second() == 0; ++i) network.run_for(5 * millisecond);
  HF_EQUAL(network[0].open_operations(), 1u);
  const double card = network[0].card_bytes_per_second();
  HF_CHECK(card > 0);
  for (std::uint16_t peer = 1; peer < 4; ++peer) {
    const double share = network[0].path(peer).pacing_bytes_per_second() / card;
    HF_CHECK(share > 0.31 && share < 0.37);
  }
  network.run_for(10 * second);
  HF_CHECK(is_mean(data[0], 4));
}

// Rank 0 in the middle of an operation whose datagrams have come to take `there` to its peers and `back` from them.
std::uint64_t window_of_rank_0(Duration there, Duration back, Duration card_wait) {
  Network network(4, [](EndpointSettings& settings) {
    settings.receive_buffer_bytes = 384 * 1024;
    settings.protection = Protection::insecure;
  });
  network.join();
  network.card_queue_bytes = 1000;
  auto data = gradients(4, 4'000'000);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::exact, 10 * second));
  }
  network.run_for(60 * millisecond);
  const double card = network[0].card_bytes_per_second();
  HF_CHECK(card > 0);
  network.filter = [&](std::uint16_t from, std::uint16_t to, Bytes&) {
    network.delay = from == 0 ? there : to == 0 ? back : 500 * microsecond;
    return true;
  };
  network.card_queue_bytes = static_cast<std::uint64_t>(in_seconds(card_wait) * card);
  network.run_for(50 * millisecond);
  HF_EQUAL(network[0].open_operations(), 1u);
  return network[0].path(1).window_bytes();
}

HF_CASE(a_queue_at_the_own_port_does_not_narrow_the_window_and_one_at_the_peers_does) {
  const std::uint64_t empty = window_of_rank_0(500 * microsecond, 500 * microsecond, 0);
  HF_CHECK(window_of_rank_0(500 * microsecond, 12 * millisecond, 0) >= empty);
  HF_CHECK(window_of_rank_0(12 * millisecond, 500 * microsecond, 0) < empty);
}

HF_CASE(what_waits_in_the_own_card_does_not_narrow_the_window) {
  const std::uint64_t at_the_port = window_of_rank_0(12 * millisecond, 500 * microsecond, 0);
  HF_CHECK(window_of_rank_0(12 * millisecond, 500 * microsecond, 800 * microsecond) > at_the_port);
}

HF_CASE(on_a_slow_card_more_datagrams_gather_between_two_wakeups) {
  const auto spacing_with = [](Duration delay) {
    Network network(4);
    network.delay = delay;
    network.join();
    network.card_queue_bytes = 1000;  // never empty: for all that the endpoint can see, the card sets the pace
    auto data = gradients(4, 4'000'000);
    for (std::uint16_t rank = 0; rank < 4; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::exact, 10 * second));
    }
    network.run_for(200 * millisecond);
    return network[0].wakeup_spacing();
  };
  HF_EQUAL(spacing_with(millisecond), 500 * microsecond);
  HF_EQUAL(spacing_with(20 * millisecond), millisecond);
}

namespace {

// Of rank 0, once its bursts have grown; then `lose` decides for 80 ms what arrives. The least of its bursts since.
std::uint32_t burst_after(const std::function<bool(std::uint16_t from, std::uint16_t to, Bytes&)>& lose) {
  Network network(2);
  network.join();
  network[0].send_note(network.now, 1, 1, Bytes(10'000'000), 60 * second);
  network.run_for(5 * second);
  HF_EQUAL(network[0].path(1).burst_datagrams(), BurstSize::most);
  std::uint32_t least = BurstSize::most;
  const Time lossy_until = network.now + 80 * millisecond;
  network.filter = [&](auto from, auto to, Bytes& bytes) {
    least = std::min(least, network[0].path(1).burst_datagrams());
    return network.now >= lossy_until || !lose(from, to, bytes);
  };
  network[0].send_note(network.now, 1, 1, Bytes(1'000'000), 60 * second);
  network.run_for(5 * second);
  HF_CHECK(network[0].path(1).counters().packets_lost > BurstSize::tolerated);
  HF_EQUAL(network.notes[1].size(), 2u);
  return least;
}

}  // namespace

// What had gathered for a host that stood still is lost when it comes all at once: no port was too small for a burst.
HF_CASE(what_was_sent_to_a_peer_that_stood_still_does_not_make_bursts_smaller) {
  HF_EQUAL(burst_after([](auto, auto, Bytes&) { return true; }), BurstSize::most);
  int count = 0;
  HF_CHECK(burst_after([&](auto from, auto, Bytes&) { return from == 0 && ++count % 10 == 0; }) < BurstSize::most);
}

HF_TEST_MAIN
