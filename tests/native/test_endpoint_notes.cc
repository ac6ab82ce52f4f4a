// Notes between whole endpoints: they arrive once, or their sender hears that they did not.
#include <random>
#include <stdexcept>
#include <vector>

#include "endpoint_network.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(notes_of_any_size_arrive_once_under_loss) {
  Network network(2);
  network.join();
  std::mt19937 random(4);
  network.filter = [&](auto, auto, Bytes&) { return random() % 4 != 0; };
  std::vector<Bytes> sent;
  for (const std::size_t size : {0u, 1u, 1000u, 100'000u}) {
    Bytes bytes(size);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    sent.push_back(bytes);
    network[0].send_note(network.now, 1, 42, bytes, 10 * second);
  }
  network.run_for(10 * second);
  HF_EQUAL(network.notes[1].size(), 4u);
  for (const Note& note : network.notes[1]) {
    HF_EQUAL(note.channel, 42u);
    HF_CHECK(note.bytes == sent[note.number]);
  }
  HF_EQUAL(network.fates[0].size(), 4u);
  for (const SentNote& fate : network.fates[0]) HF_CHECK(fate.fate == NoteFate::delivered);
}

HF_CASE(a_note_that_cannot_arrive_fails_at_its_deadline) {
  Network network(2);
  network.join();
  network.filter = [](auto, auto, Bytes& bytes) { return bytes[1] != static_cast<std::uint8_t>(PacketType::data); };
  network[0].send_note(network.now, 1, 1, Bytes(10), 300 * millisecond);
  network.run_for(300 * millisecond - 1);
  HF_EQUAL(network.fates[0].size(), 0u);
  network.run_for(1);
  HF_EQUAL(network.fates[0].size(), 1u);
  HF_CHECK(network.fates[0][0].fate == NoteFate::deadline_exceeded);
}

HF_CASE(notes_given_up_half_way_do_not_fill_the_inbox) {
  Network network(2, [](EndpointSettings& settings) { settings.max_note_bytes = 10'000; });
  network.join();
  for (int i = 0; i < 5; ++i) {
    int seen = 0;
    network.filter = [&](auto, auto, Bytes& bytes) {
      return bytes[1] != static_cast<std::uint8_t>(PacketType::data) || ++seen == 1;
    };
    network[0].send_note(network.now, 1, 1, Bytes(9'000), 50 * millisecond);
    network.run_for(100 * millisecond);
  }
  network.filter = [](auto, auto, Bytes&) { return true; };
  network[0].send_note(network.now, 1, 1, Bytes(9'000, 7), second);
  network.run_for(second);
  HF_EQUAL(network.notes[1].size(), 1u);
  HF_CHECK(network.fates[0].back().fate == NoteFate::delivered);
}

HF_CASE(an_oversized_note_is_not_reported_as_delivered) {
  Network network(2, [](EndpointSettings& settings) { settings.max_note_bytes = 1000; });
  network.join();
  network[0].send_note(network.now, 1, 1, Bytes(1000), 500 * millisecond);
  network[0].send_note(network.now, 1, 1, Bytes(1001), 500 * millisecond);
  network[0].send_note(network.now, 1, 1, Bytes(1000), 500 * millisecond);
  network.run_for(600 * millisecond);
  HF_EQUAL(network.notes[1].size(), 2u);
  HF_EQUAL(network.fates[0].size(), 3u);
  HF_CHECK(network.fates[0][0].fate == NoteFate::delivered);
  HF_CHECK(network.fates[0][1].fate == NoteFate::delivered);  // the one that fits does not wait for the one that cannot
  HF_CHECK(network.fates[0][2].fate == NoteFate::deadline_exceeded);
}

HF_CASE(notes_that_nobody_takes_hold_up_their_sender_and_only_them) {
  Network network(3, [](EndpointSettings& settings) { settings.max_note_bytes = 1000; });
  network.join();
  network.readers_are_there = false;
  network[0].send_note(network.now, 1, 1, Bytes(1000), 500 * millisecond);
  network.run_for(100 * millisecond);
  network[0].send_note(network.now, 1, 1, Bytes(1), 100 * millisecond);
  network[2].send_note(network.now, 1, 1, Bytes(1000), 100 * millisecond);
  network.run_for(200 * millisecond);
  HF_EQUAL(network.notes[1].size(), 2u);  // one of each sender
  HF_CHECK(network.fates[0].back().fate == NoteFate::deadline_exceeded);
  HF_CHECK(network.fates[2].back().fate == NoteFate::delivered);
  network[1].release_note(0, 1000);
  network[0].send_note(network.now, 1, 1, Bytes(1000), 500 * millisecond);
  network.run_for(100 * millisecond);
  HF_EQUAL(network.notes[1].size(), 3u);
  HF_CHECK(network.fates[0].back().fate == NoteFate::delivered);
}

HF_CASE(a_note_to_nobody_is_an_error_of_the_caller) {
  Network network(2);
  for (const std::uint16_t peer : {0, 2}) {  // itself, and a rank that does not exist
    HF_THROWS(network[0].send_note(network.now, peer, 1, Bytes(1), second), std::invalid_argument);
  }
}

HF_CASE(a_note_half_sent_when_its_sender_stops_arrives_when_it_goes_on) {
  Network network(2);
  network.join();
  network[0].send_note(network.now, 1, 1, Bytes(2'000'000, 3), 60 * second);
  network.run_for(8 * millisecond);
  network.frozen[0] = true;
  network.run_for(3 * second);
  HF_EQUAL(network.changes[1], "0 alive; 0 dead; ");
  network.frozen[0] = false;
  network.run_for(5 * second);
  HF_EQUAL(network.notes[1].size() == 1, network.fates[0].at(0).fate == NoteFate::delivered);
}

HF_TEST_MAIN
