// A recording of everything that went into one Endpoint and came out of it.
//
// The core is a pure function of its inputs, so the same calls in the same order give the same datagrams and reports
// again, on any machine: what happened on a real network can be replayed in the simulator, step by step.
//
// A trace begins with the settings, and they include the job key: treat a trace as a secret of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/endpoint.h"

namespace holdfast {

// Writes a trace as the calls happen. Each method belongs right beside the call of the same name into the Endpoint;
// `on_call` before it, because the call overwrites its input.
class TraceWriter {
 public:
  // Receives the trace piece by piece; a file's write, or an append to memory.
  using Sink = std::function<void(std::span<const std::uint8_t>)>;

  TraceWriter(const EndpointSettings& settings, Time constructed_at, Sink sink);

  // -- what went in: before the call into the endpoint ------------------------------------------------------------
  // Before receive(), which decrypts in place.
  void on_datagram(Time now, Duration age, std::span<const std::uint8_t> datagram);
  void on_call(Time now, const Call& call);
  void on_note(Time now, std::uint16_t peer, std::uint32_t channel, std::span<const std::uint8_t> bytes,
               Duration deadline);
  void on_release(std::uint16_t sender, std::size_t bytes);
  void on_skip(Time now, std::uint32_t operation);
  void on_publish(const Parameters& parameters);
  void on_goodbye();
  void on_timer(Time now);

  // -- what came out: after the call ------------------------------------------------------------------------------
  // After every fill(), those that answered false included: an empty fill changes nothing, but the order must hold.
  void on_fill(Time now, std::uint64_t card_queue_bytes, bool filled, const TransmitBatch& batch);
  // For every report taken, with the caller's memory as it is then.
  void on_report(const OperationReport& report, std::span<const std::uint8_t> result);

 private:
  Sink sink_;
};

namespace trace {

struct Datagram {
  Time now;
  Duration age;
  std::vector<std::uint8_t> bytes;
};
struct Called {
  Time now;
  Call call;  // `data` is null
  std::vector<std::uint8_t> input;
};
struct NoteSent {
  Time now;
  std::uint16_t peer;
  std::uint32_t channel;
  std::vector<std::uint8_t> bytes;
  Duration deadline;
};
struct NoteReleased {
  std::uint16_t sender;
  std::uint64_t bytes;
};
struct Skipped {
  Time now;
  std::uint32_t operation;
};
struct Published {
  Parameters parameters;
};
struct Goodbye {};
struct Timer {
  Time now;
};
struct Filled {
  Time now;
  std::uint64_t card_queue_bytes;
  bool filled;
  std::uint64_t digest;  // of the batch; 0 when nothing was filled
};
struct Reported {
  std::uint64_t digest;  // of the report and the result
};

using Record =
    std::variant<Datagram, Called, NoteSent, NoteReleased, Skipped, Published, Goodbye, Timer, Filled, Reported>;

std::uint64_t digest_of(const TransmitBatch& batch);
std::uint64_t digest_of(const OperationReport& report, std::span<const std::uint8_t> result);

}  // namespace trace

// Reads what a TraceWriter wrote. Throws std::runtime_error, with the byte offset, on anything else.
class TraceReader {
 public:
  explicit TraceReader(std::span<const std::uint8_t> bytes);

  const EndpointSettings& settings() const { return settings_; }
  Time constructed_at() const { return constructed_at_; }
  // The next record; nullopt at the end. A last record that was cut off by a crash counts as the end.
  std::optional<trace::Record> next();

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  EndpointSettings settings_;
  Time constructed_at_ = 0;
};

}  // namespace holdfast
