// Results that leave before the sum is closed.
#include <vector>

#include "operation_bench.h"
#include "testing/check.h"

using namespace holdfast;
using namespace holdfast::testing;

namespace {

Setting streaming_setting(Delivery delivery = Delivery::bounded) {
  Setting setting;
  setting.delivery = delivery;
  setting.chunk = 16;  // a shard of 32 is two datagrams
  return setting;
}

const FakeOutbox::Message& result_to(const Bench& bench, std::uint16_t peer) {
  const std::uint32_t id = bench.outbox.id_of(Stage::result, peer);
  for (const auto& message : bench.outbox.sent) {
    if (message.id == id) return message;
  }
  static const FakeOutbox::Message none{};
  return none;
}

float sent_value(const FakeOutbox::Message& message, std::uint32_t element) {
  return reinterpret_cast<const float*>(message.content.data)[element - message.content.range.begin];
}

}  // namespace

HF_CASE(the_result_of_a_complete_chunk_leaves_before_the_sum_is_closed) {
  for (const Delivery delivery : {Delivery::bounded, Delivery::exact}) {
    Bench bench(streaming_setting(delivery));
    bench.call(0);
    bench.contribution(1, 1, {16, 32});
    HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
    bench.contribution(2, 2, {0, 32});
    HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
    for (const std::uint16_t peer : {1, 2}) {
      HF_CHECK(result_to(bench, peer).content.open);
      HF_EQUAL(text(result_to(bench, peer).released), "16-32 ");  // 0-16 lacks rank 1
      HF_EQUAL(sent_value(result_to(bench, peer), 16), 2.0f);
      HF_EQUAL(sent_value(result_to(bench, peer), 31), 2.0f);
    }
    HF_CHECK(bench.all_equal({0, 32}, 1.0f));  // the own gradient, until the sum is closed
    bench.contribution(3, 1, {0, 16});
    for (const std::uint16_t peer : {1, 2}) {
      HF_CHECK(!result_to(bench, peer).content.open);
      HF_EQUAL(text(result_to(bench, peer).released), "16-32 0-16 ");
      HF_EQUAL(sent_value(result_to(bench, peer), 0), 2.0f);
      HF_CHECK(result_to(bench, peer).content.holes.empty() && result_to(bench, peer).content.gaps.empty());
    }
    HF_CHECK(bench.all_equal({0, 32}, 2.0f));
    bench.result(4, 1);
    bench.result(4, 2);
    HF_CHECK(bench.operation.ended());
    HF_EQUAL(bench.report().delivered, 288u);
  }
}

HF_CASE(nothing_leaves_early_where_a_contribution_or_the_own_call_is_missing) {
  Bench bench(streaming_setting());
  bench.contribution(1, 1);
  bench.contribution(2, 2, {0, 16});
  HF_EQUAL(bench.outbox.summary(), "");  // the own part is not there
  bench.call(3);
  HF_EQUAL(text(result_to(bench, 1).released), "0-16 ");  // complete with the call
  HF_EQUAL(sent_value(result_to(bench, 1), 0), 2.0f);
}

HF_CASE(what_was_streamed_stays_right_with_holes_and_gaps_elsewhere) {
  Setting setting = streaming_setting();
  setting.total = 3 * 64;
  Bench bench(setting);
  bench.call(0);
  bench.contribution(1 * millisecond, 1, {16, 48});
  bench.contribution(2 * millisecond, 2, {16, 32});  // 0-16 nobody, 16-32 all, 32-48 rank 1 alone, 48-64 nobody
  HF_EQUAL(text(result_to(bench, 1).released), "16-32 ");
  bench.operation.on_timer(100 * millisecond);
  for (const std::uint16_t peer : {1, 2}) {
    const auto& message = result_to(bench, peer);
    HF_CHECK(!message.content.open);
    HF_EQUAL(text(message.released), "16-32 0-16 32-64 ");  // everything once
    HF_EQUAL(text(message.content.holes), "0-16 48-64 ");
    HF_EQUAL(message.content.gaps.size(), 1u);
    HF_CHECK((message.content.gaps[0].range == ElementRange{32, 48}));
    HF_EQUAL(sent_value(message, 20), 2.0f);
    HF_EQUAL(sent_value(message, 40), 1.0f / 3 + 2.0f / 3 * 2);
  }
  HF_CHECK(bench.all_equal({16, 32}, 2.0f));
  HF_CHECK(bench.all_equal({0, 16}, 0.0f) && bench.all_equal({48, 64}, 0.0f));
}

HF_CASE(in_rank_order_streaming_does_not_change_a_bit) {
  const auto sum_of = [](std::uint32_t chunk, bool reversed) {
    Setting setting = streaming_setting();
    setting.num_ranks = 4;
    setting.total = 4 * 64;
    setting.chunk = chunk;
    setting.parameters.deterministic = true;
    Bench bench(setting);
    for (std::uint32_t i = 0; i < setting.total; ++i) bench.data[i] = 0.1f * static_cast<float>(i % 7);
    bench.call(0);
    for (std::uint32_t step = 0; step < 12; ++step) {
      const std::uint32_t turn = reversed ? 11 - step : step;
      const auto sender = static_cast<std::uint16_t>(1 + turn % 3);
      const std::uint32_t begin = turn / 3 * 16;
      bench.data_packet(1 + step, Stage::contribution, sender, {begin, begin + 16}, 1e7f / (sender * sender) + 0.3f);
    }
    HF_CHECK(!result_to(bench, 1).content.open);
    return std::vector<float>(bench.data.begin(), bench.data.begin() + 64);
  };
  const std::vector<float> unstreamed = sum_of(1024, false);
  HF_CHECK(sum_of(16, false) == unstreamed);
  HF_CHECK(sum_of(16, true) == unstreamed);
  HF_CHECK(sum_of(32, true) == unstreamed);
}

HF_CASE(with_a_credit_of_one_the_first_peer_streams_and_the_rest_follow_whole) {
  Setting setting = streaming_setting();
  Bench bench(setting);
  bench.outbox.credit[1] = 1;
  bench.call(0);
  bench.contribution(1, 1, {0, 16});
  bench.contribution(2, 2, {0, 16});
  HF_EQUAL(bench.outbox.summary(), "c2 r2 ");
  bench.contribution(3, 1, {16, 32});
  bench.contribution(4, 2, {16, 32});
  HF_EQUAL(bench.outbox.summary(), "c2 r2 ");
  bench.operation.on_message_sent(2, bench.outbox.id_of(Stage::result, 2));
  HF_EQUAL(bench.outbox.summary(), "c2 r2 r1 ");
  HF_CHECK(!result_to(bench, 1).content.open);  // whole, nothing to release
  HF_EQUAL(text(result_to(bench, 1).released), "");
  HF_EQUAL(sent_value(result_to(bench, 1), 0), 2.0f);
}

HF_CASE(a_failure_with_an_open_sum_stops_what_was_streamed_and_retires) {
  for (const bool by_death : {true, false}) {
    Bench bench(streaming_setting(Delivery::exact));
    bench.call(0, 60 * millisecond);
    bench.contribution(1, 1, {0, 32});
    bench.contribution(2, 2, {0, 16});
    HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
    if (by_death) {
      bench.outbox.alive[2] = false;
      bench.operation.on_peer_gone(3, 2);
    } else {
      bench.operation.on_timer(60 * millisecond);
    }
    HF_CHECK(bench.operation.ended() && bench.operation.retired());
    HF_EQUAL(text(bench.report().culprits), "2 ");
    for (const auto& message : bench.outbox.sent) HF_CHECK(bench.outbox.was_cancelled(message.id));
    HF_CHECK(bench.all_equal({0, 96}, 0.0f));
    HF_EQUAL(bench.contribution(61 * millisecond, 2, {16, 32}), "late");
    HF_EQUAL(bench.operation.next_timer(), never);
  }
}

HF_CASE(a_mismatch_with_an_open_sum_stops_what_was_streamed) {
  Bench bench(streaming_setting());
  bench.call(0);
  bench.contribution(1, 1, {0, 32});
  bench.contribution(2, 2, {0, 16});
  const std::uint32_t to_one = bench.outbox.id_of(Stage::result, 1);
  Header packet = bench.header(PacketType::data, Stage::contribution, 2);
  packet.layout = 9;
  HF_EQUAL(bench.give(3, packet, std::vector<float>(16)), "mismatch");
  HF_CHECK(bench.outbox.was_cancelled(to_one));
  HF_CHECK(bench.operation.ended() && bench.operation.retired());
}

HF_CASE(a_conflict_before_the_call_lets_the_call_stream_nothing) {
  Bench bench(streaming_setting());
  bench.contribution(1, 1);
  bench.contribution(1, 2, {0, 16});
  Header packet = bench.header(PacketType::data, Stage::contribution, 2);
  packet.layout = 9;
  bench.give(2, packet, std::vector<float>(16));
  bench.call(3);
  HF_EQUAL(text(bench.report().status), "mismatch");
  for (const auto& message : bench.outbox.sent) HF_CHECK(message.content.stage == Stage::contribution);
}

HF_CASE(bounded_goes_on_streaming_to_the_living_when_a_peer_dies) {
  Bench bench(streaming_setting());
  bench.call(0);
  bench.contribution(1, 1, {0, 16});
  bench.contribution(2, 2, {0, 16});
  HF_EQUAL(text(result_to(bench, 2).released), "0-16 ");
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(3, 2);
  HF_CHECK(bench.outbox.was_cancelled(bench.outbox.id_of(Stage::result, 2)));
  HF_CHECK(result_to(bench, 1).content.open);
  bench.contribution(4, 1, {16, 32});  // all that can still come
  HF_CHECK(!result_to(bench, 1).content.open);
  HF_EQUAL(text(result_to(bench, 1).released), "0-16 16-32 ");
  HF_EQUAL(result_to(bench, 1).content.gaps.size(), 1u);
  HF_EQUAL(sent_value(result_to(bench, 1), 0), 2.0f);  // the dead one's part was in
  HF_EQUAL(sent_value(result_to(bench, 1), 16), 1.0f / 3 + 2.0f / 3 * 2);
}

HF_TEST_MAIN
