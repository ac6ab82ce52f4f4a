// One bounded all-reduce on one rank: contributions, results, holes and ends from anybody at any time, beside a slow
// model that knows only what was taken. Values must be right at their offsets, nothing counts twice, the reported share
// is the true one, and no stage outlives its bound.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/operation.h"
#include "fuzz/bounded_model.h"
#include "fuzz/check.h"
#include "fuzz/elements.h"
#include "fuzz/input.h"

using namespace holdfast;
using fuzz::elements_of;
using fuzz::gradient_at;
using fuzz::result_at;
using fuzz::value_of;
using Model = fuzz::BoundedModel;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr int max_steps = 250;
constexpr std::uint32_t layout = fuzz::BoundedSetting::layout;

bool is_near(Format format, double found, double right) {
  const double half_unit = format == Format::bf16 ? 0x1p-8 : format == Format::f16 ? 0x1p-11 : 0x1p-21;
  return std::abs(found - right) <= 2 * half_unit * std::abs(right);
}

class Run final : Outbox {
 public:
  explicit Run(fuzz::Input& input)
      : input_(input),
        setting_(input),
        model_(setting_),
        alive_(setting_.num_ranks, true),
        wants_results_(setting_.num_ranks, true),
        credit_(setting_.num_ranks, static_cast<std::uint8_t>(input.below(3))),
        lacking_(input.below(setting_.num_ranks)),
        early_room_(input.flag() ? 1u << 20 : input.below(3000)),
        chunk_elements_(block_elements * (1 + setting_.number % 3)),
        operation_(setting_.number, setting_.rank, setting_.num_ranks, setting_.identity, setting_.rank, now_,
                   setting_.parameters, *this, pool_) {}

  void run() {
    for (int step = 0; step < max_steps && !input_.empty(); ++step) {
      advance(1);  // a call never falls into the same nanosecond as the end of a stage
      choose();
      check_results_sent();
    }
    advance(2 * std::max(stage_bound_, setting_.parameters.t_b) + 2 * setting_.parameters.duty_limit);
    if (called_) check_report();
    if (called_) FUZZ_CHECK(operation_.ended());
    FUZZ_CHECK(operation_.retired());
  }

 private:
  struct Message {
    std::uint16_t peer;
    std::uint32_t id;
    MessageContent content;
    bool streamed;                       // enqueued before the sum was closed
    std::vector<ElementRange> released;  // of a streamed one, in order
  };

  // -- outbox --------------------------------------------------------------------------------------------------------
  std::uint32_t enqueue(std::uint16_t peer, MessageContent content) override {
    FUZZ_CHECK(peer != setting_.rank);
    if (content.stage == Stage::result) {
      FUZZ_CHECK(wants_results_[peer]);
      if (!own_included_) own_included_ = called_;
      duty_done_ = true;
      FUZZ_CHECK(called_ || !conflict_);  // before the call nobody knows which of two buckets is meant
    }
    const bool streamed = content.open;
    FUZZ_CHECK(!streamed || (called_ && content.stage == Stage::result));
    sent_.push_back({peer, ++next_message_, std::move(content), streamed, {}});
    return next_message_;
  }
  void release(std::uint16_t peer, std::uint32_t message, ElementRange range) override {
    open_message(peer, message).released.push_back(range);
  }
  void close(std::uint16_t peer, std::uint32_t message, const std::vector<ElementRange>& holes,
             const std::vector<Gap>& gaps, std::vector<ElementRange> without_receiver) override {
    Message& closed = open_message(peer, message);
    closed.content.open = false;
    closed.content.holes = holes;
    closed.content.gaps = gaps;
    closed.content.without_receiver = std::move(without_receiver);
  }
  Message& open_message(std::uint16_t peer, std::uint32_t id) {
    const auto found = std::find_if(sent_.begin(), sent_.end(), [id](const Message& sent) { return sent.id == id; });
    FUZZ_CHECK(found != sent_.end() && found->peer == peer && found->content.open);
    return *found;
  }
  std::uint32_t chunk_elements(Format) const override { return chunk_elements_; }
  void cancel(std::uint16_t, std::uint32_t message) override {
    std::erase_if(sent_, [message](const Message& sent) { return sent.id == message; });
  }
  bool is_alive(std::uint16_t peer) const override { return alive_[peer]; }
  bool is_on_this_host(std::uint16_t) const override { return false; }
  bool heard_since(std::uint16_t, Time) const override { return false; }
  Time unanswered_since(std::uint16_t) const override { return never; }
  Time answered_again_at(std::uint16_t, Duration) const override { return never; }
  Duration silence_since(Time, std::uint16_t, Time) const override { return 0; }
  void note_part(Time, std::uint16_t, bool, Duration) override {}
  bool is_coming_back(std::uint16_t) const override { return false; }
  bool wants_results(std::uint16_t peer, std::uint32_t) const override { return wants_results_[peer]; }
  bool may_hold_early(std::size_t bytes) const override {
    const bool room = operation_.early_bytes() + bytes <= early_room_;
    refused_room_ = refused_room_ || !room;
    return room;
  }
  std::uint8_t credit_of(std::uint16_t peer) const override { return credit_[peer]; }

  // -- what happens --------------------------------------------------------------------------------------------------
  void choose() {
    const std::uint32_t choice = input_.below(16);
    if (operation_.retired()) return;  // its endpoint has forgotten it
    if (choice <= 9) return packet();
    if (choice <= 11) return advance(Duration{input_.below(256)} * 100 * microsecond);
    if (choice == 12) return call();
    if (choice == 13) return settle_message();
    const auto peer = static_cast<std::uint16_t>(input_.below(setting_.num_ranks));
    if (peer == setting_.rank) return;
    if (choice == 14 && input_.rarely()) {
      give_up_results(peer);
    } else if (choice == 14) {
      credit_[peer] = static_cast<std::uint8_t>(input_.below(4));
    } else if (input_.flag()) {
      alive_[peer] = false;
      ++num_unserved_;
      operation_.on_peer_gone(now_, peer);
    } else {
      alive_[peer] = true;
    }
  }

  // The peer has ended the operation: what is on its way to it stops, and nothing is lost for anybody else.
  void give_up_results(std::uint16_t peer) {
    const auto to_others = [&] {
      return std::count_if(sent_.begin(), sent_.end(), [peer](const Message& sent) { return sent.peer != peer; });
    };
    const auto before = to_others();
    wants_results_[peer] = false;
    ++num_unserved_;
    operation_.on_results_unwanted(peer);
    FUZZ_CHECK(to_others() >= before);  // those whose turn it is now may begin
    FUZZ_CHECK(std::none_of(sent_.begin(), sent_.end(), [peer](const Message& sent) {
      return sent.peer == peer && sent.content.stage == Stage::result;
    }));
  }

  void call() {
    if (called_ || operation_.retired()) return;
    called_ = true;
    Call call;
    memory_ = elements_of(setting_.identity.format, 0, setting_.identity.total,
                          [this](std::uint32_t i) { return gradient_at(setting_.rank, i); });
    call.data = memory_.data();
    call.count = setting_.identity.total;
    call.format = setting_.identity.format;
    call.layout = input_.rarely() ? layout + 1 : layout;
    call.average = setting_.identity.average;
    call.deadline = input_.flag() ? 0 : Duration{input_.between(1, 100)} * millisecond;
    if (input_.rarely()) {
      const Duration whole = Duration{input_.between(1, 100)} * millisecond;
      call.limit = {whole * 2 / 3, whole, whole / 3};
    }
    called_differently_ = call.layout != layout;
    stage_bound_ = call.deadline > 0 ? call.deadline / 2 : setting_.parameters.t_b;
    called_at_ = now_;
    operation_.on_call(now_, call);
  }

  void settle_message() {
    if (sent_.empty()) return;
    const std::uint32_t index = input_.below(static_cast<std::uint32_t>(sent_.size()));
    const Message message = sent_[index];
    if (message.content.open) return;  // there may be more of it
    operation_.on_message_sent(message.peer, message.id);
    if (!input_.flag()) return;
    std::erase_if(sent_, [&](const Message& sent) { return sent.id == message.id; });
    operation_.on_message_finished(message.peer, message.id);
  }

  void advance(Duration by) {
    const Time until = now_ + by;
    while (operation_.next_timer() <= until) {
      now_ = std::max(now_, operation_.next_timer());
      // The end of the own call may make the end of the duty due: two rounds, and no third.
      for (int round = 0; round < 2; ++round) operation_.on_timer(now_);
      check_results_sent();
      FUZZ_CHECK(operation_.next_timer() > now_);
    }
    now_ = until;
  }

  void packet() {
    Header header;
    header.operation = setting_.number;
    header.sender =
        static_cast<std::uint16_t>((setting_.rank + input_.between(1, setting_.num_ranks - 1u)) % setting_.num_ranks);
    const std::uint32_t kind = input_.below(8);
    header.stage = kind <= 3 ? Stage::contribution : Stage::result;
    header.type = kind == 3 || kind == 7 ? PacketType::end : kind == 6 ? PacketType::hole : PacketType::data;
    header.layout = layout;
    header.format = setting_.identity.format;
    header.total = setting_.identity.total;
    if (!setting_.identity.average) header.flags |= flag::sum;
    if (input_.rarely()) header.flags ^= flag::sum;
    const std::uint32_t kind_of_flags = input_.below(4);
    if (header.type == PacketType::end || kind_of_flags == 0) header.flags |= flag::last_percentile;
    if (header.stage == Stage::result && kind_of_flags == 1) header.flags |= flag::closed;
    const std::uint16_t owner = header.stage == Stage::contribution ? setting_.rank : header.sender;
    const std::uint32_t count = choose_place(header, owner);
    if (header.type == PacketType::data && count == 0) return;
    Bytes payload;
    if (header.type == PacketType::data) {
      payload = elements_of(header.format, header.offset, count, [&](std::uint32_t i) {
        return header.stage == Stage::contribution ? gradient_at(header.sender, i) : result_at(header.sender, i);
      });
      header.missing = header.stage == Stage::result ? count * lacking_ : 0;
      if (header.stage == Stage::result && input_.rarely()) {
        header.missing = input_.take<std::uint32_t>();
        lied_ = true;
      }
    }
    deliver(header, payload, owner, count);
  }

  // Whole blocks of the shard for the most part; anything the wire format allows otherwise.
  std::uint32_t choose_place(Header& header, std::uint16_t owner) {
    const ElementRange shard = model_.shard(owner);
    if (header.type == PacketType::end) return 0;
    std::uint32_t count = 0;
    if (input_.rarely()) {
      header.offset = input_.below(header.total + 1);
      count = input_.below(header.total - header.offset + 1);
    } else {
      const std::uint32_t blocks = Model::num_blocks(shard);
      const std::uint32_t first = input_.below(std::max(1u, blocks));
      header.offset = shard.begin + first * block_elements;
      count = std::min(input_.between(1, 4) * block_elements, shard.end - header.offset);
    }
    if (header.type == PacketType::hole) header.missing = count;
    return count;
  }

  void deliver(const Header& header, const Bytes& payload, std::uint16_t owner, std::uint32_t count) {
    if (header.type == PacketType::hole && count == 0) return;
    refused_room_ = false;
    const bool was_ended = operation_.ended();
    const auto drop = operation_.on_packet(now_, header, payload);
    const bool contribution = header.stage == Stage::contribution;
    if (((header.flags & flag::sum) == 0) != setting_.identity.average || called_differently_) {
      FUZZ_CHECK(drop == Drop::mismatch);
      conflict_ = conflict_ || !was_ended;
      return;
    }
    if (drop == Drop::late) {
      FUZZ_CHECK(header.type != PacketType::end);
      Time& first = contribution ? first_late_contribution_ : first_late_result_;
      first = std::min(first, now_);
      return;
    }
    if (header.type == PacketType::end) {
      FUZZ_CHECK(!drop);
      return;
    }
    FUZZ_CHECK(!was_ended);
    const bool fits = model_.fits(owner, header.offset, count);
    FUZZ_CHECK((drop == Drop::misplaced) == !fits);
    if (!fits) return;
    if (drop == Drop::early_over_cap) {
      FUZZ_CHECK(!called_ && refused_room_);
      return;
    }
    if (drop == Drop::malformed) {
      FUZZ_CHECK(header.stage == Stage::result && header.missing > std::uint64_t{count} * (setting_.num_ranks - 1u));
      return;
    }
    const std::uint32_t added = contribution
                                    ? model_.contribute(header.sender, header.offset, count)
                                    : model_.place(owner, header.offset, count, header.type == PacketType::hole);
    FUZZ_CHECK(drop == (added == 0 ? std::optional(Drop::duplicate) : std::nullopt));
  }

  // -- what must hold ------------------------------------------------------------------------------------------------
  // Before the sum is closed only what everybody has contributed to goes out; from then on the model's contributions
  // are final.
  void check_results_sent() {
    FUZZ_CHECK(operation_.early_bytes() <= std::max(early_room_, bookkeeping_bytes_));
    // Called or not, at the bound the sum of the own shard is closed, and goes to whoever is there; unless they
    // disagree.
    const bool must_have_sent = now_ >= opened_at_ + setting_.parameters.t_b && num_unserved_ == 0 && !conflict_;
    if (!called_ && must_have_sent) FUZZ_CHECK(duty_done_ || model_.shard(setting_.rank).size() == 0);
    for (Message& message : sent_) {
      const MessageContent& content = message.content;
      if (content.stage != Stage::result || content.data == nullptr) continue;
      const ElementRange shard = model_.shard(setting_.rank);
      FUZZ_CHECK(content.range == shard);
      if (message.streamed) check_released(message, shard);
      if (content.open) continue;
      std::vector<std::uint32_t> missing(shard.size(), 0);
      for (const Gap& gap : content.gaps) {
        for (std::uint32_t i = gap.range.begin; i < gap.range.end; ++i)
          missing[i - shard.begin] = gap.missing_per_element;
      }
      for (const ElementRange& hole : content.holes) {
        for (std::uint32_t i = hole.begin; i < hole.end; ++i) missing[i - shard.begin] = setting_.num_ranks;
      }
      for (std::uint32_t i = 0; i < shard.size(); ++i) {
        check_own_element(shard.begin + i, content.data + i * element_bytes(content.format));
        const std::uint32_t others = model_.contributors(i / block_elements);
        const std::uint32_t present = others == 0 ? 0 : others + (*own_included_ ? 1 : 0);
        FUZZ_CHECK(missing[i] == setting_.num_ranks - present);
      }
      message.content.data = nullptr;  // checked
    }
  }

  // Whole blocks, none twice; while the sum is open only complete ones, in the end all of them.
  void check_released(const Message& message, ElementRange shard) {
    std::vector<bool> released(shard.size(), false);
    for (const ElementRange& range : message.released) {
      FUZZ_CHECK(range.begin >= shard.begin && range.end <= shard.end);
      FUZZ_CHECK((range.begin - shard.begin) % block_elements == 0);
      FUZZ_CHECK(range.size() % block_elements == 0 || range.end == shard.end);
      for (std::uint32_t i = range.begin; i < range.end; ++i) {
        FUZZ_CHECK(!released[i - shard.begin]);
        released[i - shard.begin] = true;
        if (!message.content.open) continue;
        FUZZ_CHECK(model_.contributors((i - shard.begin) / block_elements) == setting_.num_ranks - 1u);
        check_own_element(i, message.content.data + (i - shard.begin) * element_bytes(message.content.format));
      }
    }
    if (!message.content.open) FUZZ_CHECK(std::find(released.begin(), released.end(), false) == released.end());
  }

  void check_own_element(std::uint32_t element, const std::uint8_t* at) {
    const std::uint32_t block = (element - model_.shard(setting_.rank).begin) / block_elements;
    const double found = value_of(setting_.identity.format, at);
    if (model_.contributors(block) == 0) {
      FUZZ_CHECK(found == 0);
    } else {
      FUZZ_CHECK(is_near(setting_.identity.format, found, model_.own_result(element, *own_included_)));
    }
  }

  void check_report() {
    const OperationReport& report = operation_.report();
    FUZZ_CHECK(report.elapsed <= 2 * stage_bound_);
    FUZZ_CHECK(report.contributions.elapsed <= std::max(stage_bound_, setting_.parameters.t_b));
    FUZZ_CHECK(report.results.elapsed <= stage_bound_);
    FUZZ_CHECK((report.status == Status::mismatch) == (conflict_ || called_differently_));
    if (report.status == Status::mismatch) return;
    FUZZ_CHECK(report.status == Status::done);
    const bool closed_after_call = report.contributions.elapsed >= report.waited_for_call;
    if (!own_included_) own_included_ = closed_after_call;
    FUZZ_CHECK(*own_included_ == closed_after_call);
    const Time opened_at = called_at_ - report.waited_for_call;
    FUZZ_CHECK(first_late_contribution_ >= opened_at + report.contributions.elapsed);
    FUZZ_CHECK(first_late_result_ >= called_at_ + report.elapsed);
    check_memory(report);
    check_share(report);
  }

  void check_memory(const OperationReport& report) {
    std::vector<bool> listed(setting_.identity.total, false);
    for (const ElementRange& range : report.missing) {
      for (std::uint32_t i = range.begin; i < range.end; ++i) {
        FUZZ_CHECK(i < setting_.identity.total && !listed[i]);
        listed[i] = true;
      }
    }
    const Format format = setting_.identity.format;
    for (std::uint16_t owner = 0; owner < setting_.num_ranks; ++owner) {
      const ElementRange shard = model_.shard(owner);
      for (std::uint32_t i = shard.begin; i < shard.end; ++i) {
        const std::uint8_t* at = memory_.data() + i * element_bytes(format);
        const std::uint32_t block = (i - shard.begin) / block_elements;
        const bool own = owner == setting_.rank;
        const bool present = own ? model_.contributors(block) != 0 : model_.result(owner, block) == 'v';
        FUZZ_CHECK(listed[i] == !present);
        if (!present) FUZZ_CHECK(value_of(format, at) == 0);
        if (present && own) check_own_element(i, at);
        if (present && !own) FUZZ_CHECK(value_of(format, at) == result_at(owner, i));
      }
    }
  }

  void check_share(const OperationReport& report) {
    FUZZ_CHECK(report.expected == std::uint64_t{setting_.identity.total} * setting_.num_ranks);
    FUZZ_CHECK(report.delivered <= report.expected);
    std::uint64_t delivered = 0;
    for (std::uint32_t block = 0; block < Model::num_blocks(model_.shard(setting_.rank)); ++block) {
      const std::uint32_t others = model_.contributors(block);
      const std::uint32_t present = others == 0 ? 0 : others + (*own_included_ ? 1 : 0);
      delivered += std::uint64_t{present} * model_.block_size(setting_.rank, block);
    }
    for (std::uint16_t peer = 0; peer < setting_.num_ranks; ++peer) {
      if (peer == setting_.rank) continue;
      delivered += std::uint64_t{model_.results(peer)} * (setting_.num_ranks - lacking_);
      FUZZ_CHECK(report.peers[peer].contributed == model_.contributed(peer));
      FUZZ_CHECK(report.peers[peer].results == model_.results(peer));
    }
    if (!lied_) FUZZ_CHECK(report.delivered == delivered);
  }

  fuzz::Input& input_;
  fuzz::BoundedSetting setting_;
  Model model_;
  BufferPool pool_;
  Time now_ = second;
  const Time opened_at_ = now_;
  std::vector<bool> alive_;
  std::vector<bool> wants_results_;
  int num_unserved_ = 0;    // times that a peer was gone, or wanted no results any more
  bool duty_done_ = false;  // a result has gone out
  std::vector<std::uint8_t> credit_;
  std::uint32_t lacking_;  // contributors that every result of a peer lacks
  std::size_t early_room_;
  std::uint32_t chunk_elements_;
  mutable bool refused_room_ = false;
  std::vector<Message> sent_;
  std::uint32_t next_message_ = 0;
  Bytes memory_;
  bool called_ = false;
  bool conflict_ = false;  // a packet named another bucket before the end
  bool called_differently_ = false;
  bool lied_ = false;  // a result claimed to lack what the others do not say
  Time called_at_ = 0;
  Duration stage_bound_ = 0;
  Time first_late_contribution_ = never;
  Time first_late_result_ = never;
  std::optional<bool> own_included_;
  Operation operation_;
  const std::size_t bookkeeping_bytes_ = operation_.early_bytes();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Run(input).run();
  return 0;
}
