// What is in flight and what became of it: by three later acks, by nine eighths of a round trip, or by giving up.
#include <string>

#include "core/sent_ledger.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

struct Ledger {
  SentLedger ledger;
  SentLedger::Settled settled;
  RttEstimator rtt{millisecond};

  void send(Time now, std::uint32_t bytes = 1000, std::uint32_t message = 1, Duration card_wait = 0) {
    SentPacket packet;
    packet.sent_at = now;
    packet.card_wait = card_wait;
    packet.bytes = bytes;
    packet.message = message;
    packet.offset = static_cast<std::uint32_t>(ledger.next_number());
    packet.count = 1;
    ledger.record(packet);
  }
  void send_many(int count, Time now = 0) {
    for (int i = 0; i < count; ++i) send(now);
  }
  bool acknowledge(Time now, std::vector<AckRange> ranges) {
    settled.clear();
    Ack ack;
    ack.ranges = std::move(ranges);
    return ledger.acknowledge(ack, now, settled);
  }
  void detect(Time now) { ledger.detect_loss(now, rtt, settled); }
};

// The numbers stand in `offset`.
std::string numbers(const std::vector<SentPacket>& packets) {
  std::ostringstream text;
  for (const SentPacket& packet : packets) text << packet.offset << " ";
  return text.str();
}

}  // namespace

HF_CASE(numbers_count_up_whether_or_not_an_ack_is_wanted) {
  Ledger path;
  HF_EQUAL(path.ledger.next_number(), 0u);
  path.ledger.record_unacknowledged();
  HF_EQUAL(path.ledger.next_number(), 1u);
  path.send(0);
  path.ledger.record_unacknowledged();
  path.ledger.record_unacknowledged();
  path.send(0);
  HF_EQUAL(path.ledger.next_number(), 5u);
  HF_EQUAL(path.ledger.bytes_in_flight(), 2000u);
  HF_CHECK(path.acknowledge(1, {{0, 4}}));
  HF_EQUAL(numbers(path.settled.acknowledged), "1 4 ");
  HF_EQUAL(path.ledger.bytes_in_flight(), 0u);
  HF_EQUAL(path.ledger.next_number(), 5u);
  path.ledger.record_unacknowledged();
  HF_EQUAL(path.ledger.next_number(), 6u);
}

HF_CASE(an_ack_settles_its_ranges_and_nothing_else) {
  Ledger path;
  path.send_many(10);
  HF_CHECK(path.acknowledge(5 * millisecond, {{7, 8}, {1, 2}}));
  HF_EQUAL(numbers(path.settled.acknowledged), "7 8 1 2 ");
  HF_EQUAL(path.settled.acknowledged_bytes, 4000u);
  HF_EQUAL(path.ledger.bytes_in_flight(), 6000u);
}

HF_CASE(acks_may_come_out_of_order_and_twice) {
  Ledger path;
  path.send_many(6);
  HF_CHECK(path.acknowledge(1, {{4, 5}}));
  HF_CHECK(path.acknowledge(2, {{0, 2}}));
  HF_EQUAL(numbers(path.settled.acknowledged), "0 1 2 ");
  HF_CHECK(path.acknowledge(3, {{0, 2}}));
  HF_EQUAL(numbers(path.settled.acknowledged), "");
  HF_EQUAL(path.settled.acknowledged_bytes, 0u);
  HF_CHECK(path.acknowledge(4, {{0, 5}}));
  HF_EQUAL(numbers(path.settled.acknowledged), "3 ");
  HF_EQUAL(path.ledger.bytes_in_flight(), 0u);
  HF_CHECK(!path.ledger.has_outstanding());
}

HF_CASE(an_ack_of_a_number_never_sent_is_refused_whole) {
  Ledger path;
  HF_CHECK(!path.acknowledge(1, {{0, 0}}));
  path.send_many(3);
  HF_CHECK(!path.acknowledge(1, {{0, 3}}));
  HF_EQUAL(numbers(path.settled.acknowledged), "");
  HF_EQUAL(path.ledger.bytes_in_flight(), 3000u);
  HF_CHECK(!path.acknowledge(1, {{UINT64_MAX, UINT64_MAX}, {0, 2}}));
  HF_EQUAL(path.ledger.bytes_in_flight(), 3000u);
  path.detect(10 * second);
  HF_EQUAL(numbers(path.settled.lost), "");
  HF_CHECK(path.acknowledge(1, {{0, 2}}));
}

HF_CASE(three_later_acks_lose_a_packet_and_two_do_not) {
  Ledger path;
  path.send_many(4);
  HF_CHECK(path.acknowledge(100, {{1, 2}}));
  path.detect(100);
  HF_EQUAL(numbers(path.settled.lost), "");
  HF_CHECK(path.acknowledge(101, {{1, 3}}));
  path.detect(101);
  HF_EQUAL(numbers(path.settled.lost), "0 ");
  HF_EQUAL(path.ledger.bytes_in_flight(), 0u);
}

HF_CASE(nine_eighths_of_a_round_trip_lose_a_packet_behind_an_acknowledged_one) {
  Ledger path;
  path.rtt.add_sample(8 * millisecond, 0);
  path.send(0);
  path.send(0);
  path.send(millisecond);
  HF_CHECK(path.acknowledge(8 * millisecond, {{1, 1}}));
  path.detect(8 * millisecond);
  HF_EQUAL(numbers(path.settled.lost), "");
  HF_EQUAL(path.ledger.loss_check_at(), 9 * millisecond);
  path.settled.clear();
  path.detect(9 * millisecond - 1);
  HF_EQUAL(numbers(path.settled.lost), "");
  path.detect(9 * millisecond);
  HF_EQUAL(numbers(path.settled.lost), "0 ");
  // Nothing later than number 2 was acknowledged: only a probe can tell about it.
  HF_EQUAL(path.ledger.loss_check_at(), never);
  HF_EQUAL(path.ledger.bytes_in_flight(), 1000u);
}

HF_CASE(without_a_later_ack_nothing_is_lost_however_old) {
  Ledger path;
  path.send_many(5);
  path.detect(3600 * second);
  HF_EQUAL(numbers(path.settled.lost), "");
  HF_EQUAL(path.ledger.loss_check_at(), never);
}

HF_CASE(an_ack_of_our_ack_counts_as_later) {
  Ledger path;
  path.send(0);
  for (int i = 0; i < 3; ++i) path.ledger.record_unacknowledged();
  HF_CHECK(path.acknowledge(100, {{3, 3}}));
  HF_CHECK(!path.settled.has_rtt_sample);
  path.detect(100);
  HF_EQUAL(numbers(path.settled.lost), "0 ");
}

HF_CASE(a_packet_given_up_and_acknowledged_after_all_is_settled_once) {
  Ledger path;
  path.send_many(8);
  HF_CHECK(path.acknowledge(100, {{4, 7}}));
  path.detect(100);
  HF_EQUAL(numbers(path.settled.lost), "0 1 2 3 ");
  HF_CHECK(path.acknowledge(200, {{0, 7}}));
  HF_EQUAL(numbers(path.settled.acknowledged), "");
  HF_EQUAL(path.ledger.bytes_in_flight(), 0u);
}

HF_CASE(an_rtt_sample_says_how_long_its_own_packet_waited_in_the_card) {
  Ledger path;
  path.send(0, 1000, 1, 3 * millisecond);
  path.send(0, 1000, 1, 4 * millisecond);
  path.send(0, 1000, 1, 5 * millisecond);
  path.acknowledge(9 * millisecond, {{0, 1}});
  HF_EQUAL(path.settled.card_wait, 4 * millisecond);
  path.acknowledge(10 * millisecond, {{0, 1}});  // nothing new
  HF_EQUAL(path.settled.card_wait, 0);
}

HF_CASE(only_a_newly_acknowledged_largest_number_is_an_rtt_sample) {
  Ledger path;
  path.send(0);
  path.send(2 * millisecond);
  path.send(3 * millisecond);
  HF_CHECK(path.acknowledge(10 * millisecond, {{1, 1}}));
  HF_CHECK(path.settled.has_rtt_sample);
  HF_EQUAL(path.settled.rtt_sample, 8 * millisecond);
  HF_CHECK(path.acknowledge(12 * millisecond, {{0, 1}}));
  HF_CHECK(!path.settled.has_rtt_sample);
  HF_EQUAL(numbers(path.settled.acknowledged), "0 ");
  HF_CHECK(path.acknowledge(13 * millisecond, {{0, 2}}));
  HF_EQUAL(path.settled.rtt_sample, 10 * millisecond);
}

HF_CASE(newest_is_the_latest_sent_of_the_newly_acknowledged) {
  Ledger path;
  path.send(10);
  path.send(20);
  path.send(30);
  HF_CHECK(path.acknowledge(50, {{0, 1}}));
  HF_EQUAL(path.settled.newest.sent_at, 20);
  HF_CHECK(path.acknowledge(51, {{2, 2}, {0, 0}}));
  HF_EQUAL(path.settled.newest.sent_at, 30);
}

HF_CASE(giving_up_returns_everything_in_flight) {
  Ledger path;
  path.send_many(5);
  HF_CHECK(path.acknowledge(1, {{2, 2}}));
  path.detect(1);
  path.settled.clear();
  path.ledger.abandon(path.settled);
  HF_EQUAL(numbers(path.settled.lost), "0 1 3 4 ");
  HF_EQUAL(path.ledger.bytes_in_flight(), 0u);
  HF_CHECK(!path.ledger.has_outstanding());
  HF_EQUAL(path.ledger.loss_check_at(), never);
  HF_EQUAL(path.ledger.next_number(), 5u);  // numbers are never used again
  HF_EQUAL(path.ledger.oldest_sent_at(), never);
  path.send(2);
  HF_CHECK(path.acknowledge(3, {{5, 5}}));
  HF_EQUAL(numbers(path.settled.acknowledged), "5 ");
}

HF_CASE(a_probe_repeats_the_oldest_packet_that_carried_a_message) {
  Ledger path;
  path.send(1, 64, 0);  // a ping
  path.send(2, 1000, 7);
  path.send(3, 1000, 8);
  HF_EQUAL(path.ledger.oldest_sent_at(), 1);
  HF_EQUAL(path.ledger.oldest_outstanding()->message, 7u);
  HF_CHECK(path.acknowledge(4, {{1, 1}}));
  HF_EQUAL(path.ledger.oldest_outstanding()->message, 8u);
  HF_CHECK(path.acknowledge(5, {{2, 2}}));
  HF_CHECK(path.ledger.oldest_outstanding() == nullptr);
  HF_EQUAL(path.ledger.bytes_in_flight(), 64u);
}

HF_CASE(bytes_in_flight_return_to_zero_after_a_long_disorderly_run) {
  Ledger path;
  std::uint64_t state = 42;
  const auto random = [&state](std::uint64_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % below;
  };
  std::size_t settled = 0;
  for (Time now = 0; now < 20'000; ++now) {
    random(4) == 0 ? path.ledger.record_unacknowledged() : path.send(now, 100);
    if (random(3) != 0) continue;
    const std::uint64_t last = random(path.ledger.next_number());
    HF_CHECK(path.acknowledge(now, {{last - std::min(last, random(5)), last}}));
    path.detect(now);
    settled += path.settled.acknowledged.size() + path.settled.lost.size();
  }
  HF_CHECK(settled > 10'000);
  path.settled.clear();
  path.ledger.abandon(path.settled);
  HF_EQUAL(path.ledger.bytes_in_flight(), 0u);
}

HF_TEST_MAIN
