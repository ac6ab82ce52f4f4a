// What a peer that holds the keys and means harm can do to an endpoint.
#include <random>
#include <vector>

#include "endpoint_network.h"
#include "endpoint_rogue.h"
#include "kernels/packing.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(an_ack_of_something_never_sent_is_refused_and_revives_nobody) {
  Rogue rogue;
  HF_EQUAL(rogue.acknowledge({{0, 0}}), "acknowledges_unsent");
  HF_CHECK(rogue.victim.path(1).state() == PeerState::joining);
  HF_EQUAL(rogue.replies().size(), 1u);
  HF_EQUAL(rogue.acknowledge({{0, 1}}), "acknowledges_unsent");
  HF_EQUAL(rogue.acknowledge({{max_transmission, max_transmission}}), "acknowledges_unsent");
  HF_EQUAL(rogue.acknowledge({{0, 0}}), "accepted");
  HF_CHECK(rogue.victim.path(1).state() == PeerState::alive);
}

HF_CASE(malformed_acks_are_counted) {
  Rogue rogue;
  Header ack;
  ack.type = PacketType::ack;
  HF_EQUAL(rogue.say(ack, Bytes(1)), "malformed");
  HF_EQUAL(rogue.say(ack, Bytes(26)), "malformed");  // no ranges
  HF_EQUAL(rogue.say(ack, Bytes(700)), "malformed");
}

HF_CASE(a_receive_window_of_nothing_slows_but_does_not_stop) {
  Rogue rogue;
  rogue.become_alive();
  HF_EQUAL(rogue.acknowledge({{0, 0}}, 0), "accepted");
  rogue.victim.send_note(rogue.now, 1, 1, Bytes(100'000), second);
  int data = 0;
  for (const Header& header : rogue.replies()) data += header.type == PacketType::data ? 1 : 0;
  HF_EQUAL(data, 1);
}

HF_CASE(a_jump_in_numbers_is_acknowledged_without_wrapping) {
  Rogue rogue;
  Header ping;
  ping.type = PacketType::ping;
  ping.flags = flag::ack_now;
  HF_EQUAL(rogue.say(ping), "accepted");
  ping.transmission = max_transmission;
  HF_EQUAL(rogue.deliver(rogue.sealed(ping, {})), "accepted");
  std::vector<AckRange> acked;
  rogue.replies(&acked);
  HF_EQUAL(acked.size(), 1u);
  HF_EQUAL(acked.at(0).first, max_transmission);
  HF_EQUAL(rogue.deliver(rogue.sealed(ping, {})), "replay");
}

HF_CASE(packed_elements_count_only_where_they_are_what_they_claim_to_be) {
  Rogue rogue;
  std::vector<float> data(4096, 1.0f);
  rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
  const std::vector<float> values(2048, 3.0f);
  const auto packed = [&](std::uint16_t count) {
    Bytes bytes(kernels::fit_packed(Format::f32, values.data(), count, SIZE_MAX).num_bytes);
    kernels::pack(Format::f32, bytes.data(), bytes.size(), values.data(), count);
    return bytes;
  };
  Header header = rogue.data_header(0, 4096);
  header.type = PacketType::packed;
  header.packed_elements = 32;
  Bytes payload = packed(32);
  payload.pop_back();
  HF_EQUAL(rogue.say(header, payload), "malformed");
  payload = packed(32);
  payload[2] = 0xff;  // codes that lead to others, which there are no bytes for
  HF_EQUAL(rogue.say(header, payload), "malformed");
  header.packed_elements = 48;
  HF_EQUAL(rogue.say(header, packed(32)), "malformed");
  // More than four times what fits a datagram, all of it zeros: it would fit, and is refused.
  header.packed_elements = 1424;
  Bytes zeros(12, 0xff);
  zeros.back() = 0x01;
  HF_EQUAL(rogue.say(header, zeros), "malformed");
  header.packed_elements = 1408;
  header.offset += 16;
  HF_EQUAL(rogue.say(header, Bytes(11, 0xff)), "accepted");
  header.offset -= 16;
  header.packed_elements = 16;
  HF_EQUAL(rogue.say(header, packed(16)), "accepted");
  header.packed_elements = 24;
  HF_EQUAL(rogue.say(header, packed(24)), "misplaced");  // half a block
}

HF_CASE(a_peer_writes_only_where_it_may) {
  Rogue rogue;
  std::vector<float> data(64, 1.0f);
  rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
  Header header = rogue.data_header(0, 64, Stage::result);  // it owns 32-64
  header.offset = 0;
  HF_EQUAL(rogue.say(header, Bytes(64, 0x7f)), "misplaced");
  header.offset = 16;
  HF_EQUAL(rogue.say(header, Bytes(128, 0x7f)), "misplaced");
  header.offset = 40;
  HF_EQUAL(rogue.say(header, Bytes(64, 0x7f)), "misplaced");
  header.offset = 48;
  HF_EQUAL(rogue.say(header, Bytes(68, 0x7f)), "malformed");  // beyond the bucket
  header.type = PacketType::hole;
  header.offset = 16;
  header.missing = 32;
  HF_EQUAL(rogue.say(header), "misplaced");
  HF_CHECK(data == std::vector<float>(64, 1.0f));
}

HF_CASE(a_peer_cannot_inflate_the_reported_share) {
  Rogue rogue;
  std::vector<float> data(64, 1.0f);
  rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
  HF_EQUAL(rogue.say(rogue.data_header(0, 64), Bytes(128)), "accepted");
  Header result = rogue.data_header(0, 64, Stage::result);
  result.missing = UINT32_MAX;
  HF_EQUAL(rogue.say(result, Bytes(128)), "malformed");
  result.missing = 32;
  HF_EQUAL(rogue.say(result, Bytes(128)), "accepted");
  const auto reports = rogue.victim.take_reports();
  HF_EQUAL(reports.size(), 1u);
  HF_EQUAL(reports.at(0).delivered, 96u);
}

HF_CASE(a_peer_that_never_acknowledges_results_does_not_keep_them) {
  Rogue rogue;
  rogue.become_alive();
  Parameters common;
  common.t_b = 50 * millisecond;
  rogue.victim.publish(common);
  std::vector<std::vector<float>> data(10, std::vector<float>(64, 1.0f));
  for (std::uint32_t operation = 0; operation < 10; ++operation) {
    rogue.victim.call(rogue.now, call_on(data[operation], Delivery::exact, 100 * millisecond));
    Header header = rogue.data_header(operation, 64);
    header.flags = flag::exact;
    HF_EQUAL(rogue.say(header, Bytes(128)), "accepted");
    header = rogue.data_header(operation, 64, Stage::result);
    header.flags = flag::exact;
    HF_EQUAL(rogue.say(header, Bytes(128)), "accepted");
  }
  HF_EQUAL(rogue.victim.take_reports().size(), 10u);
  HF_EQUAL(rogue.victim.open_operations(), 10u);
  Header ping;
  ping.type = PacketType::ping;
  for (int i = 0; i < 10; ++i) {
    rogue.now += 20 * millisecond;
    rogue.victim.on_timer(rogue.now);
    rogue.replies();
    rogue.say(ping);
    rogue.acknowledge({{0, 0}});  // it hears us, it says, only the results never
  }
  HF_CHECK(rogue.victim.path(1).state() == PeerState::alive);
  HF_EQUAL(rogue.victim.open_operations(), 0u);
}

HF_CASE(an_operation_that_disagrees_names_the_peer_and_leaves_the_memory_alone) {
  Rogue rogue;
  std::vector<float> data(64, 1.0f);
  HF_EQUAL(rogue.contribute(0, 96), "accepted");
  rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
  const auto reports = rogue.victim.take_reports();
  HF_EQUAL(reports.size(), 1u);
  HF_CHECK(reports.at(0).status == Status::mismatch);
  HF_CHECK(reports.at(0).culprits == std::vector<std::uint16_t>{1});
  HF_CHECK(data == std::vector<float>(64, 1.0f));
  HF_EQUAL(rogue.contribute(0, 96), "late");
}

HF_CASE(random_authenticated_packets_break_nothing) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    Rogue rogue(
        [](EndpointSettings& settings) {
          settings.early_bytes_cap = 1 << 16;
          settings.max_note_bytes = 1 << 14;
          settings.max_open_operations = 8;
        },
        3);
    std::mt19937 random(seed);
    std::vector<std::vector<float>> data(40, std::vector<float>(300, 1.0f));
    std::size_t called = 0, reported = 0;
    const auto pick = [&random](auto... values) {
      const std::uint32_t choices[] = {static_cast<std::uint32_t>(values)...};
      return choices[random() % std::size(choices)];
    };
    for (int i = 0; i < 3000; ++i) {
      Header header;
      header.type = static_cast<PacketType>(1 + random() % 6);
      header.stage = static_cast<Stage>(random() % 4);
      header.format = header.stage == Stage::note ? Format::bytes : random() % 8 == 0 ? Format::f64 : Format::f32;
      if (header.type > PacketType::end) header.stage = Stage::none;
      header.flags = static_cast<std::uint8_t>(random() % 16) & (random() % 4 != 0 ? 5 : 15);
      header.credit = static_cast<std::uint8_t>(random());
      header.operation = random() % 8 == 0 ? random() : static_cast<std::uint32_t>(called + random() % 4);
      header.total = pick(300, 300, 300, 0, 299, 17, UINT32_MAX, random());
      header.offset = pick(0, 100, 200, 116, 216, 16, 32, random() % 300, UINT32_MAX);
      header.missing = pick(0, 0, 16, 32, 100, UINT32_MAX, random());
      Bytes payload(pick(0, 64, 128, 400, 272, random() % 1400));
      if (header.type == PacketType::bye && random() % 50 != 0) header.type = PacketType::ping;
      rogue.say(header, payload);
      if (random() % 20 == 0) rogue.acknowledge({{random() % 200, 200 + random() % 50}});
      if (random() % 60 == 0 && called < data.size()) {
        rogue.victim.call(rogue.now, call_on(data[called++], random() % 3 == 0 ? Delivery::exact : Delivery::bounded,
                                             200 * millisecond));
      }
      rogue.now += random() % 2'000'000;
      if (rogue.victim.next_timer() <= rogue.now) rogue.victim.on_timer(rogue.now);
      rogue.replies();
      for (const OperationReport& report : rogue.victim.take_reports()) {
        HF_CHECK(report.delivered <= report.expected);
        ++reported;
      }
      HF_CHECK(rogue.victim.early_bytes() <= (1 << 16));
    }
    rogue.now += second;
    rogue.victim.on_timer(rogue.now);
    reported += rogue.victim.take_reports().size();
    HF_EQUAL(reported, called);  // every call ends, whatever the peer does
  }
}

HF_TEST_MAIN
