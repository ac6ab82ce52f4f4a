// Acknowledgements: any bytes as one, and the ledger of what was sent fed with them, beside a slow model of it.
#include <algorithm>
#include <map>
#include <vector>

#include "core/received_numbers.h"
#include "core/sent_ledger.h"
#include "core/wire.h"
#include "fuzz/check.h"
#include "fuzz/input.h"

using namespace holdfast;

namespace {

void check_ranges(const std::vector<AckRange>& ranges) {
  FUZZ_CHECK(!ranges.empty() && ranges.size() <= max_ack_ranges);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    FUZZ_CHECK(ranges[i].first <= ranges[i].last);
    if (i > 0) FUZZ_CHECK(ranges[i].last + 1 < ranges[i - 1].first);  // newest first, and never adjacent
  }
}

void check_bytes(std::span<const std::uint8_t> bytes) {
  const auto ack = decode_ack(bytes);
  if (!ack) return;
  check_ranges(ack->ranges);
  FUZZ_CHECK(std::ranges::equal(encode(*ack), bytes));
}

struct Model {
  struct Entry {
    Time sent_at;
    std::uint32_t bytes;
  };
  std::map<std::uint64_t, Entry> outstanding;
  std::uint64_t next = 0;
  std::uint64_t largest_acknowledged = 0;

  std::uint64_t bytes_in_flight() const {
    std::uint64_t sum = 0;
    for (const auto& [number, entry] : outstanding) sum += entry.bytes;
    return sum;
  }
  Time oldest() const { return outstanding.empty() ? never : outstanding.begin()->second.sent_at; }
};

// Packets carry their number as `offset`, so that what the ledger settles can be told apart.
void take_settled(const std::vector<SentPacket>& settled, Model& model, std::uint64_t lost_below) {
  for (const SentPacket& packet : settled) {
    FUZZ_CHECK(packet.offset < lost_below);
    FUZZ_CHECK(model.outstanding.erase(packet.offset) == 1);  // settled once
  }
}

class LedgerRun {
 public:
  void step(fuzz::Input& input) {
    now_ += Duration{input.below(256)} * 20 * microsecond;
    switch (input.below(8)) {
      case 0: send(input.between(1, 40), input.take<std::uint8_t>()); break;
      case 1: silent(); break;
      case 2: receive_some(input); break;
      case 3:
      case 4: acknowledge_received(); break;
      case 5: acknowledge_anything(input); break;
      case 6: detect_loss(); break;
      default: abandon(); break;
    }
    FUZZ_CHECK(ledger_.next_number() == model_.next);
    FUZZ_CHECK(ledger_.bytes_in_flight() == model_.bytes_in_flight());
    FUZZ_CHECK(ledger_.has_outstanding() == !model_.outstanding.empty());
    FUZZ_CHECK(ledger_.oldest_sent_at() == model_.oldest());
    const SentPacket* oldest = ledger_.oldest_outstanding();
    FUZZ_CHECK((oldest == nullptr) == model_.outstanding.empty());
    if (oldest != nullptr) FUZZ_CHECK(oldest->offset == model_.outstanding.begin()->first);
  }

 private:
  void send(std::uint32_t count, std::uint8_t size) {
    for (std::uint32_t i = 0; i < count; ++i) {
      SentPacket packet;
      packet.sent_at = now_;
      packet.bytes = 100u + size;
      packet.message = 1;
      packet.offset = static_cast<std::uint32_t>(model_.next);
      ledger_.record(packet);
      model_.outstanding[model_.next++] = {now_, packet.bytes};
    }
  }
  void silent() {
    ledger_.record_unacknowledged();
    ++model_.next;
  }
  void receive_some(fuzz::Input& input) {
    if (model_.next == 0) return;
    const std::uint64_t from = input.below(static_cast<std::uint32_t>(model_.next));
    const std::uint64_t step = input.between(1, 4);
    for (std::uint64_t number = from, left = input.below(64); left > 0 && number < model_.next;
         number += step, --left) {
      received_.insert(number);
    }
  }
  void acknowledge_received() {
    if (received_.empty()) return;
    Ack ack;
    ack.delay = 77 * microsecond;
    ack.arrived_at = 5;
    ack.receive_window = 1 << 16;
    ack.ranges = received_.newest_first(max_ack_ranges);
    check_ranges(ack.ranges);
    const auto read = decode_ack(encode(ack));
    FUZZ_CHECK(read && read->ranges == ack.ranges && read->delay == ack.delay && read->arrived_at == ack.arrived_at);
    acknowledge(*read);
  }
  void acknowledge_anything(fuzz::Input& input) {
    const auto ack = decode_ack(input.bytes(min_ack_bytes + 8 * input.below(4)));
    if (ack) acknowledge(*ack);
  }

  void acknowledge(const Ack& ack) {
    settled_.clear();
    const bool believed = ledger_.acknowledge(ack, now_, settled_);
    FUZZ_CHECK(believed == (ack.ranges.front().last < model_.next));
    if (!believed) {
      FUZZ_CHECK(settled_.acknowledged.empty() && !settled_.has_rtt_sample);
      return;
    }
    for (const SentPacket& packet : settled_.acknowledged) {
      FUZZ_CHECK(std::ranges::any_of(ack.ranges, [&](const AckRange& range) {
        return range.first <= packet.offset && packet.offset <= range.last;
      }));
    }
    take_settled(settled_.acknowledged, model_, model_.next);
    for (const auto& [number, entry] : model_.outstanding) {
      FUZZ_CHECK(std::ranges::none_of(
          ack.ranges, [&](const AckRange& range) { return range.first <= number && number <= range.last; }));
    }
    if (settled_.has_rtt_sample) FUZZ_CHECK(settled_.rtt_sample >= 0);
    model_.largest_acknowledged = std::max(model_.largest_acknowledged, ack.ranges.front().last);
    any_acknowledged_ = true;
    detect_loss();
  }
  // Only what a later acknowledged packet has overtaken may be called lost.
  void detect_loss() {
    settled_.clear();
    ledger_.detect_loss(now_, rtt_, settled_);
    take_settled(settled_.lost, model_, any_acknowledged_ ? model_.largest_acknowledged : 0);
    FUZZ_CHECK(ledger_.loss_check_at() > now_);
  }
  void abandon() {
    settled_.clear();
    ledger_.abandon(settled_);
    take_settled(settled_.lost, model_, model_.next);
    FUZZ_CHECK(model_.outstanding.empty());
  }

  Time now_ = second;
  SentLedger ledger_;
  SentLedger::Settled settled_;
  RttEstimator rtt_{millisecond};
  NumberRanges received_{max_ack_ranges};
  Model model_;
  bool any_acknowledged_ = false;
};

constexpr int max_steps = 400;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  if (input.flag()) {
    check_bytes(input.rest());
    return 0;
  }
  LedgerRun run;
  for (int step = 0; step < max_steps && !input.empty(); ++step) run.step(input);
  return 0;
}
