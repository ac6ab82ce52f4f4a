// Where all wait for the same card each gets the same bytes, whatever the size of its bursts.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "core/sending_order.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

constexpr std::uint16_t num_ranks = 5;

// A card that takes one burst after the other, and who has something for it.
struct Card {
  SendingOrder order{0, num_ranks};
  std::map<std::uint16_t, std::uint64_t> burst_bytes;  // of those that have something to send
  std::map<std::uint16_t, std::uint64_t> sent_bytes;
  std::vector<std::uint16_t> senders;
  std::uint16_t blocked = 0;  // has something, and may not send

  std::uint16_t first() {
    const auto has_something = [this](std::uint16_t peer) { return burst_bytes.contains(peer); };
    for (const std::uint16_t peer : order.peers(has_something)) {
      if (has_something(peer) && peer != blocked) return peer;
    }
    return UINT16_MAX;
  }

  void send(int times) {
    for (int i = 0; i < times; ++i) {
      const std::uint16_t peer = first();
      senders.push_back(peer);
      sent_bytes[peer] += burst_bytes.at(peer);
      order.has_sent(peer, burst_bytes.at(peer));
    }
  }
};

}  // namespace

HF_CASE(all_ranks_begin_with_another_peer) {
  std::set<std::uint16_t> firsts;
  for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
    SendingOrder order(rank, num_ranks);
    const auto peers = order.peers([](std::uint16_t) { return true; });
    HF_EQUAL(peers.size(), std::size_t{num_ranks - 1});
    firsts.insert(peers.front());
  }
  HF_EQUAL(firsts.size(), std::size_t{num_ranks});
}

HF_CASE(paths_with_equal_bursts_take_turns) {
  Card card;
  for (std::uint16_t peer = 1; peer < num_ranks; ++peer) card.burst_bytes[peer] = 11'000;
  card.send(12);
  for (std::size_t i = 4; i < card.senders.size(); ++i) HF_EQUAL(card.senders[i], card.senders[i - 4]);
  HF_EQUAL((std::set<std::uint16_t>(card.senders.begin(), card.senders.begin() + 4).size()), std::size_t{4});
}

HF_CASE(a_path_with_small_bursts_sends_as_many_bytes_as_the_others) {
  Card card;
  for (std::uint16_t peer = 1; peer < num_ranks; ++peer) card.burst_bytes[peer] = peer == 2 ? 3'000 : 11'000;
  for (int i = 0; i < 200; ++i) {
    card.send(1);
    for (std::uint16_t peer = 1; peer < num_ranks; ++peer) {
      HF_CHECK(card.sent_bytes[peer] + 11'000 >= card.sent_bytes[2]);
      HF_CHECK(card.sent_bytes[2] + 11'000 >= card.sent_bytes[peer]);
    }
  }
}

HF_CASE(who_had_nothing_to_send_has_not_saved_it_up) {
  Card card;
  card.burst_bytes = {{1, 11'000}, {2, 11'000}};
  card.send(100);
  card.burst_bytes[3] = 11'000;
  card.sent_bytes.clear();
  card.send(30);
  for (const std::uint16_t peer : {1, 2, 3}) {
    HF_CHECK(card.sent_bytes[peer] >= 9 * 11'000 && card.sent_bytes[peer] <= 11 * 11'000);
  }
}

// Results stream: a path runs dry again and again, and is not to come before the others each time for that.
HF_CASE(a_path_that_runs_dry_now_and_then_sends_no_more_than_the_others) {
  Card card;
  card.burst_bytes = {{1, 11'000}, {2, 11'000}, {3, 1'000}};
  for (int i = 0; i < 300; ++i) {
    card.send(1);
    if (card.senders.back() == 3) {
      card.burst_bytes.erase(3);
      card.first();  // asked while it has nothing
      card.burst_bytes[3] = 1'000;
    }
  }
  HF_CHECK(card.sent_bytes[3] <= card.sent_bytes[1] + 11'000);
  HF_CHECK(card.sent_bytes[1] + 22'000 >= card.sent_bytes[2] && card.sent_bytes[2] + 22'000 >= card.sent_bytes[1]);
}

HF_CASE(a_path_whose_peer_stood_still_comes_first_for_a_moment_only) {
  Card card;
  card.burst_bytes = {{1, 11'000}, {2, 11'000}, {3, 11'000}};
  card.blocked = 3;
  card.send(100);
  HF_EQUAL(card.sent_bytes[3], 0u);
  HF_CHECK(card.sent_bytes[1] == card.sent_bytes[2]);
  card.blocked = 0;
  card.sent_bytes.clear();
  card.send(30);
  HF_CHECK(card.sent_bytes[3] <= card.sent_bytes[1] + 64 * 1024 + 22'000);
  HF_CHECK(card.sent_bytes[1] > 0 && card.sent_bytes[2] > 0);
}

HF_CASE(an_acknowledgement_takes_nobodys_turn) {
  SendingOrder order(0, num_ranks);
  const auto has_something = [](std::uint16_t peer) { return peer == 1 || peer == 2; };
  HF_EQUAL(order.peers(has_something).front(), std::uint16_t{1});
  order.has_sent(1, 11'000);
  for (int i = 0; i < 1000; ++i) order.has_sent(3, 100);
  HF_EQUAL(order.peers(has_something).back(), std::uint16_t{1});
  order.has_sent(2, 3'000);
  order.has_sent(2, 3'000);
  const auto peers = order.peers(has_something);
  HF_CHECK(std::find(peers.begin(), peers.end(), 2) < std::find(peers.begin(), peers.end(), 1));
}

// The last path of an operation is still sending when the next one begins: it is not to wait until the others have sent
// as much.
HF_CASE(who_sent_alone_owes_nothing) {
  Card card;
  card.burst_bytes = {{1, 11'000}, {2, 11'000}, {3, 11'000}};
  card.send(6);
  card.burst_bytes = {{2, 11'000}};
  card.send(50);
  card.burst_bytes = {{1, 11'000}, {2, 11'000}, {3, 11'000}};
  card.sent_bytes.clear();
  card.send(30);
  for (const std::uint16_t peer : {1, 2, 3}) {
    HF_CHECK(card.sent_bytes[peer] >= 9 * 11'000 && card.sent_bytes[peer] <= 11 * 11'000);
  }
}

HF_TEST_MAIN
