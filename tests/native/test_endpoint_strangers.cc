// What somebody without the keys sends to an endpoint changes nothing but counters.
#include <random>

#include "endpoint_rogue.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(a_flood_of_random_bytes_changes_nothing_but_counters) {
  Rogue rogue;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes(random() % 1500);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    if (!bytes.empty() && random() % 2 == 0) bytes[0] = wire_version;
    rogue.victim.receive(rogue.now, bytes);
  }
  HF_EQUAL(all_drops(rogue.victim), 20'000u);
  HF_EQUAL(rogue.victim.open_operations(), 0u);
  HF_EQUAL(rogue.victim.early_bytes(), 0u);
  HF_CHECK(rogue.victim.path(1).state() == PeerState::joining);
  HF_EQUAL(rogue.replies().size(), 1u);  // its own first ping: strangers get no answer
}

HF_CASE(foreign_job_epoch_and_sender_are_dropped_by_name) {
  Rogue rogue;
  Header header;
  header.type = PacketType::ping;
  const auto with = [&](std::uint32_t job, std::uint32_t epoch, std::uint16_t sender) {
    header.job = job;
    header.epoch = epoch;
    header.sender = sender;
    Bytes bytes(header_bytes + tag_bytes);
    encode(header, std::span<std::uint8_t, header_bytes>(bytes.data(), header_bytes));
    return rogue.deliver(bytes);
  };
  HF_EQUAL(with(78, 3, 1), "foreign_job");
  HF_EQUAL(with(77, 2, 1), "foreign_epoch");
  HF_EQUAL(with(77, 4, 1), "foreign_epoch");
  HF_EQUAL(with(77, 3, 2), "unknown_sender");
  HF_EQUAL(with(77, 3, 0), "unknown_sender");  // its own name
  HF_EQUAL(with(77, 3, 65'535), "unknown_sender");
  HF_EQUAL(with(77, 3, 1), "authentication");
  HF_EQUAL(rogue.victim.failed_authentications(1), 1u);
}

HF_CASE(replays_and_stale_numbers_are_dropped_without_a_trace) {
  Rogue rogue;
  Header ping;
  ping.type = PacketType::ping;
  ping.transmission = 5;
  const Bytes first = rogue.sealed(ping, {});
  HF_EQUAL(rogue.deliver(first), "accepted");
  HF_EQUAL(rogue.deliver(first), "replay");
  ping.transmission = 5 + 8192;
  HF_EQUAL(rogue.deliver(rogue.sealed(ping, {})), "accepted");
  HF_EQUAL(rogue.deliver(first), "too_old");
  // A forged number does not move the window.
  ping.transmission = 1'000'000;
  Bytes forged = rogue.sealed(ping, {});
  forged.back() ^= 1;
  HF_EQUAL(rogue.deliver(forged), "authentication");
  ping.transmission = 5 + 8193;
  HF_EQUAL(rogue.deliver(rogue.sealed(ping, {})), "accepted");
}

HF_CASE(a_goodbye_or_end_without_the_key_is_not_believed) {
  Rogue rogue;
  rogue.become_alive();
  Header bye;
  bye.type = PacketType::bye;
  bye.transmission = 100;
  Bytes forged = rogue.sealed(bye, {});
  forged[forged.size() - 3] ^= 0x10;
  HF_EQUAL(rogue.deliver(forged), "authentication");
  HF_CHECK(rogue.victim.path(1).state() == PeerState::alive);
  HF_EQUAL(rogue.deliver(rogue.sealed(bye, {})), "accepted");
  HF_CHECK(rogue.victim.path(1).state() == PeerState::left);
}

HF_CASE(a_restarted_process_and_its_old_datagrams_are_strangers) {
  Rogue restarted([](EndpointSettings&) {}, 2, process_of(9));
  Header ping;
  ping.type = PacketType::ping;
  HF_EQUAL(restarted.say(ping), "authentication");
  HF_EQUAL(restarted.victim.failed_authentications(1), 1u);
}

HF_TEST_MAIN
