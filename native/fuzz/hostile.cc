// One endpoint among peers that hold valid keys and say anything: data, results, holes, ends, notes and acks of any
// size, place and operation, replays, goodbyes. What they say is true wherever it can be checked, so that whatever the
// endpoint hands out can be: notes come once with their bytes, results are the peers' or zero, caps hold, calls end in
// time, and when the peers fall silent nothing of theirs is left.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/elements.h"
#include "fuzz/input.h"
#include "fuzz/liar.h"
#include "fuzz/peer.h"

using namespace holdfast;
using fuzz::elements_of;
using fuzz::gradient_at;
using fuzz::note_byte;
using fuzz::result_at;

namespace {

using Bytes = std::vector<std::uint8_t>;
using Statement = fuzz::Liar::Statement;

constexpr int max_steps = 400;
constexpr std::uint32_t max_calls = 12;
constexpr Duration t_b = 20 * millisecond;
constexpr Duration duty_limit = 200 * millisecond;
constexpr Duration exact_deadline = 100 * millisecond;

EndpointSettings settings_from(fuzz::Input& input) {
  EndpointSettings settings;
  settings.num_ranks = static_cast<std::uint16_t>(input.between(2, 4));
  settings.rank = static_cast<std::uint16_t>(input.below(settings.num_ranks));
  settings.job = 5;
  settings.epoch = 2;
  settings.protection = input.below(8) == 7 ? Protection::encrypted : Protection::insecure;
  settings.packets_per_key = input.flag() ? default_packets_per_key : 3;
  settings.datagram_bytes = input.flag() ? 256 : 1472;
  settings.receive_buffer_bytes = 1 << 20;
  settings.max_operation_bytes = 1 << 16;
  settings.early_bytes_cap = input.flag() ? 1u << 20 : input.between(500, 20'000);
  settings.max_open_operations = input.between(1, 6);
  settings.max_note_bytes = 4096;
  settings.peers.resize(settings.num_ranks);
  for (std::uint16_t rank = 0; rank < settings.num_ranks; ++rank) {
    settings.peers[rank].process.fill(static_cast<std::uint8_t>(rank + 1));
    settings.peers[rank].same_host = rank == 1;
  }
  return settings;
}

// Refused before anything of it is believed.
bool refused_unread(Drop drop) {
  switch (drop) {
    case Drop::truncated:
    case Drop::version:
    case Drop::malformed:
    case Drop::foreign_job:
    case Drop::foreign_epoch:
    case Drop::unknown_sender:
    case Drop::key_phase:
    case Drop::authentication:
    case Drop::replay:
    case Drop::too_old: return true;
    default: return false;
  }
}

class Attack {
 public:
  explicit Attack(fuzz::Input& input) : input_(input), settings_(settings_from(input)), victim_(settings_, now_) {
    for (std::uint16_t rank = 0; rank < settings_.num_ranks; ++rank) peers_.emplace_back(settings_, rank);
    publish();
    pump();
    if (!input.flag()) return;
    for (std::uint16_t rank = 0; rank < settings_.num_ranks; ++rank) {
      if (rank != settings_.rank) acknowledge_truly(rank);
    }
  }

  void run() {
    for (int step = 0; step < max_steps && !input_.empty(); ++step) {
      choose();
      pump();
      check_caps();
    }
    // Nobody says anything more: what is open must end by itself.
    const Time limit = now_ + settings_.silence_limit + 2 * duty_limit + exact_deadline + 2 * t_b;
    while (now_ < limit && !nothing_left()) advance(10 * millisecond);
    FUZZ_CHECK(nothing_left());
  }

 private:
  struct OpenCall {
    Time called_at;
    Duration deadline;
    Call call;
    std::unique_ptr<std::uint8_t[]> memory;  // given back, and gone, with the report
  };
  struct Said {
    Bytes datagram;
    bool opened = false;
  };

  // -- what happens --------------------------------------------------------------------------------------------------
  void choose() {
    const std::uint32_t choice = input_.below(20);
    if (choice <= 6) {
      const std::uint16_t sender = somebody();
      return say(sender, liar_.data(sender, victim_.next_operation()));
    }
    if (choice <= 8) {
      const std::uint16_t sender = somebody();
      return say(sender, liar_.note(sender));
    }
    if (choice == 9) return acknowledge_truly(somebody());
    if (choice == 10) {
      const std::uint16_t sender = somebody();
      return say(sender, liar_.ack(victim_.path(sender).counters().datagrams_sent));
    }
    if (choice == 11) return repeat();
    if (choice == 12) {
      const Statement statement = liar_.anything();
      const std::uint16_t sender = somebody();
      return deliver(sender, peers_[sender].sealed_as(statement.header, statement.payload));
    }
    if (choice <= 14) return advance(Duration{input_.below(256)} * 100 * microsecond);
    if (choice == 15) return advance(Duration{input_.below(30)} * 10 * millisecond);
    if (choice <= 17) return call();
    if (choice == 18) return send_note();
    if (input_.flag()) return publish();
    if (input_.flag()) return read_notes();
    if (input_.rarely()) return victim_.say_goodbye();
    Header bye;
    bye.type = input_.flag() ? PacketType::bye : PacketType::ping;
    say(somebody(), {bye, {}});
  }

  std::uint16_t somebody() {
    return static_cast<std::uint16_t>((settings_.rank + input_.between(1, settings_.num_ranks - 1u)) %
                                      settings_.num_ranks);
  }

  void publish() {
    Parameters parameters;
    parameters.from_operation = victim_.next_operation();
    parameters.t_b = t_b;
    parameters.t_c = Duration{input_.between(1, 20)} * millisecond;
    parameters.early_wait_ratio = input_.below(5) / 4.0;
    parameters.credit = static_cast<std::uint8_t>(input_.below(3));
    parameters.deterministic = input_.flag();
    parameters.duty_limit = duty_limit;
    victim_.publish(parameters);
  }

  void call() {
    if (num_calls_ == max_calls) return;
    ++num_calls_;
    OpenCall open;
    open.called_at = now_;
    open.call.count = liar_.usual_total();
    open.call.format = liar_.usual_format();
    open.call.delivery = input_.flag() ? Delivery::bounded : Delivery::exact;
    open.call.average = !input_.rarely();
    open.deadline = open.call.delivery == Delivery::exact ? exact_deadline : 2 * t_b;
    open.call.deadline = open.call.delivery == Delivery::exact ? exact_deadline : 0;
    if (input_.rarely()) open.call.limit = {t_b / 2, t_b, t_b / 4};
    const Bytes gradient = elements_of(open.call.format, 0, open.call.count,
                                       [this](std::uint32_t i) { return gradient_at(settings_.rank, i); });
    open.memory = std::make_unique<std::uint8_t[]>(gradient.size());
    std::ranges::copy(gradient, open.memory.get());
    open.call.data = open.memory.get();
    const std::uint32_t number = victim_.next_operation();
    FUZZ_CHECK(victim_.call(now_, open.call) == number);
    FUZZ_CHECK(calls_.emplace(number, std::move(open)).second);
  }

  void send_note() {
    if (notes_pending_.size() > 20) return;
    const auto ticket = victim_.send_note(now_, somebody(), 9, Bytes(input_.below(3000), 5), exact_deadline);
    FUZZ_CHECK(notes_pending_.emplace(ticket, now_ + exact_deadline).second);
  }

  // Until somebody reads them, notes count against what a peer may make this rank hold.
  void read_notes() {
    for (const Note& note : untaken_) {
      victim_.release_note(note.sender, note.bytes.size());
      untaken_bytes_[note.sender] -= note.bytes.size();
    }
    untaken_.clear();
  }

  // -- what peers say ------------------------------------------------------------------------------------------------
  // Of everything the victim has sent to this peer.
  void acknowledge_truly(std::uint16_t peer) {
    const std::uint64_t sent = victim_.path(peer).counters().datagrams_sent;
    if (sent == 0) return;
    const Ack ack{.receive_window = 1 << 16, .ranges = {{0, sent - 1}}};
    Header header;
    header.type = PacketType::ack;
    if (input_.rarely()) header.operation = input_.below(2 * max_calls);
    say(peer, {header, encode(ack)});
  }
  void repeat() {
    if (said_.empty()) return;
    const Said& again = said_[input_.below(static_cast<std::uint32_t>(said_.size()))];
    const auto drop = receive(again.datagram);
    if (again.opened) FUZZ_CHECK(drop == Drop::replay || drop == Drop::too_old);
  }

  void say(std::uint16_t sender, const Statement& statement) {
    deliver(sender, peers_[sender].sealed(statement.header, statement.payload));
  }
  void deliver(std::uint16_t sender, const Bytes& datagram) {
    if (settings_.protection != Protection::insecure && input_.rarely()) deliver_damaged(datagram);
    const std::uint64_t before = victim_.path(sender).counters().datagrams_received;
    receive(datagram);
    said_.push_back({datagram, victim_.path(sender).counters().datagrams_received != before});
    if (said_.size() > 64) said_.erase(said_.begin());
  }
  // What does not authenticate changes nothing.
  void deliver_damaged(Bytes datagram) {
    datagram[input_.below(static_cast<std::uint32_t>(datagram.size()))] ^=
        static_cast<std::uint8_t>(input_.between(1, 255));
    const std::size_t early = victim_.early_bytes();
    const std::size_t open = victim_.open_operations();
    const auto drop = receive(datagram);
    FUZZ_CHECK(drop && refused_unread(*drop));
    FUZZ_CHECK(victim_.early_bytes() == early && victim_.open_operations() == open);
  }

  std::optional<Drop> receive(Bytes datagram) {
    const DropCounts before = victim_.drops();
    victim_.receive(now_, datagram);
    std::optional<Drop> cause;
    for (std::size_t i = 0; i < num_drops; ++i) {
      const std::uint64_t more = victim_.drops()[i] - before[i];
      FUZZ_CHECK(more == 0 || (more == 1 && !cause));  // one cause
      if (more == 1) cause = static_cast<Drop>(i);
    }
    collect();
    return cause;
  }

  // -- time ----------------------------------------------------------------------------------------------------------
  void advance(Duration by) {
    const Time until = now_ + by;
    while (victim_.next_timer() <= until) {
      now_ = std::max(now_, victim_.next_timer());
      pump();
    }
    now_ = until;
  }

  void pump() {
    for (int round = 0; round < 2; ++round) {
      if (victim_.next_timer() <= now_) victim_.on_timer(now_);
      drain();
      collect();
    }
    FUZZ_CHECK(victim_.next_timer() > now_);  // or the reactor would spin
  }

  void drain() {
    int batches = 0;
    while (victim_.fill(now_, batch_)) {
      FUZZ_CHECK(++batches < 10'000);
      std::size_t part = 0;
      for (const std::uint32_t num_parts : batch_.parts_per_datagram) {
        Bytes datagram;
        for (const std::size_t last = part + num_parts; part < last; ++part) {
          const auto* from = static_cast<const std::uint8_t*>(batch_.parts[part].iov_base);
          datagram.insert(datagram.end(), from, from + batch_.parts[part].iov_len);
        }
        FUZZ_CHECK(datagram.size() <= settings_.datagram_bytes);
        Header header;
        FUZZ_CHECK(!decode(datagram, datagram.size() - header_bytes - tag_bytes_of(settings_.protection), header));
      }
    }
  }

  // -- what must hold ------------------------------------------------------------------------------------------------
  bool nothing_left() const {
    return calls_.empty() && notes_pending_.empty() && victim_.open_operations() == 0 && victim_.early_bytes() == 0;
  }

  void check_caps() const {
    FUZZ_CHECK(victim_.early_bytes() <= settings_.early_bytes_cap);
    FUZZ_CHECK(victim_.open_operations() <= settings_.max_open_operations + num_calls_);
  }

  void collect() {
    for (const OperationReport& report : victim_.take_reports()) {
      const auto found = calls_.find(report.operation);
      FUZZ_CHECK(found != calls_.end());
      const OpenCall& open = found->second;
      FUZZ_CHECK(report.elapsed <= open.deadline && now_ <= open.called_at + open.deadline);
      FUZZ_CHECK(report.delivered <= report.expected);
      if (report.status == Status::mismatch) {
        FUZZ_CHECK(!report.culprits.empty());
      } else {
        check_values(report, open);
      }
      calls_.erase(found);
    }
    for (const Note& note : victim_.take_notes()) {
      untaken_bytes_[note.sender] += note.bytes.size();
      FUZZ_CHECK(untaken_bytes_[note.sender] <= settings_.max_note_bytes);
      untaken_.push_back(note);
      FUZZ_CHECK(notes_taken_.emplace(note.sender, note.number).second);
      for (std::size_t i = 0; i < note.bytes.size(); ++i) {
        FUZZ_CHECK(note.bytes[i] == note_byte(note.sender, note.number, i));
      }
    }
    for (const SentNote& sent : victim_.take_sent_notes()) {
      const auto found = notes_pending_.find(sent.ticket);
      FUZZ_CHECK(found != notes_pending_.end() && now_ <= found->second);
      notes_pending_.erase(found);
    }
    victim_.take_peer_changes();
  }

  void check_values(const OperationReport& report, const OpenCall& open) const {
    std::vector<bool> missing(open.call.count, false);
    for (const ElementRange& range : report.missing) {
      for (std::uint32_t i = range.begin; i < range.end; ++i) {
        FUZZ_CHECK(i < open.call.count && !missing[i]);
        missing[i] = true;
      }
    }
    std::vector<double> values(open.call.count);
    kernels::cast(Format::f64, values.data(), open.call.format, open.call.data, open.call.count);
    const double whole = open.call.average ? 1 : settings_.num_ranks;
    for (std::uint16_t owner = 0; owner < settings_.num_ranks; ++owner) {
      const ElementRange shard = shard_range(open.call.count, settings_.num_ranks,
                                             responsible_shard(owner, report.operation, settings_.num_ranks));
      for (std::uint32_t i = shard.begin; i < shard.end; ++i) {
        if (missing[i]) {
          FUZZ_CHECK(values[i] == 0);
        } else if (owner != settings_.rank) {
          FUZZ_CHECK(values[i] == result_at(owner, i));
        } else {
          FUZZ_CHECK(values[i] >= 0.99 * whole &&
                     values[i] <= (fuzz::max_gradient + 0.5) * whole);  // a mean of gradients
        }
      }
    }
  }

  fuzz::Input& input_;
  Time now_ = 100 * second;
  EndpointSettings settings_;
  fuzz::Liar liar_{input_, settings_};
  Endpoint victim_;
  std::vector<fuzz::Peer> peers_;  // by rank; the victim's own is never used
  TransmitBatch batch_;
  std::uint32_t num_calls_ = 0;
  std::map<std::uint32_t, OpenCall> calls_;
  std::map<std::uint32_t, Time> notes_pending_;                    // until when each must be settled
  std::set<std::pair<std::uint16_t, std::uint32_t>> notes_taken_;  // sender and number
  std::vector<Note> untaken_;
  std::map<std::uint16_t, std::size_t> untaken_bytes_;  // by sender
  std::vector<Said> said_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Attack(input).run();
  return 0;
}
