// One all-reduce on one rank, packet by packet, with a fake outbox that records what it is asked to send.
#include <algorithm>
#include <string>

#include "core/operation.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

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
             const std::vector<Gap>& gaps) override {
    Message& open = open_message(peer, message);
    open.content.open = false;
    open.content.holes = holes;
    open.content.gaps = gaps;
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

std::string text(const std::vector<ElementRange>& ranges) {
  std::ostringstream out;
  for (const ElementRange& range : ranges) out << range.begin << "-" << range.end << " ";
  return out.str();
}

std::string text(const std::vector<std::uint16_t>& ranks) {
  std::ostringstream out;
  for (const std::uint16_t rank : ranks) out << rank << " ";
  return out.str();
}

const char* text(StageEnd end) {
  switch (end) {
    case StageEnd::open: return "open";
    case StageEnd::complete: return "complete";
    case StageEnd::early: return "early";
    case StageEnd::bound: return "bound";
  }
  return "?";
}

const char* text(Status status) {
  switch (status) {
    case Status::done: return "done";
    case Status::deadline_exceeded: return "deadline_exceeded";
    case Status::peer_dead: return "peer_dead";
    case Status::mismatch: return "mismatch";
  }
  return "?";
}

Setting exact_setting() {
  Setting setting;
  setting.delivery = Delivery::exact;
  return setting;
}

}  // namespace

// -- the way it usually goes ------------------------------------------------------------------------------------------

HF_CASE(complete_from_call_to_report) {
  for (const Delivery delivery : {Delivery::bounded, Delivery::exact}) {
    Setting setting;
    setting.delivery = delivery;
    Bench bench(setting, 10 * millisecond);
    bench.call(10 * millisecond);
    HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
    const MessageContent& to_two = bench.outbox.content_of(Stage::contribution, 2);
    HF_CHECK((to_two.range == ElementRange{64, 96}));
    HF_EQUAL(to_two.data - reinterpret_cast<std::uint8_t*>(bench.data.data()), 64 * 4);
    HF_CHECK(to_two.delivery == delivery && to_two.total == 96 && to_two.layout == 7 && to_two.operation == 0);

    HF_EQUAL(bench.contribution(11 * millisecond, 1), "accepted");
    HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
    HF_EQUAL(bench.contribution(12 * millisecond, 2), "accepted");
    HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
    const MessageContent& result = bench.outbox.content_of(Stage::result, 1);
    HF_CHECK((result.range == ElementRange{0, 32}));
    HF_EQUAL(reinterpret_cast<const float*>(result.data)[31], 2.0f);  // (1 + 2 + 3) / 3
    HF_EQUAL(result.completion_us, 0u);                               // the caller gave no sample
    HF_CHECK(bench.all_equal({0, 32}, 2.0f));

    HF_CHECK(!bench.operation.ended());
    HF_EQUAL(bench.result(13 * millisecond, 1), "accepted");
    HF_EQUAL(bench.result(15 * millisecond, 2), "accepted");
    HF_CHECK(bench.operation.ended());
    HF_CHECK(bench.all_equal({0, 96}, 2.0f));
    HF_EQUAL(text(bench.report().status), "done");
    HF_EQUAL(text(bench.report().contributions.end), "complete");
    HF_EQUAL(bench.report().contributions.elapsed, 2 * millisecond);
    HF_EQUAL(text(bench.report().results.end), "complete");
    HF_EQUAL(bench.report().results.elapsed, 3 * millisecond);
    HF_EQUAL(bench.report().elapsed, 5 * millisecond);
    HF_EQUAL(bench.report().delivered, 288u);
    HF_EQUAL(bench.report().expected, 288u);
    HF_EQUAL(text(bench.report().missing), "");
    HF_EQUAL(bench.report().peers[2].contributed, 32u);
    HF_EQUAL(bench.report().peers[2].results, 32u);
    HF_EQUAL(bench.report().peers[2].contribution_arrived.first, 2 * millisecond);
    HF_EQUAL(bench.report().peers[2].contribution_arrived.last, 2 * millisecond);
    HF_EQUAL(bench.report().peers[2].result_arrived.last, 5 * millisecond);

    HF_CHECK(!bench.operation.retired());  // the results are still on their way
    bench.all_finished();
    HF_CHECK(bench.operation.retired());
    HF_EQUAL(bench.operation.next_timer(), never);
  }
}

HF_CASE(arrivals_are_told_from_the_first_to_the_last) {
  Bench bench;
  bench.call(0);
  bench.contribution(3 * millisecond, 1, {0, 16});
  bench.contribution(8 * millisecond, 1, {16, 32});
  bench.contribution(9 * millisecond, 1, {16, 32});     // nothing new
  bench.end(10 * millisecond, Stage::contribution, 1);  // nothing at all
  bench.operation.on_timer(200 * millisecond);
  bench.operation.on_timer(400 * millisecond);
  HF_EQUAL(bench.report().peers[1].contribution_arrived.first, 3 * millisecond);
  HF_EQUAL(bench.report().peers[1].contribution_arrived.last, 8 * millisecond);
  HF_EQUAL(bench.report().peers[1].result_arrived.first, -1);
}

// -- uneven shards ----------------------------------------------------------------------------------------------------

HF_CASE(shards_follow_the_published_division) {
  Setting setting;
  setting.parameters.division = Division({64, 64, 16});
  setting.total = 144;
  Bench bench(setting);
  bench.call(0);
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 1).range == ElementRange{64, 128}));
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 2).range == ElementRange{128, 144}));
  HF_EQUAL(bench.contribution(1, 1, {0, 64}), "accepted");
  HF_EQUAL(bench.contribution(1, 2, {0, 64}), "accepted");
  HF_CHECK((bench.outbox.content_of(Stage::result, 1).range == ElementRange{0, 64}));
}

HF_CASE(an_exact_operation_is_divided_evenly) {
  Setting setting = exact_setting();
  setting.parameters.division = Division({64, 64, 16});
  Bench bench(setting);
  bench.call(0);
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 2).range == ElementRange{64, 96}));
}

HF_CASE(of_a_peer_that_divides_otherwise_only_what_is_in_its_place_is_taken) {
  Setting setting;
  setting.parameters.division = Division({64, 16, 64});
  setting.total = 144;  // here 0-64, 64-80, 80-144; the peers say 0-48, 48-96, 96-144
  Bench bench(setting);
  bench.call(0);
  const auto give_at = [&](Stage stage, std::uint16_t sender, ElementRange range, float value) {
    Header packet = bench.header(PacketType::data, stage, sender);
    packet.offset = range.begin;
    return bench.give(1, packet, std::vector<float>(range.size(), value));
  };
  HF_EQUAL(give_at(Stage::contribution, 1, {0, 48}, 2.0f), "accepted");
  HF_EQUAL(give_at(Stage::contribution, 2, {0, 48}, 3.0f), "accepted");
  HF_EQUAL(give_at(Stage::result, 1, {48, 96}, 7.0f), "misplaced");
  HF_EQUAL(give_at(Stage::result, 2, {96, 144}, 2.0f), "accepted");
  bench.operation.on_timer(100 * millisecond);
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.all_equal({0, 48}, 2.0f));
  HF_CHECK(bench.all_equal({96, 144}, 2.0f));
  HF_EQUAL(text(bench.report().missing), "48-64 64-80 80-96 ");
  HF_CHECK(bench.all_equal({48, 96}, 0.0f));
}

HF_CASE(a_sum_is_not_divided) {
  Setting setting;
  setting.average = false;
  Bench bench(setting);
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  HF_CHECK(bench.all_equal({0, 32}, 6.0f));
}

HF_CASE(one_rank_alone_ends_in_its_call) {
  Setting setting;
  setting.num_ranks = 1;
  for (const std::uint32_t total : {0u, 1u, 96u}) {
    setting.total = total;
    Bench bench(setting);
    bench.call(5);
    HF_CHECK(bench.operation.ended() && bench.operation.retired());
    HF_CHECK(bench.all_equal({0, total}, 1.0f));
    HF_EQUAL(bench.report().delivered, std::uint64_t{total});
    HF_EQUAL(bench.outbox.summary(), "");
  }
}

HF_CASE(fewer_elements_than_ranks) {
  Setting setting;
  setting.num_ranks = 4;
  setting.total = 2;  // ranks 0 and 1 have one element each, 2 and 3 none
  Bench owner(setting);
  owner.call(0);
  HF_EQUAL(owner.outbox.summary(), "c1 ");
  owner.contribution(1, 1);
  owner.contribution(1, 2);
  owner.contribution(1, 3);
  HF_EQUAL(owner.outbox.summary(), "c1 r3 r2 r1 ");
  HF_EQUAL(owner.result(2, 1), "accepted");
  HF_CHECK(owner.operation.ended());
  HF_EQUAL(text(owner.report().missing), "");
  setting.rank = 3;
  Bench idle(setting);
  idle.call(0);
  HF_EQUAL(idle.outbox.summary(), "c1 c0 ");
  HF_CHECK(!idle.operation.ended());
  idle.result(1, 0);
  idle.result(1, 1);
  HF_CHECK(idle.operation.ended());
  HF_EQUAL(idle.report().delivered, 8u);
  HF_EQUAL(idle.outbox.summary(), "c1 c0 ");
}

HF_CASE(no_elements_at_all_end_in_the_call) {
  Setting setting;
  setting.total = 0;
  Bench bench(setting);
  bench.call(0);
  HF_CHECK(bench.operation.ended() && bench.operation.retired());
  HF_EQUAL(bench.outbox.summary(), "");
}

HF_CASE(responsibility_follows_the_number) {
  Setting setting;
  setting.number = 4;  // 4 % 3: rank 0 has shard 1, rank 1 shard 2, rank 2 shard 0
  Bench bench(setting);
  bench.call(0);
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 1).range == ElementRange{64, 96}));
  HF_CHECK((bench.outbox.content_of(Stage::contribution, 2).range == ElementRange{0, 32}));
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  HF_CHECK((bench.outbox.content_of(Stage::result, 1).range == ElementRange{32, 64}));
}

// -- how a stage ends -------------------------------------------------------------------------------------------------

HF_CASE(early_when_every_sender_showed_its_last_percentile_and_silence_follows) {
  Bench bench;  // t_c 40 ms, x 0.5: 20 ms of silence
  bench.call(0);
  bench.contribution(10 * millisecond, 1);
  HF_EQUAL(bench.operation.next_timer(), 100 * millisecond);  // nothing of rank 2's last percentile yet
  bench.contribution(11 * millisecond, 2, {0, 16}, flag::last_percentile);
  HF_EQUAL(bench.operation.next_timer(), 31 * millisecond);
  bench.operation.on_timer(31 * millisecond - 1);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
  bench.operation.on_timer(31 * millisecond);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
  HF_CHECK(bench.all_equal({0, 16}, 2.0f));
  HF_CHECK(bench.all_equal({16, 32}, 1.0f / 3 + 2.0f / 3 * 2));  // own/N + (N-1)/N x rank 1's
  const MessageContent& result = bench.outbox.content_of(Stage::result, 2);
  HF_EQUAL(result.gaps.size(), 1u);
  HF_CHECK((result.gaps[0].range == ElementRange{16, 32}));
  HF_EQUAL(result.gaps[0].missing_per_element, 1u);

  bench.result(32 * millisecond, 1);
  bench.result(33 * millisecond, 2, {16, 32}, flag::last_percentile, 16);
  HF_EQUAL(bench.operation.next_timer(), 53 * millisecond);
  bench.operation.on_timer(53 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().contributions.end), "early");
  HF_EQUAL(text(bench.report().results.end), "early");
  HF_EQUAL(text(bench.report().missing), "64-80 ");
  HF_CHECK(bench.all_equal({64, 80}, 0.0f));  // zero, never the own gradient
  HF_EQUAL(bench.report().delivered, 3u * 32 - 16 + 3 * 32 + 3 * 16 - 16);
}

HF_CASE(an_end_counts_as_last_percentile_and_new_data_restarts_the_silence) {
  Bench bench;
  bench.call(0);
  bench.contribution(1 * millisecond, 1, {0, 16});
  bench.contribution(2 * millisecond, 2, {0, 16});
  bench.end(2100 * microsecond, Stage::contribution, 1);
  HF_EQUAL(bench.operation.next_timer(), 100 * millisecond);
  bench.end(2200 * microsecond, Stage::contribution, 2);
  HF_EQUAL(bench.operation.next_timer(), 7 * millisecond);  // since the last data, and both have sent everything
  bench.contribution(2400 * microsecond, 1, {16, 32});
  HF_EQUAL(bench.operation.next_timer(), 7400 * microsecond);
}

HF_CASE(at_the_bound_with_whatever_arrived) {
  Bench bench;
  bench.call(5 * millisecond);
  bench.contribution(6 * millisecond, 1, {0, 16});
  bench.operation.on_timer(100 * millisecond - 1);  // opened at 0
  HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
  bench.operation.on_timer(100 * millisecond);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
  const MessageContent& result = bench.outbox.content_of(Stage::result, 1);
  HF_EQUAL(text(result.holes), "16-32 ");
  HF_EQUAL(bench.operation.next_timer(), 200 * millisecond);
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().status), "done");
  HF_EQUAL(text(bench.report().contributions.end), "bound");
  HF_EQUAL(text(bench.report().results.end), "bound");
  HF_EQUAL(text(bench.report().missing), "16-32 32-64 64-96 ");
  HF_CHECK(bench.all_equal({16, 96}, 0.0f));
  HF_EQUAL(bench.report().delivered, 2u * 16);
  HF_EQUAL(bench.report().peers[2].contribution_arrived.first, -1);
  HF_EQUAL(bench.report().peers[2].result_arrived.first, -1);
}

HF_CASE(a_deadline_is_two_stage_bounds) {
  Bench bench;
  bench.call(0, 60 * millisecond);
  HF_EQUAL(bench.operation.next_timer(), 30 * millisecond);
  bench.operation.on_timer(30 * millisecond);
  HF_EQUAL(bench.operation.next_timer(), 60 * millisecond);
  bench.operation.on_timer(60 * millisecond);
  HF_CHECK(bench.operation.ended());
}

HF_CASE(a_late_wake_up_does_not_extend_the_deadline) {
  Bench bench;
  bench.call(0, 60 * millisecond);
  bench.operation.on_timer(55 * millisecond);  // this process did not run
  HF_EQUAL(bench.operation.next_timer(), 60 * millisecond);
  bench.operation.on_timer(60 * millisecond);
  HF_CHECK(bench.operation.ended());
}

HF_CASE(a_timer_that_is_due_is_always_consumed) {
  // Whatever happened before: calling on_timer at next_timer moves it on, or the reactor would spin.
  for (const Delivery delivery : {Delivery::bounded, Delivery::exact}) {
    for (const bool called : {true, false}) {
      for (const bool with_packets : {true, false}) {
        Setting setting;
        setting.delivery = delivery;
        Bench bench(setting);
        if (with_packets) bench.contribution(1, 1, {0, 16}, flag::last_percentile);
        if (called) bench.call(2);
        if (with_packets) bench.result(3, 2, {0, 16}, flag::last_percentile);
        for (int i = 0; i < 20 && bench.operation.next_timer() != never; ++i) {
          const Time due = bench.operation.next_timer();
          bench.operation.on_timer(due);
          HF_CHECK(bench.operation.next_timer() > due);
        }
        HF_EQUAL(bench.operation.next_timer(), never);
        HF_CHECK(bench.operation.retired());
      }
    }
  }
}

HF_CASE(exact_waits_for_everything_and_fails_at_its_deadline_by_name) {
  Bench bench(exact_setting());
  bench.call(0, 60 * millisecond);
  bench.contribution(1, 1);
  bench.contribution(2, 2, {0, 16}, flag::last_percentile);
  bench.end(3, Stage::contribution, 2);
  HF_EQUAL(bench.operation.next_timer(), 60 * millisecond);
  bench.operation.on_timer(60 * millisecond - 1);
  HF_CHECK(!bench.operation.ended());
  bench.operation.on_timer(60 * millisecond);
  HF_EQUAL(text(bench.report().status), "deadline_exceeded");
  HF_EQUAL(text(bench.report().culprits), "2 ");
  HF_EQUAL(text(bench.report().missing), "0-32 32-64 64-96 ");
  HF_CHECK(bench.all_equal({0, 96}, 0.0f));
  HF_CHECK(bench.operation.retired());
}

HF_CASE(exact_blames_whose_result_is_missing_once_all_contributed) {
  Bench bench(exact_setting());
  bench.call(0, 60 * millisecond);
  bench.contribution(1, 1);
  bench.contribution(2, 2);
  bench.result(3, 2);
  bench.operation.on_timer(60 * millisecond);
  HF_EQUAL(text(bench.report().culprits), "1 ");
  HF_EQUAL(text(bench.report().missing), "32-64 ");
}

// -- late, early, never -----------------------------------------------------------------------------------------------

HF_CASE(never_called_the_duty_is_served_at_the_bound) {
  Bench bench;
  bench.contribution(1 * millisecond, 1);
  bench.contribution(2 * millisecond, 2);
  HF_EQUAL(bench.outbox.summary(), "");
  bench.operation.on_timer(100 * millisecond);
  HF_EQUAL(bench.outbox.summary(), "r2 r1 ");
  HF_EQUAL(reinterpret_cast<const float*>(bench.outbox.content_of(Stage::result, 1).data)[0], 2.5f);  // (2 + 3) / 2
  HF_EQUAL(bench.outbox.content_of(Stage::result, 1).gaps[0].missing_per_element, 1u);
  HF_CHECK(!bench.operation.ended());
  bench.all_sent();
  bench.all_finished();
  HF_EQUAL(bench.operation.next_timer(), 60 * second + 2 * millisecond);
  bench.operation.on_timer(60 * second + 2 * millisecond);
  HF_CHECK(bench.operation.retired());
  HF_CHECK(!bench.operation.ended());
  HF_EQUAL(bench.operation.next_timer(), never);
}

HF_CASE(a_late_call_finds_its_results_waiting) {
  Bench bench;
  bench.contribution(1 * millisecond, 1);
  bench.contribution(2 * millisecond, 2);
  bench.operation.on_timer(100 * millisecond);
  bench.result(101 * millisecond, 1);
  bench.result(102 * millisecond, 2);
  bench.call(500 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.all_equal({0, 32}, 2.5f));
  HF_CHECK(bench.all_equal({32, 96}, 2.0f));
  HF_EQUAL(bench.outbox.summary(), "r2 r1 ");  // its own contribution would come too late for anybody
  HF_EQUAL(bench.report().waited_for_call, 500 * millisecond);
  HF_EQUAL(bench.report().elapsed, 0);
  HF_EQUAL(bench.report().delivered, 3u * 96 - 32);
}

HF_CASE(a_late_call_still_contributes_where_no_result_was_seen) {
  Bench bench;
  bench.contribution(1 * millisecond, 1);
  bench.result(50 * millisecond, 1, {0, 16}, flag::closed);
  bench.call(90 * millisecond);
  HF_EQUAL(bench.outbox.summary(), "c2 ");
  HF_CHECK(bench.all_equal({32, 48}, 2.0f));
  HF_CHECK(bench.all_equal({48, 64}, 1.0f));  // not here yet
  HF_EQUAL(bench.contribution(91 * millisecond, 2), "accepted");
  HF_CHECK(bench.all_equal({0, 32}, 2.0f));
}

HF_CASE(early_packets_need_room) {
  Bench bench;
  bench.outbox.early_room = 127;
  HF_EQUAL(bench.contribution(1, 1), "early_over_cap");
  HF_EQUAL(bench.result(1, 1), "early_over_cap");
  const std::size_t idle = bench.operation.early_bytes();
  bench.outbox.early_room = 128;  // the accumulator of 32 floats
  HF_EQUAL(bench.contribution(2, 1), "accepted");
  HF_EQUAL(bench.operation.early_bytes(), idle + 128);
  HF_EQUAL(bench.contribution(3, 2), "accepted");
  HF_EQUAL(bench.operation.early_bytes(), idle + 128);
  HF_EQUAL(bench.result(4, 1), "early_over_cap");
  bench.outbox.early_room = 384;  // the bucket
  HF_EQUAL(bench.result(5, 1), "accepted");
  HF_EQUAL(bench.operation.early_bytes(), idle + 128 + 384);
  bench.call(6);
  HF_EQUAL(bench.operation.early_bytes(), 0u);
  HF_CHECK(bench.all_equal({32, 64}, 2.0f));
}

HF_CASE(an_operation_costs_its_bitmaps_before_any_element) {
  const Operation::Identity large{1u << 30, 0, Format::f32, Delivery::bounded, true};
  HF_CHECK(Operation::bookkeeping_bytes(large, 4) >= 2 * (std::size_t{1} << 30) / 128);
  HF_CHECK(Operation::bookkeeping_bytes(large, 4) < (std::size_t{1} << 30) / 32);
}

HF_CASE(late_packets_are_dropped_and_repeated_ends_are_not_late) {
  Bench bench;
  bench.call(0);
  bench.operation.on_timer(100 * millisecond);
  HF_EQUAL(bench.contribution(101 * millisecond, 1), "late");
  HF_EQUAL(bench.end(101 * millisecond, Stage::contribution, 1), "accepted");
  HF_EQUAL(bench.result(101 * millisecond, 1), "accepted");
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(bench.result(201 * millisecond, 2), "late");
  HF_EQUAL(bench.end(201 * millisecond, Stage::result, 2), "accepted");
  HF_CHECK(bench.all_equal({64, 96}, 0.0f));
}

HF_CASE(duplicates_are_dropped_and_counted_once) {
  Bench bench;
  bench.call(0);
  HF_EQUAL(bench.contribution(1, 1, {0, 16}), "accepted");
  HF_EQUAL(bench.contribution(2, 1, {0, 16}), "duplicate");
  HF_EQUAL(bench.contribution(3, 1), "accepted");
  HF_EQUAL(bench.contribution(4, 2), "accepted");
  HF_CHECK(bench.all_equal({0, 32}, 2.0f));
  HF_EQUAL(bench.result(5, 1, {0, 16}), "accepted");
  HF_EQUAL(bench.result(6, 1, {0, 16}), "duplicate");
  HF_EQUAL(bench.result(7, 1), "accepted");
  HF_EQUAL(bench.result(8, 2), "accepted");
  HF_EQUAL(bench.report().delivered, 288u);
}

// -- holes and gaps from elsewhere ------------------------------------------------------------------------------------

HF_CASE(a_hole_is_lost_at_once_and_not_waited_for) {
  Bench bench;
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  Header hole = bench.header(PacketType::hole, Stage::result, 1);
  hole.offset = 48;
  hole.missing = 16;
  HF_EQUAL(bench.give(2, hole), "accepted");
  HF_EQUAL(bench.give(3, hole), "duplicate");
  HF_EQUAL(bench.result(4, 1, {0, 16}, 0, 16), "accepted");
  HF_EQUAL(bench.result(5, 2), "accepted");
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().results.end), "complete");
  HF_EQUAL(text(bench.report().missing), "48-64 ");
  HF_CHECK(bench.all_equal({48, 64}, 0.0f));
  HF_EQUAL(bench.report().delivered, 96u + 3 * 16 - 16 + 96);
  HF_EQUAL(bench.report().peers[1].results, 16u);
}

HF_CASE(a_result_cannot_claim_to_lack_more_than_there_is) {
  Bench bench;
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  HF_EQUAL(bench.result(2, 1, {0, 32}, 0, UINT32_MAX), "malformed");
  HF_EQUAL(bench.result(2, 1, {0, 32}, 0, 65), "malformed");
  HF_EQUAL(bench.result(2, 1, {0, 32}, 0, 64), "accepted");  // one of three contributed
  HF_EQUAL(bench.result(3, 2), "accepted");
  HF_EQUAL(bench.report().delivered, 288u - 64);
  HF_CHECK(bench.report().delivered <= bench.report().expected);
}

HF_CASE(elements_outside_the_senders_part_are_misplaced) {
  Setting setting;
  setting.rank = 1;
  Bench bench(setting);
  bench.call(0);
  Header packet = bench.header(PacketType::data, Stage::contribution, 0);
  const std::vector<float> block(16, 1.0f);
  const auto contribution_at = [&](std::uint32_t offset) {
    packet.stage = Stage::contribution;
    packet.offset = offset;
    return bench.give(1, packet, block);
  };
  const auto result_at = [&](std::uint32_t offset) {
    packet.stage = Stage::result;
    packet.offset = offset;
    return bench.give(1, packet, block);
  };
  HF_EQUAL(contribution_at(16), "misplaced");  // below the own shard 32-64
  HF_EQUAL(contribution_at(31), "misplaced");
  HF_EQUAL(contribution_at(33), "misplaced");  // off the grid
  HF_EQUAL(contribution_at(56), "misplaced");
  HF_EQUAL(contribution_at(64), "misplaced");
  HF_EQUAL(contribution_at(48), "accepted");
  HF_EQUAL(result_at(32), "misplaced");  // rank 0 is responsible for 0-32
  HF_EQUAL(result_at(80), "misplaced");
  HF_EQUAL(result_at(8), "misplaced");
  HF_EQUAL(result_at(16), "accepted");
  Header hole = bench.header(PacketType::hole, Stage::result, 0);
  hole.offset = 0;
  hole.missing = 48;
  HF_EQUAL(bench.give(1, hole), "misplaced");
  HF_CHECK(bench.all_equal({0, 16}, 2.0f));
  HF_CHECK(bench.all_equal({32, 96}, 2.0f));
}

// -- one buffer for gradient and result -------------------------------------------------------------------------------

HF_CASE(the_result_of_a_closed_sum_stops_the_contribution_it_is_written_over) {
  Bench bench;
  bench.call(0);
  const std::uint32_t to_one = bench.outbox.id_of(Stage::contribution, 1);
  const std::uint32_t to_two = bench.outbox.id_of(Stage::contribution, 2);
  HF_EQUAL(bench.result(1, 1, {0, 16}), "accepted");  // of a sum still open: the rest is still wanted there
  HF_CHECK(!bench.outbox.was_cancelled(to_one));
  HF_EQUAL(bench.result(2, 1, {16, 32}, flag::closed), "accepted");
  HF_CHECK(bench.outbox.was_cancelled(to_one));
  HF_CHECK(!bench.outbox.was_cancelled(to_two));
}

HF_CASE(when_the_operation_ends_nothing_of_the_callers_memory_is_still_to_be_sent) {
  Bench bench;
  bench.call(0);
  bench.operation.on_timer(100 * millisecond);
  bench.operation.on_timer(200 * millisecond);
  HF_CHECK(bench.operation.ended());
  HF_CHECK(bench.outbox.was_cancelled(bench.outbox.id_of(Stage::contribution, 1)));
  HF_CHECK(bench.outbox.was_cancelled(bench.outbox.id_of(Stage::contribution, 2)));
  // Results live in their own memory and go on.
  for (const auto& message : bench.outbox.sent) {
    if (message.content.stage != Stage::result) continue;
    HF_CHECK(!bench.outbox.was_cancelled(message.id));
    HF_CHECK(message.content.owner != nullptr);
  }
}

HF_CASE(results_nobody_acknowledges_are_let_go_after_two_more_stages) {
  Bench bench;
  bench.call(0);
  bench.contribution(millisecond, 1);
  bench.contribution(millisecond, 2);
  bench.result(2 * millisecond, 1);
  bench.result(2 * millisecond, 2);
  HF_CHECK(bench.operation.ended() && !bench.operation.retired());
  bench.operation.on_message_finished(1, bench.outbox.id_of(Stage::result, 1));
  HF_EQUAL(bench.operation.next_timer(), 201 * millisecond);
  bench.operation.on_timer(201 * millisecond - 1);
  HF_CHECK(!bench.operation.retired());
  bench.operation.on_timer(201 * millisecond);
  HF_CHECK(bench.operation.retired());
  HF_CHECK(bench.outbox.was_cancelled(bench.outbox.id_of(Stage::result, 2)));
}

// -- credit and turns -------------------------------------------------------------------------------------------------

HF_CASE(a_credit_of_two_takes_four_rounds_for_nine_ranks) {
  Setting setting;
  setting.num_ranks = 9;
  setting.total = 9 * 16;
  Bench bench(setting);
  bench.outbox.credit[5] = 2;
  bench.outbox.credit[7] = 3;
  bench.call(0);
  HF_EQUAL(bench.outbox.summary(), "c8 c7 ");
  int rounds = 1;
  for (std::size_t sent = 0; bench.outbox.sent.size() < 8; ++rounds) {
    for (const std::size_t all = bench.outbox.sent.size(); sent < all; ++sent) {
      const auto message = bench.outbox.sent[sent];
      bench.operation.on_message_sent(message.peer, message.id);
      bench.operation.on_message_sent(message.peer, message.id);  // told twice, counted once
    }
  }
  HF_EQUAL(rounds, 4);
  HF_EQUAL(bench.outbox.summary(), "c8 c7 c6 c5 c4 c3 c2 c1 ");
}

HF_CASE(a_credit_of_one_goes_peer_by_peer_in_both_stages) {
  Setting setting;
  setting.num_ranks = 4;
  setting.total = 64;
  Bench bench(setting);
  bench.outbox.credit[2] = 1;
  bench.call(0);
  HF_EQUAL(bench.outbox.summary(), "c3 ");
  bench.operation.on_message_sent(3, bench.outbox.sent[0].id);
  HF_EQUAL(bench.outbox.summary(), "c3 c2 ");
  for (const std::uint16_t peer : {1, 2, 3}) bench.contribution(1, peer);
  HF_EQUAL(bench.outbox.summary(), "c3 c2 r3 ");  // the stages have turns of their own
  bench.operation.on_message_sent(3, bench.outbox.id_of(Stage::result, 3));
  HF_EQUAL(bench.outbox.summary(), "c3 c2 r3 r2 ");
  bench.operation.on_message_sent(2, bench.outbox.id_of(Stage::contribution, 2));
  HF_EQUAL(bench.outbox.summary(), "c3 c2 r3 r2 c1 ");
}

HF_CASE(a_cancelled_turn_makes_room_for_the_next) {
  Setting setting;
  setting.num_ranks = 4;
  setting.total = 64;
  Bench bench(setting);
  bench.outbox.credit[1] = 1;
  bench.call(0);
  HF_EQUAL(bench.outbox.summary(), "c3 ");
  bench.result(1, 3, {0, 16}, flag::closed);
  HF_EQUAL(bench.outbox.summary(), "c3 c2 ");
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(2, 2);
  HF_EQUAL(bench.outbox.summary(), "c3 c2 c1 ");
}

HF_CASE(a_message_cancelled_after_it_was_sent_gives_its_turn_back_once) {
  Setting setting;
  setting.num_ranks = 5;
  setting.total = 80;
  Bench bench(setting);
  bench.outbox.credit[1] = 1;
  bench.call(0);
  bench.operation.on_message_sent(4, bench.outbox.sent[0].id);
  HF_EQUAL(bench.outbox.summary(), "c4 c3 ");
  bench.result(1, 4);  // its turn was over already: no second one may start
  HF_EQUAL(bench.outbox.summary(), "c4 c3 ");
}

// -- peers that go ----------------------------------------------------------------------------------------------------

HF_CASE(bounded_goes_on_without_a_peer_that_died) {
  Bench bench;
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2, {0, 16});
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(2, 2);
  HF_CHECK(bench.outbox.was_cancelled(bench.outbox.id_of(Stage::contribution, 2)));
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r1 ");  // complete as far as it can be, and no result for the dead
  bench.result(3, 1);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().status), "done");
  HF_EQUAL(text(bench.report().missing), "64-96 ");
  HF_CHECK(!bench.report().peers[2].alive);
  HF_CHECK(bench.report().peers[1].alive);
}

HF_CASE(exact_fails_at_once_and_names_the_dead) {
  Bench bench(exact_setting());
  bench.call(0);
  bench.contribution(1, 1);
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(2, 2);
  HF_CHECK(bench.operation.ended() && bench.operation.retired());
  HF_EQUAL(text(bench.report().status), "peer_dead");
  HF_EQUAL(text(bench.report().culprits), "2 ");
  HF_CHECK(bench.all_equal({0, 96}, 0.0f));
}

HF_CASE(exact_called_after_a_death_fails_in_the_call) {
  Bench bench(exact_setting());
  bench.contribution(1, 1);
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(2, 2);
  HF_CHECK(!bench.operation.ended());
  bench.call(3);
  HF_EQUAL(text(bench.report().status), "peer_dead");
  HF_EQUAL(text(bench.report().culprits), "2 ");
  HF_EQUAL(bench.outbox.summary(), "");
}

HF_CASE(an_exact_result_has_no_holes_and_lacks_nobody) {
  Bench bench(exact_setting());
  bench.call(0);
  Header hole = bench.header(PacketType::hole, Stage::result, 1);
  hole.offset = bench.shard_of(1).begin;
  hole.missing = 16;
  HF_EQUAL(bench.give(1, hole), "malformed");
  HF_EQUAL(bench.result(1, 1, {0, 16}, 0, 1), "malformed");
  HF_EQUAL(bench.result(1, 1, {0, 16}), "accepted");
}

// Found by the fuzz target `hostile`: such a call left its gradient where it said that a result was.
HF_CASE(exact_called_after_a_death_has_the_results_that_came_before) {
  Bench bench(exact_setting());
  HF_EQUAL(bench.result(1, 1, {0, 16}), "accepted");
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(2, 2);
  bench.call(3);
  HF_EQUAL(text(bench.report().status), "peer_dead");
  HF_EQUAL(text(bench.report().missing), "0-32 48-64 64-96 ");
  HF_CHECK(bench.all_equal({32, 48}, 2.0f));
  HF_CHECK(bench.all_equal({0, 32}, 0.0f) && bench.all_equal({48, 96}, 0.0f));
  HF_EQUAL(bench.report().delivered, 48u);
}

HF_CASE(exact_does_not_fail_over_a_peer_that_owes_nothing_any_more) {
  // Rank 2 gave all it had to give and left; rank 1's result is still on its way.
  Bench bench(exact_setting());
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  bench.result(2, 2);
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(3, 2);
  HF_CHECK(!bench.operation.ended());
  bench.result(4, 1);
  HF_EQUAL(text(bench.report().status), "done");
  HF_EQUAL(bench.report().delivered, 288u);
}

HF_CASE(a_death_after_the_end_lets_the_operation_retire) {
  Bench bench;
  bench.call(0);
  bench.contribution(1, 1);
  bench.contribution(1, 2);
  bench.result(2, 1);
  bench.result(2, 2);
  bench.operation.on_message_finished(1, bench.outbox.id_of(Stage::result, 1));
  HF_CHECK(!bench.operation.retired());
  bench.outbox.alive[2] = false;
  bench.operation.on_peer_gone(3, 2);
  HF_CHECK(bench.operation.retired());
}

HF_CASE(all_peers_dead_ends_bounded_in_the_call_with_everything_missing) {
  Bench bench;
  bench.outbox.alive[1] = bench.outbox.alive[2] = false;
  bench.call(0);
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().missing), "0-32 32-64 64-96 ");
  HF_CHECK(bench.all_equal({0, 96}, 0.0f));
  HF_EQUAL(bench.report().delivered, 0u);
}

// -- ranks that disagree ----------------------------------------------------------------------------------------------

HF_CASE(a_packet_of_another_shape_fails_the_call_by_name) {
  Bench bench;
  bench.call(0);
  Header packet = bench.header(PacketType::data, Stage::contribution, 2);
  packet.total = 97;
  HF_EQUAL(bench.give(1, packet, std::vector<float>(16)), "mismatch");
  HF_CHECK(bench.operation.ended());
  HF_EQUAL(text(bench.report().status), "mismatch");
  HF_EQUAL(text(bench.report().culprits), "2 ");
  HF_EQUAL(bench.report().total, 96u);
}

HF_CASE(format_layout_delivery_and_average_must_agree_too) {
  const auto verdict_with = [](auto change) {
    Bench bench;
    bench.call(0);
    Header packet = bench.header(PacketType::data, Stage::contribution, 1);
    change(packet);
    const std::string drop = bench.give(1, packet, std::vector<float>(32));
    return drop + " " + text(bench.report().status);
  };
  HF_EQUAL(verdict_with([](Header&) {}), "accepted done");
  HF_EQUAL(verdict_with([](Header& header) { header.format = Format::f64; }), "mismatch mismatch");
  HF_EQUAL(verdict_with([](Header& header) { header.layout = 8; }), "mismatch mismatch");
  HF_EQUAL(verdict_with([](Header& header) { header.flags |= flag::exact; }), "mismatch mismatch");
  HF_EQUAL(verdict_with([](Header& header) { header.flags |= flag::sum; }), "mismatch mismatch");
}

HF_CASE(a_call_of_another_shape_than_the_packets_before_fails_and_names_who_sent_them) {
  FakeOutbox outbox;
  BufferPool pool;
  std::vector<float> data(50, 1.0f);
  const Operation::Identity of_rank_two{96, 7, Format::f32, Delivery::bounded, true};
  Operation operation(0, 0, 3, of_rank_two, 2, 0, Parameters{}, outbox, pool);
  Call call;
  call.data = reinterpret_cast<std::uint8_t*>(data.data());
  call.count = 50;
  call.layout = 7;
  operation.on_call(1, call);
  HF_CHECK(operation.ended() && operation.retired());
  HF_EQUAL(text(operation.report().status), "mismatch");
  HF_EQUAL(text(operation.report().culprits), "2 ");
  HF_EQUAL(operation.report().total, 50u);
  // Both others are told what this rank called, by a message of which only the ends are sent.
  HF_EQUAL(outbox.summary(), "c1 c2 ");
  for (const auto& sent : outbox.sent) {
    HF_EQUAL(sent.content.range.size(), 0u);
    HF_EQUAL(sent.content.total, 50u);
    HF_CHECK(sent.content.delivery == Delivery::bounded && !sent.content.of_exact_operation);
  }
  HF_CHECK(data == std::vector<float>(50, 1.0f));  // nothing of another bucket was written here
}

HF_CASE(peers_that_disagree_before_the_call_are_remembered) {
  Bench bench;
  bench.contribution(1, 1);
  Header packet = bench.header(PacketType::data, Stage::contribution, 2);
  packet.layout = 9;
  HF_EQUAL(bench.give(2, packet, std::vector<float>(32)), "mismatch");
  HF_CHECK(!bench.operation.ended());
  bench.call(3);
  HF_EQUAL(text(bench.report().status), "mismatch");
  HF_EQUAL(text(bench.report().culprits), "2 ");
}

HF_CASE(peers_that_disagree_before_the_call_are_served_nothing) {
  for (const Time contradicted_at : {50 * millisecond, 150 * millisecond}) {  // before and after the sum is closed
    Bench bench;
    bench.contribution(1, 1);
    Header packet = bench.header(PacketType::data, Stage::contribution, 2);
    packet.layout = 9;
    if (contradicted_at < 100 * millisecond) bench.give(contradicted_at, packet, std::vector<float>(32));
    bench.operation.on_timer(100 * millisecond);
    if (contradicted_at > 100 * millisecond) bench.give(contradicted_at, packet, std::vector<float>(32));
    for (const auto& sent : bench.outbox.sent) HF_CHECK(bench.outbox.was_cancelled(sent.id));
  }
}

HF_CASE(after_a_mismatch_nothing_touches_the_callers_memory) {
  Bench bench;
  bench.call(0);
  Header packet = bench.header(PacketType::data, Stage::contribution, 2);
  packet.total = 200;
  bench.give(1, packet, std::vector<float>(16));
  const std::vector<float> before = bench.data;
  HF_EQUAL(bench.contribution(2, 1), "late");
  HF_EQUAL(bench.result(2, 1), "late");
  HF_EQUAL(bench.give(2, packet, std::vector<float>(16)), "mismatch");
  bench.operation.on_timer(10 * second);
  HF_CHECK(bench.data == before);
  HF_CHECK(bench.operation.retired());
}

// -- results before the sum is closed ---------------------------------------------------------------------------------

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
    HF_EQUAL(text(message.released), "16-32 0-16 32-48 48-64 ");  // every chunk once
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

// -- when everybody has said that all was sent ------------------------------------------------------------------------

HF_CASE(with_all_ends_in_a_quarter_of_the_early_wait_is_enough) {
  Bench bench;  // an early wait of 20 ms
  bench.call(0);
  bench.contribution(1 * millisecond, 1, {0, 16}, flag::last_percentile);
  bench.contribution(2 * millisecond, 2, {0, 16}, flag::last_percentile);
  bench.end(2 * millisecond + 1, Stage::contribution, 1);
  HF_EQUAL(bench.operation.next_timer(), 22 * millisecond);  // one end is missing: the whole early wait
  bench.end(2 * millisecond + 2, Stage::contribution, 2);
  HF_EQUAL(bench.operation.next_timer(), 7 * millisecond);
  bench.operation.on_timer(7 * millisecond - 1);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 ");
  HF_EQUAL(bench.contribution(7 * millisecond - 1, 1, {16, 32}), "accepted");  // overtaken on the way
  HF_EQUAL(bench.operation.next_timer(), 12 * millisecond - 1);
  bench.operation.on_timer(12 * millisecond - 1);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
  bench.result(13 * millisecond, 1);
  bench.result(13 * millisecond, 2, {0, 16});
  HF_EQUAL(bench.operation.next_timer(), 112 * millisecond - 1);  // neither mark nor end of rank 2: its bound
  bench.end(14 * millisecond, Stage::result, 2);                  // rank 1 is complete: its end need not come
  HF_EQUAL(bench.operation.next_timer(), 18 * millisecond);
  bench.operation.on_timer(18 * millisecond);
  HF_EQUAL(text(bench.report().results.end), "early");
  HF_EQUAL(text(bench.report().missing), "80-96 ");
}

HF_CASE(an_end_long_after_the_last_element_closes_at_once) {
  Bench bench;
  bench.call(0);
  bench.contribution(1 * millisecond, 1);
  bench.contribution(1 * millisecond, 2, {0, 16});
  bench.end(9 * millisecond, Stage::contribution, 2);
  HF_EQUAL(bench.outbox.summary(), "c2 c1 r2 r1 ");
}

HF_CASE(without_the_ends_the_marks_close_after_the_early_wait) {
  Bench bench;  // exactly the ends are lost
  bench.call(0);
  bench.contribution(1 * millisecond, 1, {0, 16}, flag::last_percentile);
  bench.contribution(2 * millisecond, 2, {0, 16}, flag::last_percentile);
  HF_EQUAL(bench.operation.next_timer(), 22 * millisecond);
}

HF_CASE(without_marks_and_ends_of_one_sender_only_the_bound_closes) {
  Bench bench;
  bench.call(0);
  bench.contribution(1 * millisecond, 1, {0, 16}, flag::last_percentile);
  bench.end(1 * millisecond, Stage::contribution, 1);
  bench.contribution(2 * millisecond, 2, {0, 16});
  HF_EQUAL(bench.operation.next_timer(), 100 * millisecond);
}

HF_CASE(with_all_ends_in_overtaken_packets_have_half_a_millisecond_but_never_more_than_the_early_wait) {
  const auto silence_with = [](Duration early_wait) {
    Bench bench;
    Call call = bench.call_with();
    call.contributions.early_wait = early_wait;
    bench.operation.on_call(0, call);
    for (const std::uint16_t peer : {1, 2}) {
      bench.contribution(millisecond, peer, {0, 16});
      bench.end(millisecond, Stage::contribution, peer);
    }
    return bench.operation.next_timer() - millisecond;
  };
  HF_EQUAL(silence_with(8 * millisecond), 2 * millisecond);
  HF_EQUAL(silence_with(1 * millisecond), 500 * microsecond);
  HF_EQUAL(silence_with(100 * microsecond), 100 * microsecond);
}

// -- what control says of each stage, and hears from the others -------------------------------------------------------

HF_CASE(each_stage_waits_as_long_as_its_call_says) {
  Bench bench;
  Call call = bench.call_with();
  call.contributions.early_wait = 3 * millisecond;
  call.results.early_wait = 7 * millisecond;
  bench.operation.on_call(0, call);
  bench.contribution(1 * millisecond, 1);
  bench.contribution(2 * millisecond, 2, {0, 16}, flag::last_percentile);
  HF_EQUAL(bench.operation.next_timer(), 5 * millisecond);
  bench.operation.on_timer(5 * millisecond);
  bench.result(6 * millisecond, 1);
  bench.result(6 * millisecond, 2, {0, 16}, flag::last_percentile);
  HF_EQUAL(bench.operation.next_timer(), 13 * millisecond);
}

HF_CASE(samples_are_announced_and_those_of_the_peers_reported) {
  Bench bench;
  Call call = bench.call_with();
  call.contributions.sample_us = 700;
  call.results.sample_us = 900;
  bench.operation.on_call(0, call);
  HF_EQUAL(bench.outbox.content_of(Stage::contribution, 1).completion_us, 700u);
  const auto packet = [&](Stage stage, std::uint16_t sender, std::uint32_t sample) {
    Header header = bench.header(PacketType::data, stage, sender);
    header.offset = stage == Stage::contribution ? 0 : bench.shard_of(sender).begin;
    header.completion_us = sample;
    HF_EQUAL(bench.give(1, header, std::vector<float>(32, 2.0f)), "accepted");
  };
  packet(Stage::contribution, 1, 1100);
  packet(Stage::contribution, 2, 0);
  HF_EQUAL(bench.outbox.content_of(Stage::result, 1).completion_us, 900u);
  packet(Stage::result, 1, 1200);
  packet(Stage::result, 2, 2200);
  HF_EQUAL(bench.report().peers[1].contributions_sample_us, 1100u);
  HF_EQUAL(bench.report().peers[2].contributions_sample_us, 0u);  // it has not said
  HF_EQUAL(bench.report().peers[1].results_sample_us, 1200u);
  HF_EQUAL(bench.report().peers[2].results_sample_us, 2200u);
}

HF_CASE(an_end_alone_carries_the_sample) {
  Bench bench;
  bench.call(0);
  Header end = bench.header(PacketType::end, Stage::contribution, 2);
  end.completion_us = 4321;
  bench.give(1, end);
  bench.operation.on_timer(100 * millisecond);
  bench.operation.on_timer(200 * millisecond);
  HF_EQUAL(bench.report().peers[2].contributions_sample_us, 4321u);
}

HF_TEST_MAIN
