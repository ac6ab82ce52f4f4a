// One operation on one rank, with a fake outbox that records what it is asked to send; the peers are played by hand.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/operation.h"
#include "testing/check.h"

namespace holdfast::testing {

struct FakeOutbox final : Outbox {
  struct Message {
    std::uint16_t peer;
    std::uint32_t id;
    MessageContent content;
    std::vector<ElementRange> released;  // of a message enqueued open, in order
  };
  explicit FakeOutbox(std::uint32_t chunk_elements_in_a_datagram = 1024) : chunk(chunk_elements_in_a_datagram) {}

  std::uint32_t chunk;
  std::vector<Message> sent;
  std::vector<std::uint32_t> cancelled;
  std::vector<bool> alive = std::vector<bool>(16, true);
  std::vector<Time> last_heard = std::vector<Time>(16, -1);  // of anything but this operation
  std::vector<Time> unanswered = std::vector<Time>(16, never);
  std::vector<Time> answered_again = std::vector<Time>(16, never);
  std::vector<Duration> silences = std::vector<Duration>(16, 0);
  std::vector<bool> wanting = std::vector<bool>(16, true);  // results
  std::vector<bool> coming_back = std::vector<bool>(16, false);
  std::map<std::uint16_t, bool> parts;  // who took part, as the operation said at its end
  std::vector<std::uint8_t> credit = std::vector<std::uint8_t>(16, 0);
  std::size_t early_room = 1 << 30;

  std::uint32_t enqueue(std::uint16_t peer, MessageContent content) override {
    const auto id = static_cast<std::uint32_t>(100 + sent.size());
    sent.push_back({peer, id, std::move(content), {}});
    return id;
  }
  void release(std::uint16_t peer, std::uint32_t message, ElementRange range) override {
    open_message(peer, message).released.push_back(range);
  }
  void close(std::uint16_t peer, std::uint32_t message, const std::vector<ElementRange>& holes,
             const std::vector<Gap>& gaps, std::vector<ElementRange> without_receiver) override {
    Message& open = open_message(peer, message);
    open.content.open = false;
    open.content.holes = holes;
    open.content.gaps = gaps;
    open.content.without_receiver = std::move(without_receiver);
  }
  Message& open_message(std::uint16_t peer, std::uint32_t id) {
    const auto found =
        std::find_if(sent.begin(), sent.end(), [id](const Message& message) { return message.id == id; });
    HF_CHECK(found != sent.end() && found->peer == peer && found->content.open && !was_cancelled(id));
    return *found;
  }
  std::uint32_t chunk_elements(Format) const override { return chunk; }
  void cancel(std::uint16_t, std::uint32_t message) override { cancelled.push_back(message); }
  bool is_alive(std::uint16_t peer) const override { return alive[peer]; }
  bool is_on_this_host(std::uint16_t) const override { return false; }
  bool heard_since(std::uint16_t peer, Time then) const override { return last_heard[peer] >= then; }
  Time unanswered_since(std::uint16_t peer) const override { return unanswered[peer]; }
  Time answered_again_at(std::uint16_t peer, Duration) const override { return answered_again[peer]; }
  Duration silence_since(Time, std::uint16_t peer, Time) const override { return silences[peer]; }
  void note_part(Time, std::uint16_t peer, bool took_part, Duration) override { parts[peer] = took_part; }
  bool is_coming_back(std::uint16_t peer) const override { return coming_back[peer]; }
  bool wants_results(std::uint16_t peer, std::uint32_t) const override { return wanting[peer]; }
  bool may_hold_early(std::size_t bytes) const override { return bytes <= early_room; }
  std::uint8_t credit_of(std::uint16_t peer) const override { return credit[peer]; }

  // "c2 r1": a contribution to rank 2, then a result to rank 1.
  std::string summary() const {
    std::ostringstream text;
    for (const Message& message : sent) {
      text << (message.content.stage == Stage::contribution ? "c" : "r") << message.peer << " ";
    }
    return text.str();
  }
  std::uint32_t id_of(Stage stage, std::uint16_t peer) const {
    for (const Message& message : sent) {
      if (message.content.stage == stage && message.peer == peer) return message.id;
    }
    return 0;
  }
  const MessageContent& content_of(Stage stage, std::uint16_t peer) const {
    for (const Message& message : sent) {
      if (message.content.stage == stage && message.peer == peer) return message.content;
    }
    static const MessageContent none;
    return none;
  }
  bool was_cancelled(std::uint32_t id) const {
    return std::find(cancelled.begin(), cancelled.end(), id) != cancelled.end();
  }
};

struct Setting {
  std::uint16_t num_ranks = 3;
  std::uint32_t total = 96;
  std::uint32_t number = 0;  // with number 0 rank k is responsible for shard k
  std::uint16_t rank = 0;
  Delivery delivery = Delivery::bounded;
  bool average = true;
  std::uint32_t chunk = 1024;  // elements in a datagram
  Parameters parameters{0, 100 * millisecond, 40 * millisecond, 0.5, 0, false, 60 * second};
};

// Rank 0 (unless said otherwise) under test; the peers are played by hand. Rank k contributes k + 1 everywhere.
struct Bench {
  Setting setting;
  FakeOutbox outbox;
  BufferPool pool;
  std::vector<float> data;
  Operation operation;

  explicit Bench(const Setting& made = {}, Time now = 0)
      : setting(made),
        outbox{made.chunk},
        data(made.total, static_cast<float>(made.rank + 1)),
        operation(made.number, made.rank, made.num_ranks, identity(), made.rank, now, made.parameters, outbox, pool) {}

  Operation::Identity identity() const { return {setting.total, 7, Format::f32, setting.delivery, setting.average}; }
  Call call_with(Duration deadline = 0) {
    Call call;
    call.data = reinterpret_cast<std::uint8_t*>(data.data());
    call.count = setting.total;
    call.layout = 7;
    call.delivery = setting.delivery;
    call.average = setting.average;
    call.deadline = deadline;
    return call;
  }
  void call(Time now, Duration deadline = 0) { operation.on_call(now, call_with(deadline)); }

  ElementRange shard_of(std::uint16_t rank) const {
    return shard_range(setting.total, setting.num_ranks, responsible_shard(rank, setting.number, setting.num_ranks));
  }
  Header header(PacketType type, Stage stage, std::uint16_t sender) const {
    Header made;
    made.type = type;
    made.stage = stage;
    made.sender = sender;
    made.format = Format::f32;
    made.layout = 7;
    made.total = setting.total;
    made.operation = setting.number;
    if (setting.delivery == Delivery::exact) made.flags |= flag::exact;
    if (!setting.average) made.flags |= flag::sum;
    return made;
  }
  std::string give(Time now, const Header& packet, const std::vector<float>& values = {}) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
    const auto drop = operation.on_packet(now, packet, {bytes, values.size() * 4});
    return drop ? name(*drop) : "accepted";
  }
  // Elements `part` of a shard, all of one value.
  std::string data_packet(Time now, Stage stage, std::uint16_t sender, ElementRange part, float value,
                          std::uint8_t flags = 0, std::uint32_t missing = 0) {
    Header packet = header(PacketType::data, stage, sender);
    packet.flags |= flags;
    packet.missing = missing;
    packet.offset = (stage == Stage::contribution ? shard_of(setting.rank) : shard_of(sender)).begin + part.begin;
    return give(now, packet, std::vector<float>(part.size(), value));
  }
  std::string contribution(Time now, std::uint16_t sender, ElementRange part, std::uint8_t flags = 0) {
    return data_packet(now, Stage::contribution, sender, part, static_cast<float>(sender + 1), flags);
  }
  std::string contribution(Time now, std::uint16_t sender) {
    return contribution(now, sender, {0, shard_of(setting.rank).size()}, flag::last_percentile);
  }
  std::string result(Time now, std::uint16_t sender, ElementRange part, std::uint8_t flags = 0,
                     std::uint32_t missing = 0) {
    return data_packet(now, Stage::result, sender, part, 2.0f, flags, missing);
  }
  std::string result(Time now, std::uint16_t sender) {
    return result(now, sender, {0, shard_of(sender).size()}, flag::last_percentile | flag::closed);
  }
  std::string end(Time now, Stage stage, std::uint16_t sender) {
    Header packet = header(PacketType::end, stage, sender);
    packet.flags |= flag::last_percentile;
    return give(now, packet);
  }
  void all_sent() {
    for (const auto& message : std::vector(outbox.sent)) operation.on_message_sent(message.peer, message.id);
  }
  void all_finished() {
    for (const auto& message : std::vector(outbox.sent)) operation.on_message_finished(message.peer, message.id);
  }
  bool all_equal(ElementRange range, float value) const {
    return std::all_of(data.begin() + range.begin, data.begin() + range.end, [=](float x) { return x == value; });
  }
  const OperationReport& report() const { return operation.report(); }
};

inline std::string text(const std::vector<ElementRange>& ranges) {
  std::ostringstream out;
  for (const ElementRange& range : ranges) out << range.begin << "-" << range.end << " ";
  return out.str();
}

inline std::string text(const std::vector<std::uint16_t>& ranks) {
  std::ostringstream out;
  for (const std::uint16_t rank : ranks) out << rank << " ";
  return out.str();
}

inline const char* text(StageEnd end) {
  switch (end) {
    case StageEnd::open: return "open";
    case StageEnd::complete: return "complete";
    case StageEnd::early: return "early";
    case StageEnd::limit: return "limit";
    case StageEnd::bound: return "bound";
  }
  return "?";
}

inline const char* text(Status status) {
  switch (status) {
    case Status::done: return "done";
    case Status::deadline_exceeded: return "deadline_exceeded";
    case Status::peer_dead: return "peer_dead";
    case Status::mismatch: return "mismatch";
  }
  return "?";
}

inline Setting exact_setting() {
  Setting setting;
  setting.delivery = Delivery::exact;
  return setting;
}

}  // namespace holdfast::testing
