// What an endpoint holds for others: up to the caps, and nothing is acknowledged that found no room.
#include <vector>

#include "endpoint_network.h"
#include "endpoint_rogue.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

HF_CASE(operations_are_held_open_up_to_the_cap_and_not_one_more) {
  Rogue rogue([](EndpointSettings& settings) { settings.max_open_operations = 5; });
  for (std::uint32_t operation = 0; operation < 5; ++operation) HF_EQUAL(rogue.contribute(operation, 64), "accepted");
  HF_EQUAL(rogue.contribute(5, 64), "beyond_window");
  HF_EQUAL(rogue.contribute(UINT32_MAX, 64), "beyond_window");
  HF_EQUAL(rogue.victim.open_operations(), 5u);
  std::vector<float> data(64);
  rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
  HF_EQUAL(rogue.contribute(5, 64), "accepted");
  HF_EQUAL(rogue.contribute(6, 64), "beyond_window");
}

HF_CASE(early_bytes_are_held_up_to_the_cap_and_not_one_more) {
  const std::size_t idle =
      Operation::bookkeeping_bytes({64, 0, Format::f32, Delivery::bounded, true}, 2);  // 32 floats of sum on top
  for (const std::size_t too_few : {0u, 1u}) {
    Rogue rogue([&](EndpointSettings& settings) { settings.early_bytes_cap = 2 * (idle + 128) - too_few; });
    HF_EQUAL(rogue.contribute(0, 64), "accepted");
    HF_EQUAL(rogue.contribute(1, 64), too_few == 0 ? "accepted" : "early_over_cap");
    HF_EQUAL(rogue.contribute(2, 64), "early_over_cap");
    HF_CHECK(rogue.victim.early_bytes() <= rogue.settings.early_bytes_cap);
    // The own call frees what was early.
    std::vector<float> data(64);
    rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
    HF_EQUAL(rogue.contribute(2, 64), "accepted");
  }
}

HF_CASE(huge_totals_allocate_nothing_beyond_the_caps) {
  Rogue rogue([](EndpointSettings& settings) { settings.early_bytes_cap = 1 << 20; });
  // 4 GiB each: only the bitmaps would take 24 MB.
  Header end;
  end.type = PacketType::end;
  end.stage = Stage::contribution;
  end.format = Format::f32;
  end.total = 1u << 30;
  for (std::uint32_t operation = 0; operation < 64; ++operation) {
    end.operation = operation;
    HF_EQUAL(rogue.say(end), "early_over_cap");
  }
  HF_EQUAL(rogue.victim.open_operations(), 0u);
  HF_EQUAL(rogue.victim.early_bytes(), 0u);
}

HF_CASE(totals_above_what_was_agreed_are_oversized) {
  Rogue rogue([](EndpointSettings& settings) { settings.max_operation_bytes = 4000; });
  HF_EQUAL(rogue.contribute(0, 1000), "accepted");
  HF_EQUAL(rogue.contribute(1, 1001), "oversized");
  HF_EQUAL(rogue.contribute(1, UINT32_MAX), "oversized");
}

HF_CASE(what_found_no_room_is_not_acknowledged) {
  Rogue rogue([](EndpointSettings& settings) { settings.max_open_operations = 1; });
  Header ping;
  ping.type = PacketType::ping;
  ping.flags = flag::ack_now;
  HF_EQUAL(rogue.say(ping), "accepted");               // 0
  HF_EQUAL(rogue.contribute(0, 64), "accepted");       // 1
  HF_EQUAL(rogue.contribute(1, 64), "beyond_window");  // 2
  HF_EQUAL(rogue.say(ping), "accepted");               // 3
  HF_EQUAL(rogue.contribute(0, 64), "duplicate");      // 4: arrived, only not needed
  HF_EQUAL(rogue.say(ping), "accepted");               // 5
  std::vector<AckRange> acked;
  rogue.replies(&acked);
  const std::vector<AckRange> expected{{3, 5}, {0, 1}};
  HF_CHECK(acked == expected);
}

HF_CASE(exact_gets_through_a_receiver_that_had_no_room_at_first) {
  Network network(2, [](EndpointSettings& settings) { settings.max_open_operations = 2; });
  network.join();
  std::vector<std::vector<std::vector<float>>> data;
  for (int i = 0; i < 6; ++i) data.push_back(gradients(2, 4000));
  for (auto& operation : data) network[0].call(network.now, call_on(operation[0], Delivery::exact, 10 * second));
  network.run_for(300 * millisecond);
  HF_CHECK(drops(network[1], Drop::beyond_window) > 0);
  for (auto& operation : data) network[1].call(network.now, call_on(operation[1], Delivery::exact, 10 * second));
  network.run_for(5 * second);
  HF_EQUAL(network.reports[0].size(), 6u);
  for (const auto& report : network.reports[0]) HF_CHECK(report.status == Status::done);
  for (auto& operation : data) HF_CHECK(is_mean(operation[0], 2) && is_mean(operation[1], 2));
}

HF_CASE(short_notes_never_finished_are_capped_in_number) {
  Rogue rogue;
  Header note;
  note.type = PacketType::data;
  note.stage = Stage::note;
  note.format = Format::bytes;
  note.total = 17;
  std::uint32_t accepted = 0;
  for (note.operation = 0; note.operation < 5000; ++note.operation) {
    note.missing = note.operation;
    accepted += rogue.say(note, Bytes(16)) == "accepted" ? 1 : 0;
  }
  HF_EQUAL(accepted, 1024u);
}

HF_TEST_MAIN
