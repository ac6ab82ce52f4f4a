// Traces: any bytes as one are read or refused with an error; what is read is written again and reads the same; one
// that was cut off anywhere gives a beginning of itself, and one with a damaged byte is a trace or an error.
#include "core/trace.h"

#include <algorithm>
#include <stdexcept>
#include <variant>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/input.h"

using namespace holdfast;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr int max_records = 40;

// Writes a record again. What a batch or a report was is only kept as a digest, so those have no second spelling.
struct Rewriter {
  TraceWriter& writer;
  void operator()(const trace::Datagram& record) { writer.on_datagram(record.now, record.age, record.bytes); }
  void operator()(trace::Called& record) {
    record.call.data = record.input.data();
    writer.on_call(record.now, record.call);
  }
  void operator()(const trace::NoteSent& record) {
    writer.on_note(record.now, record.peer, record.channel, record.bytes, record.deadline);
  }
  void operator()(const trace::NoteReleased& record) { writer.on_release(record.sender, record.bytes); }
  void operator()(const trace::Skipped& record) { writer.on_skip(record.now, record.operation); }
  void operator()(const trace::Published& record) { writer.on_publish(record.parameters); }
  void operator()(const trace::Goodbye&) { writer.on_goodbye(); }
  void operator()(const trace::Timer& record) { writer.on_timer(record.now); }
  void operator()(const trace::Filled&) {}
  void operator()(const trace::Reported&) {}
};

Bytes rewritten(std::span<const std::uint8_t> bytes) {
  TraceReader reader(bytes);
  Bytes again;
  TraceWriter writer(reader.settings(), reader.constructed_at(), [&](std::span<const std::uint8_t> piece) {
    again.insert(again.end(), piece.begin(), piece.end());
  });
  while (auto record = reader.next()) std::visit(Rewriter{writer}, *record);
  return again;
}

void check_bytes(std::span<const std::uint8_t> bytes) {
  Bytes again;
  try {
    again = rewritten(bytes);
  } catch (const std::runtime_error&) {
    return;
  }
  FUZZ_CHECK(rewritten(again) == again);
}

Bytes written(fuzz::Input& input, std::vector<std::size_t>& record_ends) {
  EndpointSettings settings;
  settings.num_ranks = static_cast<std::uint16_t>(input.between(1, 5));
  settings.rank = static_cast<std::uint16_t>(input.below(settings.num_ranks));
  settings.peers.resize(settings.num_ranks);
  settings.peers.back().same_host = input.flag();
  settings.early_bytes_cap = input.take<std::uint64_t>();
  settings.silence_limit = input.take<Duration>();
  Bytes bytes;
  TraceWriter writer(settings, input.take<Time>(), [&](std::span<const std::uint8_t> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    record_ends.push_back(bytes.size());
  });
  TransmitBatch batch;
  for (int i = 0; i < max_records && !input.empty(); ++i) {
    const auto now = input.take<Time>();
    switch (input.below(10)) {
      case 0: writer.on_datagram(now, input.below(1000), input.bytes(input.below(100))); break;
      case 1: {
        Call call;
        call.format = static_cast<Format>(input.between(1, 4));
        call.delivery = static_cast<Delivery>(input.below(2));
        call.average = input.flag();
        call.layout = input.take<std::uint32_t>();
        Bytes elements(input.below(20) * element_bytes(call.format), 7);
        call.data = elements.data();
        call.count = static_cast<std::uint32_t>(elements.size() / element_bytes(call.format));
        writer.on_call(now, call);
        break;
      }
      case 2: writer.on_note(now, input.take<std::uint16_t>(), 3, input.bytes(input.below(50)), now); break;
      case 3: {
        Parameters parameters;
        parameters.from_operation = input.take<std::uint32_t>();
        parameters.credit = input.take<std::uint8_t>();
        parameters.early_wait_ratio = input.below(256) / 256.0;
        writer.on_publish(parameters);
        break;
      }
      case 4: writer.on_goodbye(); break;
      case 5: writer.on_timer(now); break;
      case 6: writer.on_release(input.take<std::uint16_t>(), input.take<std::uint16_t>()); break;
      case 7: {
        const std::uint64_t card_queue_bytes = input.flag() ? 40'000 : 0;
        writer.on_fill(now, card_queue_bytes, input.flag(), batch);
        break;
      }
      case 8: writer.on_skip(now, input.take<std::uint32_t>()); break;
      default: writer.on_report({}, input.bytes(8)); break;
    }
  }
  return bytes;
}

void check_cut(std::span<const std::uint8_t> bytes, const std::vector<std::size_t>& record_ends, std::size_t cut) {
  if (cut < record_ends.front()) return;  // not even its settings
  TraceReader reader(bytes.first(cut));
  std::size_t whole = 0;
  while (reader.next()) ++whole;
  const auto ends = std::ranges::count_if(record_ends, [cut](std::size_t end) { return end <= cut; });
  FUZZ_CHECK(whole + 1 == static_cast<std::size_t>(ends));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  if (input.flag()) {
    check_bytes(input.rest());
    return 0;
  }
  const std::uint32_t cut = input.take<std::uint16_t>();
  const std::uint32_t damaged_at = input.take<std::uint16_t>();
  const auto damage = input.take<std::uint8_t>();
  std::vector<std::size_t> record_ends;
  Bytes bytes = written(input, record_ends);
  check_cut(bytes, record_ends, bytes.size());
  check_cut(bytes, record_ends, cut % (bytes.size() + 1));
  check_bytes(bytes);
  bytes[damaged_at % bytes.size()] ^= damage;
  check_bytes(bytes);
  return 0;
}
