#include "core/trace.h"

#include <bit>
#include <cstring>
#include <stdexcept>

#include "core/byte_order.h"
#include "core/digest.h"

namespace holdfast {
namespace {

constexpr std::uint64_t magic = 0x484f4c4446415354ull;  // "HOLDFAST"
constexpr std::uint32_t trace_version = 12;

enum class Kind : std::uint8_t { datagram = 1, call, note, publish, goodbye, timer, fill, report, release, skip };

// Fields one after the other, big-endian.
class Encoder {
 public:
  template <class Integer>
  Encoder& put(Integer value) {
    using Unsigned = std::make_unsigned_t<Integer>;
    std::uint8_t octets[sizeof(Integer)];
    store_big_endian(octets, static_cast<Unsigned>(value));
    bytes_.insert(bytes_.end(), octets, octets + sizeof(Integer));
    return *this;
  }
  Encoder& put_flag(bool value) { return put(static_cast<std::uint8_t>(value)); }
  Encoder& put_fixed(std::span<const std::uint8_t> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Encoder& put_bytes(std::span<const std::uint8_t> bytes) { return put(std::uint32_t(bytes.size())).put_fixed(bytes); }
  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

class Decoder {
 public:
  Decoder(std::span<const std::uint8_t> bytes, std::size_t base) : bytes_(bytes), base_(base) {}

  template <class Integer>
  Integer get() {
    using Unsigned = std::make_unsigned_t<Integer>;
    return static_cast<Integer>(load_big_endian<Unsigned>(take(sizeof(Integer)).data()));
  }
  bool get_flag() { return get<std::uint8_t>() != 0; }
  template <class Enum>
  Enum get_enum(Enum last) {
    const auto value = get<std::uint8_t>();
    if (value > static_cast<std::uint8_t>(last)) fail("a value that no version has");
    return static_cast<Enum>(value);
  }
  template <class Array>
  void get_fixed(Array& out) {
    const auto from = take(out.size());
    std::memcpy(out.data(), from.data(), out.size());
  }
  std::vector<std::uint8_t> get_bytes() {
    const auto from = take(get<std::uint32_t>());
    return {from.begin(), from.end()};
  }
  [[noreturn]] void fail(const char* what) const {
    throw std::runtime_error("broken trace at byte " + std::to_string(base_ + at_) + ": " + what);
  }
  std::size_t position() const { return at_; }

 private:
  std::span<const std::uint8_t> take(std::size_t count) {
    if (bytes_.size() - at_ < count) fail("ends inside a field");
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t base_;
  std::size_t at_ = 0;
};

void write_record(const TraceWriter::Sink& sink, Kind kind, const Encoder& fields) {
  Encoder frame;
  frame.put(static_cast<std::uint8_t>(kind)).put_bytes(fields.bytes());
  sink(frame.bytes());
}

void put_settings(Encoder& out, const EndpointSettings& settings) {
  out.put(settings.rank).put(settings.num_ranks).put(settings.num_groups).put(settings.job).put(settings.epoch);
  out.put_fixed(settings.job_key).put(static_cast<std::uint8_t>(settings.protection)).put(settings.packets_per_key);
  out.put(settings.datagram_bytes).put(settings.receive_buffer_bytes).put(settings.max_operation_bytes);
  out.put(settings.early_bytes_cap).put(settings.max_open_operations).put(settings.max_note_bytes);
  out.put(static_cast<std::uint8_t>(settings.rate_rule));
  out.put(std::bit_cast<std::uint64_t>(settings.pack_below_bytes_per_second));
  out.put(settings.initial_rtt).put(settings.heartbeat_interval).put(settings.silence_limit);
  for (const PeerSettings& peer : settings.peers) out.put_fixed(peer.process).put_flag(peer.same_host);
}

EndpointSettings get_settings(Decoder& in) {
  EndpointSettings settings;
  settings.rank = in.get<std::uint16_t>();
  settings.num_ranks = in.get<std::uint16_t>();
  settings.num_groups = in.get<std::uint16_t>();
  settings.job = in.get<std::uint32_t>();
  settings.epoch = in.get<std::uint32_t>();
  in.get_fixed(settings.job_key);
  settings.protection = in.get_enum(Protection::insecure);
  settings.packets_per_key = in.get<std::uint64_t>();
  settings.datagram_bytes = in.get<std::uint32_t>();
  settings.receive_buffer_bytes = in.get<std::uint64_t>();
  settings.max_operation_bytes = in.get<std::uint64_t>();
  settings.early_bytes_cap = in.get<std::uint64_t>();
  settings.max_open_operations = in.get<std::uint32_t>();
  settings.max_note_bytes = in.get<std::uint64_t>();
  settings.rate_rule = in.get_enum(RateRule::model);
  settings.pack_below_bytes_per_second = std::bit_cast<double>(in.get<std::uint64_t>());
  settings.initial_rtt = in.get<Duration>();
  settings.heartbeat_interval = in.get<Duration>();
  settings.silence_limit = in.get<Duration>();
  if (settings.rank >= settings.num_ranks) in.fail("a rank beyond the number of ranks");
  settings.peers.resize(settings.num_ranks);
  for (PeerSettings& peer : settings.peers) {
    in.get_fixed(peer.process);
    peer.same_host = in.get_flag();
  }
  return settings;
}

void put_parameters(Encoder& out, const Parameters& parameters) {
  out.put(parameters.from_operation).put(parameters.t_b).put(parameters.t_c);
  out.put(std::bit_cast<std::uint64_t>(parameters.early_wait_ratio)).put(parameters.credit);
  out.put_flag(parameters.deterministic).put(parameters.duty_limit).put_bytes(parameters.division.weights());
  out.put(parameters.division.number()).put_flag(parameters.needs_majority).put_flag(parameters.encoded);
  out.put(parameters.repair_grace).put_flag(parameters.zero_fill);
  out.put_flag(parameters.tells_by_element);
}

Parameters get_parameters(Decoder& in) {
  Parameters parameters;
  parameters.from_operation = in.get<std::uint32_t>();
  parameters.t_b = in.get<Duration>();
  parameters.t_c = in.get<Duration>();
  parameters.early_wait_ratio = std::bit_cast<double>(in.get<std::uint64_t>());
  parameters.credit = in.get<std::uint8_t>();
  parameters.deterministic = in.get_flag();
  parameters.duty_limit = in.get<Duration>();
  const std::vector<std::uint8_t> weights = in.get_bytes();
  parameters.division = Division(weights, in.get<std::uint8_t>());
  parameters.needs_majority = in.get_flag();
  parameters.encoded = in.get_flag();
  parameters.repair_grace = in.get<Duration>();
  parameters.zero_fill = in.get_flag();
  parameters.tells_by_element = in.get_flag();
  return parameters;
}

trace::Called get_call(Decoder& in) {
  trace::Called called{in.get<Time>(), {}, {}};
  Call& call = called.call;
  call.count = in.get<std::uint32_t>();
  call.format = in.get_enum(Format::f16);
  call.layout = in.get<std::uint32_t>();
  call.delivery = in.get_enum(Delivery::exact);
  call.deadline = in.get<Duration>();
  call.average = in.get_flag();
  for (StageTiming* stage : {&call.contributions, &call.results}) {
    stage->early_wait = in.get<Duration>();
    stage->sample_us = in.get<std::uint32_t>();
  }
  call.repair_grace = in.get<Duration>();
  call.contributions_within = in.get<Duration>();
  call.narrow_behind_ratio = std::bit_cast<double>(in.get<std::uint64_t>());
  for (Duration* limit : {&call.limit.contributions, &call.limit.whole, &call.limit.results}) {
    *limit = in.get<Duration>();
  }
  called.input = in.get_bytes();
  if (called.input.size() != call.count * element_bytes(call.format)) in.fail("a call whose input has another length");
  return called;
}

trace::Record get_record(Kind kind, Decoder& in) {
  switch (kind) {
    case Kind::datagram: {
      const Time now = in.get<Time>();
      const auto age = in.get<Duration>();
      return trace::Datagram{now, age, in.get_bytes()};
    }
    case Kind::call: return get_call(in);
    case Kind::note: {
      trace::NoteSent note;
      note.now = in.get<Time>();
      note.peer = in.get<std::uint16_t>();
      note.channel = in.get<std::uint32_t>();
      note.bytes = in.get_bytes();
      note.deadline = in.get<Duration>();
      return note;
    }
    case Kind::publish: return trace::Published{get_parameters(in)};
    case Kind::goodbye: return trace::Goodbye{};
    case Kind::timer: return trace::Timer{in.get<Time>()};
    case Kind::fill: {
      const Time now = in.get<Time>();
      const auto card_queue_bytes = in.get<std::uint64_t>();
      const bool filled = in.get_flag();
      return trace::Filled{now, card_queue_bytes, filled, in.get<std::uint64_t>()};
    }
    case Kind::skip: {
      const Time now = in.get<Time>();
      return trace::Skipped{now, in.get<std::uint32_t>()};
    }
    case Kind::report: return trace::Reported{in.get<std::uint64_t>()};
    case Kind::release: {
      const auto sender = in.get<std::uint16_t>();
      return trace::NoteReleased{sender, in.get<std::uint64_t>()};
    }
  }
  in.fail("a record of an unknown kind");
}

}  // namespace

// ---------------------------------------------------------------------------------------------------- digests

std::uint64_t trace::digest_of(const TransmitBatch& batch) {
  Digest digest;
  digest.add(batch.peer);
  std::size_t part = 0;
  std::vector<std::uint8_t> datagram;
  for (const std::uint32_t num_parts : batch.parts_per_datagram) {
    datagram.clear();
    for (const std::size_t last = part + num_parts; part < last; ++part) {
      const auto* from = static_cast<const std::uint8_t*>(batch.parts[part].iov_base);
      datagram.insert(datagram.end(), from, from + batch.parts[part].iov_len);
    }
    digest.add(datagram);
  }
  return digest.value();
}

std::uint64_t trace::digest_of(const OperationReport& report, std::span<const std::uint8_t> result) {
  Digest digest;
  const auto add = [&digest](auto value) { digest.add(static_cast<std::uint64_t>(value)); };
  add(report.operation);
  add(report.status);
  add(report.delivery);
  add(report.format);
  add(report.total);
  add(report.elapsed);
  add(report.waited_for_call);
  for (const StageReport& stage : {report.contributions, report.results}) {
    add(stage.end);
    add(stage.elapsed);
  }
  add(report.delivered);
  add(report.expected);
  add(report.narrow_elements);
  add(report.late_elements);
  add(report.datagrams_expected);
  add(report.datagrams_received);
  add(report.not_received);
  add(report.ownerless);
  add(report.contributors);
  for (const ElementRange& range : report.missing) {
    add(range.begin);
    add(range.end);
  }
  for (const PeerReport& peer : report.peers) {
    add(peer.contributed);
    add(peer.narrow_contributed);
    add(peer.contributions_sample_us);
    add(peer.results_sample_us);
    add(peer.contribution_size);
    add(peer.results);
    add(peer.result_size);
    for (const ArrivalSpan& span : {peer.contribution_arrived, peer.result_arrived}) {
      add(span.first);
      add(span.last);
    }
    add(peer.alive);
    add(peer.silence);
  }
  for (const std::uint16_t culprit : report.culprits) add(culprit);
  digest.add(result);
  return digest.value();
}

// ---------------------------------------------------------------------------------------------------- writing

TraceWriter::TraceWriter(const EndpointSettings& settings, Time constructed_at, Sink sink) : sink_(std::move(sink)) {
  Encoder body;
  body.put(constructed_at);
  put_settings(body, settings);
  Encoder opening;
  opening.put(magic).put(trace_version).put_bytes(body.bytes());
  sink_(opening.bytes());
}

void TraceWriter::on_datagram(Time now, Duration age, std::span<const std::uint8_t> datagram) {
  write_record(sink_, Kind::datagram, Encoder().put(now).put(age).put_bytes(datagram));
}

void TraceWriter::on_call(Time now, const Call& call) {
  Encoder fields;
  fields.put(now).put(call.count).put(static_cast<std::uint8_t>(call.format)).put(call.layout);
  fields.put(static_cast<std::uint8_t>(call.delivery)).put(call.deadline).put_flag(call.average);
  for (const StageTiming& stage : {call.contributions, call.results}) fields.put(stage.early_wait).put(stage.sample_us);
  fields.put(call.repair_grace).put(call.contributions_within);
  fields.put(std::bit_cast<std::uint64_t>(call.narrow_behind_ratio));
  fields.put(call.limit.contributions).put(call.limit.whole).put(call.limit.results);
  fields.put_bytes({call.data, call.count * element_bytes(call.format)});
  write_record(sink_, Kind::call, fields);
}

void TraceWriter::on_note(Time now, std::uint16_t peer, std::uint32_t channel, std::span<const std::uint8_t> bytes,
                          Duration deadline) {
  write_record(sink_, Kind::note, Encoder().put(now).put(peer).put(channel).put_bytes(bytes).put(deadline));
}

void TraceWriter::on_release(std::uint16_t sender, std::size_t bytes) {
  write_record(sink_, Kind::release, Encoder().put(sender).put(std::uint64_t{bytes}));
}

void TraceWriter::on_skip(Time now, std::uint32_t operation) {
  write_record(sink_, Kind::skip, Encoder().put(now).put(operation));
}

void TraceWriter::on_publish(const Parameters& parameters) {
  Encoder fields;
  put_parameters(fields, parameters);
  write_record(sink_, Kind::publish, fields);
}

void TraceWriter::on_goodbye() { write_record(sink_, Kind::goodbye, {}); }

void TraceWriter::on_timer(Time now) { write_record(sink_, Kind::timer, Encoder().put(now)); }

void TraceWriter::on_fill(Time now, std::uint64_t card_queue_bytes, bool filled, const TransmitBatch& batch) {
  const std::uint64_t digest = filled ? trace::digest_of(batch) : 0;
  write_record(sink_, Kind::fill, Encoder().put(now).put(card_queue_bytes).put_flag(filled).put(digest));
}

void TraceWriter::on_report(const OperationReport& report, std::span<const std::uint8_t> result) {
  write_record(sink_, Kind::report, Encoder().put(trace::digest_of(report, result)));
}

// ---------------------------------------------------------------------------------------------------- reading

TraceReader::TraceReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {
  Decoder opening(bytes_, 0);
  if (opening.get<std::uint64_t>() != magic) opening.fail("not a Holdfast trace");
  if (opening.get<std::uint32_t>() != trace_version) opening.fail("another version of the trace format");
  const std::vector<std::uint8_t> body = opening.get_bytes();
  at_ = opening.position();
  Decoder in(body, at_ - body.size());
  constructed_at_ = in.get<Time>();
  settings_ = get_settings(in);
}

std::optional<trace::Record> TraceReader::next() {
  constexpr std::size_t frame_bytes = 5;
  if (bytes_.size() - at_ < frame_bytes) return std::nullopt;
  const std::uint32_t length = load_big_endian<std::uint32_t>(bytes_.data() + at_ + 1);
  if (bytes_.size() - at_ - frame_bytes < length) return std::nullopt;
  Decoder fields(bytes_.subspan(at_ + frame_bytes, length), at_ + frame_bytes);
  trace::Record record = get_record(static_cast<Kind>(bytes_[at_]), fields);
  at_ += frame_bytes + length;
  return record;
}

}  // namespace holdfast
