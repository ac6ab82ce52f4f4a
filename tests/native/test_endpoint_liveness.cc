// Who is alive, as whole endpoints tell from heartbeats, silence and goodbyes.
#include <vector>

#include "endpoint_network.h"
#include "endpoint_rogue.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(an_idle_pair_stays_alive_on_heartbeats_alone) {
  Network network(2);
  network.join();
  const std::uint64_t sent_before = network.num_sent;
  const std::uint64_t wakes_before = network.num_wakes;
  network.run_for(20 * second);
  HF_EQUAL(network.changes[0], "1 alive; ");
  // Four heartbeats a second each way and their acks; an idle process does next to nothing.
  HF_CHECK(network.num_sent - sent_before <= 20 * 2 * 2 * 5);
  HF_CHECK(network.num_wakes - wakes_before <= 20 * 2 * 12);
}

HF_CASE(a_second_of_silence_is_death_and_not_a_moment_less) {
  Network network(2);
  network.join();
  auto data = gradients(2, 100);
  network[0].call(network.now, call_on(data[0], Delivery::exact, 30 * second));
  network[0].send_note(network.now, 1, 1, Bytes(10), 30 * second);
  network.run_for(10 * millisecond);
  const Time last_heard = network[0].path(1).last_heard();
  network.frozen[1] = true;
  network.in_flight = {};
  network.run_until(last_heard + second - 1);
  network[0].on_timer(network.now);
  network.collect(0);
  HF_EQUAL(network.changes[0], "1 alive; ");
  network[0].send_note(network.now, 1, 1, Bytes(10), 30 * second);
  network.run_until(last_heard + second);
  HF_EQUAL(network.changes[0], "1 alive; 1 dead; ");
  HF_EQUAL(network.reports[0].size(), 1u);
  HF_CHECK(network.reports[0].at(0).status == Status::peer_dead);
  HF_CHECK(network.reports[0].at(0).culprits == std::vector<std::uint16_t>{1});
  HF_CHECK(network.fates[0].back().fate == NoteFate::peer_dead);
  HF_EQUAL(network[0].path(1).bytes_in_flight(), 0u);
  HF_EQUAL(network[0].open_operations(), 0u);

  // What is asked for now fails at once; nothing waits for nobody.
  const auto more = gradients(2, 100);
  network[0].call(network.now, call_on(data[0], Delivery::exact, 30 * second));
  network[0].send_note(network.now, 1, 1, Bytes(10), 30 * second);
  network.run_for(1);
  HF_EQUAL(network.reports[0].size(), 2u);
  HF_CHECK(network.reports[0].at(1).status == Status::peer_dead);
  HF_CHECK(network.fates[0].back().fate == NoteFate::peer_dead);
  network.run_for(10 * second);
  HF_EQUAL(network[0].path(1).bytes_in_flight(), 0u);  // calling the dead fills nothing
}

HF_CASE(a_peer_that_stopped_and_goes_on_is_alive_again) {
  Network network(2);
  network.join();
  network.frozen[1] = true;
  network.run_for(2 * second);
  HF_EQUAL(network.changes[0], "1 alive; 1 dead; ");
  network.frozen[1] = false;
  network.run_for(second);
  HF_EQUAL(network.changes[0], "1 alive; 1 dead; 1 alive; ");
  auto data = gradients(2, 5000);
  for (std::uint16_t rank = 0; rank < 2; ++rank) network[rank].call(network.now, call_on(data[rank], Delivery::exact));
  network.run_for(second);
  HF_CHECK(is_mean(data[0], 2) && is_mean(data[1], 2));
}

HF_CASE(own_sleep_is_not_the_peers_silence) {
  Network network(2);
  network.join();
  network.frozen[0] = true;
  network.run_for(700 * millisecond);  // the peer has not yet given up
  network.now += 0;
  network.frozen[0] = false;
  network.run_for(2 * second);
  HF_EQUAL(network.changes[0], "1 alive; ");
  network.frozen[0] = true;
  network.run_for(10 * second);
  network.frozen[0] = false;
  network.run_for(400 * millisecond);
  HF_EQUAL(network.changes[0], "1 alive; ");  // it slept ten seconds and accuses nobody
  HF_EQUAL(network.changes[1], "0 alive; 0 dead; 0 alive; ");
}

HF_CASE(a_path_that_works_one_way_only_is_dead_both_ways) {
  Network network(2);
  network.join();
  network.filter = [](std::uint16_t from, auto, Bytes&) { return from != 0; };
  network.run_for(3 * second);
  HF_EQUAL(network.changes[0], "1 alive; 1 dead; ");
  HF_EQUAL(network.changes[1], "0 alive; 0 dead; ");
}

HF_CASE(a_goodbye_is_heard_at_once_and_holds_nothing_back) {
  Network network(3);
  network.join();
  network[0].send_note(network.now, 2, 1, Bytes(500'000), 30 * second);
  auto data = gradients(3, 1000);
  network[0].call(network.now, call_on(data[0], Delivery::exact, 30 * second));
  network.run_for(millisecond);
  HF_CHECK(network[0].path(2).bytes_in_flight() > 0);
  network[2].say_goodbye();
  network.filter = [](std::uint16_t from, auto, Bytes& bytes) {  // its last word, and then it is gone
    return from != 2 || bytes[1] == static_cast<std::uint8_t>(PacketType::bye);
  };
  network.in_flight = {};
  network.run_for(millisecond);
  network.frozen[2] = true;
  HF_CHECK(network[0].path(2).state() == PeerState::left);
  HF_EQUAL(network[0].path(2).bytes_in_flight(), 0u);
  HF_CHECK(network.fates[0].at(0).fate == NoteFate::peer_dead);
  HF_CHECK(network.reports[0].at(0).status == Status::peer_dead);
  HF_EQUAL(network[0].path(2).next_timer(), never);
  network.run_for(5 * second);
  HF_EQUAL(network.changes[0], "1 alive; 2 alive; 2 left; ");
}

HF_CASE(a_peer_that_acknowledges_only_the_past_does_not_hear_us) {
  Rogue rogue;
  rogue.become_alive();
  rogue.victim.send_note(rogue.now, 1, 1, Bytes(10), 60 * second);
  Header ping;
  ping.type = PacketType::ping;
  for (int i = 0; i < 60; ++i) {
    rogue.replies();
    rogue.now += 20 * millisecond;
    rogue.say(ping);
    rogue.victim.on_timer(rogue.now);
    if (rogue.victim.path(1).state() == PeerState::alive) rogue.acknowledge({{0, 0}});
    if (rogue.victim.path(1).state() == PeerState::dead) break;
  }
  HF_CHECK(rogue.victim.path(1).state() == PeerState::dead);
  HF_EQUAL(rogue.now, start + second);
}

HF_CASE(talk_after_a_goodbye_revives_nobody) {
  Rogue rogue;
  rogue.become_alive();
  Header bye;
  bye.type = PacketType::bye;
  HF_EQUAL(rogue.say(bye), "accepted");
  Header ping;
  ping.type = PacketType::ping;
  ping.flags = flag::ack_now;
  HF_EQUAL(rogue.say(ping), "accepted");
  rogue.acknowledge({{0, 0}});
  HF_CHECK(rogue.victim.path(1).state() == PeerState::left);
}

HF_TEST_MAIN
