#include "core/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace holdfast {
namespace {

// Packets of one path keep their order, but for a few that take another road: through the network, or through another
// core of a busy host.
constexpr Duration shortest_overtaking = 500 * microsecond;

}  // namespace

Operation::Operation(std::uint32_t number, std::uint16_t rank, std::uint16_t num_ranks, const Identity& identity,
                     std::uint16_t identified_by, Time now, const Parameters& parameters, Outbox& outbox,
                     BufferPool& pool)
    : number_(number),
      rank_(rank),
      num_ranks_(num_ranks),
      identity_(identity),
      parameters_(parameters),
      own_shard_(shard_of(rank)),
      outbox_(outbox),
      pool_(pool),
      peers_(num_ranks),
      identified_by_(identified_by),
      opened_at_(now),
      last_packet_at_(now),
      stage_bound_(parameters.t_b),
      sum_(own_shard_.size(), identity.format, rank, num_ranks, pool),
      early_bytes_(bookkeeping_bytes(identity, num_ranks)),
      chunk_elements_(outbox.chunk_elements(identity.format)),
      streamed_((own_shard_.size() + chunk_elements_ - 1) / chunk_elements_, false) {
  if (parameters_.deterministic) sum_.sum_in_rank_order();
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    peers_[peer].shard = shard_of(peer);
    peers_[peer].result = Presence(peers_[peer].shard.size());
  }
}

// Nothing on the wire says how a bucket is divided. Every packet names its elements by their place in the bucket, so of
// a rank that divides otherwise only what falls inside the shard expected of it is taken.
ElementRange Operation::shard_of(std::uint16_t rank) const {
  const Division& division = identity_.delivery == Delivery::exact ? Division::even() : parameters_.division;
  return division.shard(identity_.total, num_ranks_, rank, number_);
}

Operation::Identity Operation::identity_of(const Call& call) {
  return {call.count, call.layout, call.format, call.delivery, call.average};
}

Operation::Identity Operation::identity_of(const Header& header) {
  const bool exact = (header.flags & flag::exact) != 0;
  return {header.total, header.layout, header.format, exact ? Delivery::exact : Delivery::bounded,
          (header.flags & flag::sum) == 0};
}

// Bitmaps of contributions, of the sum and of results: sixteen elements to the bit.
std::size_t Operation::bookkeeping_bytes(const Identity& identity, std::uint16_t num_ranks) {
  return num_ranks * sizeof(Peer) + 3 * (std::size_t{identity.total} / (8 * block_elements));
}

// ---------------------------------------------------------------------------------------------------- the own call

void Operation::on_call(Time now, const Call& call) {
  call_ = call;
  called_ = true;
  called_at_ = now;
  if (call.deadline > 0) stage_bound_ = call.deadline / 2;
  if (const Identity identity = identity_of(call); identity != identity_) {
    identity_ = identity;  // the report and the announcement speak of what this rank called
    fail(now, Status::mismatch, {identified_by_});
    return;
  }
  if (conflict_) {
    fail(now, Status::mismatch, {conflicting_peer_});
    return;
  }
  identified_by_ = rank_;
  adopt_early_results();  // also when the call fails: the report speaks of what arrived before it
  if (const auto gone = gone_peers(); !gone.empty() && identity_.delivery == Delivery::exact) {
    fail(now, Status::peer_dead, gone);  // nothing it could wait for
    return;
  }
  continue_turns(Stage::contribution);
  stream_results({0, own_shard_.size()});
  progress(now);
}

// Results that came before the call move into the caller's memory.
void Operation::adopt_early_results() {
  const std::size_t size = element_bytes(identity_.format);
  const auto copy = [&](ElementRange range, const std::uint8_t* from) {
    std::memcpy(call_.data + range.begin * size, from, range.size() * size);
  };
  if (early_results_) {
    for (const Peer& peer : peers_) {
      peer.result.for_each_run(0, peer.shard.size(), true, [&](ElementRange run) {
        const ElementRange absolute{peer.shard.begin + run.begin, peer.shard.begin + run.end};
        copy(absolute, early_results_.get() + absolute.begin * size);
      });
    }
    early_results_.reset();
  }
  if (contributions_end_ != StageEnd::open && own_result_.elements) copy(own_shard_, own_result_.elements.get());
}

// ---------------------------------------------------------------------------------------------------- packets

std::optional<Drop> Operation::on_packet(Time now, const Header& header, std::span<const std::uint8_t> payload) {
  last_packet_at_ = now;
  if (identity_of(header) != identity_) return note_conflict(now, header.sender);
  peers_[header.sender].heard = true;
  const bool is_contribution = header.stage == Stage::contribution;
  const StageEnd stage_end = is_contribution ? contributions_end_ : results_end_;
  if (ended_ || stage_end != StageEnd::open) {
    if (header.type == PacketType::end) return std::nullopt;  // an end repeated, nothing lost
    return Drop::late;
  }
  const auto drop = is_contribution ? place_contribution(now, header, payload) : place_result(now, header, payload);
  if (!drop) progress(now);
  return drop;
}

std::optional<Drop> Operation::note_conflict(Time now, std::uint16_t sender) {
  if (!conflict_) {
    conflict_ = true;
    conflicting_peer_ = sender;
  }
  if (called_ && !ended_) fail(now, Status::mismatch, {sender});
  // Before the own call nobody here knows who is right: results would make this rank the liar's mouth.
  if (!called_) stop_sending_results();
  return Drop::mismatch;
}

std::optional<Drop> Operation::place_contribution(Time now, const Header& header,
                                                  std::span<const std::uint8_t> payload) {
  Peer& peer = peers_[header.sender];
  if (header.type == PacketType::data) {
    const std::uint32_t count = covered_elements(header, payload.size());
    const std::uint32_t begin = header.offset - own_shard_.begin;
    if (header.offset < own_shard_.begin || !sum_.from(header.sender).fits(begin, count)) return Drop::misplaced;
    if (const std::size_t bytes = sum_.bytes_to_allocate(); bytes != 0 && !called_) {
      if (!outbox_.may_hold_early(bytes)) return Drop::early_over_cap;
      early_bytes_ += bytes;
    }
    if (sum_.add(header.sender, begin, count, payload.data()) == 0) return Drop::duplicate;
    last_contribution_at_ = now;
    stream_results({begin, begin + count});
  }
  note_progress(now, header, peer.of_contribution);
  return std::nullopt;
}

std::optional<Drop> Operation::place_result(Time now, const Header& header, std::span<const std::uint8_t> payload) {
  Peer& peer = peers_[header.sender];
  const std::uint32_t count = covered_elements(header, payload.size());
  const std::uint32_t begin = header.offset - peer.shard.begin;
  if (header.type != PacketType::end) {
    if (header.offset < peer.shard.begin || !peer.result.fits(begin, count)) return Drop::misplaced;
    // The owner may lack some contributions but never all of them: that would be a hole.
    const bool lacks_all = header.missing > std::uint64_t{count} * (num_ranks_ - 1u);
    if (header.type == PacketType::data && lacks_all) return Drop::malformed;
    // The owner of an exact sum closes it with everything or not at all.
    const bool lacks_any = header.type == PacketType::hole || header.missing != 0;
    if (lacks_any && identity_.delivery == Delivery::exact) return Drop::malformed;
    if (!called_ && !hold_results_early()) return Drop::early_over_cap;
    // Once the owner has closed its sum, what is still to be sent of the own contribution would come too late. Before
    // that a result is only sent where every contribution has arrived, so what it is written over is not needed again.
    if ((header.flags & flag::closed) != 0) {
      peer.closed = true;
      stop_sending(header.sender, peer.contribution_sending, contribution_turns_);
      continue_turns(Stage::contribution);
    }
    const std::size_t size = element_bytes(identity_.format);
    const std::uint32_t added = peer.result.mark(begin, count, [&](ElementRange run) {
      const ElementRange absolute{peer.shard.begin + run.begin, peer.shard.begin + run.end};
      if (header.type == PacketType::hole) {
        peer.hole_elements += run.size();
        result_holes_.push_back(absolute);
        std::memset(result_memory(absolute), 0, run.size() * size);
      } else {
        std::memcpy(result_memory(absolute), payload.data() + (run.begin - begin) * size, run.size() * size);
      }
    });
    if (added == 0) return Drop::duplicate;
    if (header.type == PacketType::data) {
      peer.delivered += std::uint64_t{added} * num_ranks_ - std::uint64_t{header.missing} * added / count;
    }
    last_result_at_ = now;
  }
  note_progress(now, header, peer.of_result);
  return std::nullopt;
}

void Operation::note_progress(Time now, const Header& header, Arrival& arrival) {
  if (header.type != PacketType::end) {
    if (arrival.first_at < 0) arrival.first_at = now;
    arrival.last_at = now;
  }
  if ((header.flags & flag::last_percentile) != 0) arrival.marked = true;
  if (header.type == PacketType::end) arrival.ended = true;
  if (header.completion_us != 0) arrival.sample_us = header.completion_us;
}

bool Operation::hold_results_early() {
  if (early_results_) return true;
  const std::size_t bytes = identity_.total * element_bytes(identity_.format);
  if (!outbox_.may_hold_early(bytes)) return false;
  early_results_ = pool_.take(bytes);
  early_bytes_ += bytes;
  return true;
}

std::uint8_t* Operation::result_memory(ElementRange range) {
  std::uint8_t* base = called_ ? call_.data : early_results_.get();
  return base + range.begin * element_bytes(identity_.format);
}

// ---------------------------------------------------------------------------------------------------- when stages end

// The stage state machine of OptiReduce 4.4: complete, early by the last-percentile rule, or at the bound.
StageEnd Operation::contributions_verdict(Time now) const {
  bool complete = called_;
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    const bool expected = identity_.delivery == Delivery::exact ? peer != rank_ : expects(peer);
    complete = complete && (!expected || sum_.from(peer).complete());
  }
  if (complete) return StageEnd::complete;
  if (identity_.delivery == Delivery::exact) return StageEnd::open;
  if (now >= contributions_bound()) return StageEnd::bound;
  return now >= early_close_at(Stage::contribution) ? StageEnd::early : StageEnd::open;
}

StageEnd Operation::results_verdict(Time now) const {
  if (!called_ || contributions_end_ == StageEnd::open) return StageEnd::open;
  bool complete = true;
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    const bool expected = identity_.delivery == Delivery::exact ? peer != rank_ : expects(peer);
    complete = complete && (!expected || peers_[peer].result.complete());
  }
  if (complete) return StageEnd::complete;
  if (identity_.delivery == Delivery::exact) return StageEnd::open;
  if (now >= results_bound()) return StageEnd::bound;
  return now >= early_close_at(Stage::result) ? StageEnd::early : StageEnd::open;
}

Time Operation::contributions_bound() const {
  if (identity_.delivery == Delivery::exact) return never;
  return opened_at_ + stage_bound_;
}

// The second stage has its own bound, but a first one that closed late (this process did not run) does not extend the
// operation: no call outlives its deadline.
Time Operation::results_bound() const {
  if (!called_ || contributions_end_ == StageEnd::open || identity_.delivery == Delivery::exact) return never;
  return std::min(std::max(contributions_closed_at_, called_at_), called_at_ + stage_bound_) + stage_bound_;
}

// OptiReduce 3.2.1: with at least something of every sender's last percentile in, x % of t_C of silence ends the stage.
Time Operation::early_close_at(Stage stage) const {
  if (!called_ || identity_.delivery == Delivery::exact) return never;
  const bool contributions = stage == Stage::contribution;
  bool all_ended = true;
  bool heard_anybody = contributions;
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    if (!expects(peer)) continue;
    // Whoever had nothing to say in the whole first stage is away: its results are not waited for to the bound, once
    // those of the others are in.
    if (!contributions && own_shard_.size() != 0 && !peers_[peer].heard) {
      all_ended = false;  // though the silence must last its whole time
      continue;
    }
    heard_anybody = true;
    const bool complete = contributions ? sum_.from(peer).complete() : peers_[peer].result.complete();
    if (complete) continue;
    const Arrival& arrival = contributions ? peers_[peer].of_contribution : peers_[peer].of_result;
    if (!arrival.marked) return never;
    all_ended = all_ended && arrival.ended;
  }
  if (!heard_anybody) return never;  // it is this rank that is away
  const Time quiet_since = contributions ? std::max(last_contribution_at_, called_at_)
                                         : std::max({last_result_at_, contributions_closed_at_, called_at_});
  return quiet_since + early_wait(stage, all_ended);
}

Duration Operation::early_wait(Stage stage, bool all_ended) const {
  const Duration called_with = (stage == Stage::contribution ? call_.contributions : call_.results).early_wait;
  const auto usual = static_cast<Duration>(parameters_.early_wait_ratio * static_cast<double>(parameters_.t_c));
  const Duration wait = called_with >= 0 ? called_with : usual;
  // Where everybody has said that all was sent, what is missing is lost, or has been overtaken on the way: a shorter
  // silence will do, but one that still grows with x, where that is not enough.
  return all_ended ? std::min(wait, std::max(wait / 4, shortest_overtaking)) : wait;
}

void Operation::progress(Time now) {
  if (ended_) return;
  if (contributions_end_ == StageEnd::open) {
    if (const StageEnd verdict = contributions_verdict(now); verdict != StageEnd::open)
      close_contributions(now, verdict);
  }
  if (const StageEnd verdict = results_verdict(now); verdict != StageEnd::open) close_results(now, verdict);
}

// Where all contributions are in, the result need not wait for the rest of the shard: else the network would stand idle
// while the last contributions are on their way.
void Operation::stream_results(ElementRange arrived) {
  if (!called_ || ended_ || conflict_ || contributions_end_ != StageEnd::open || arrived.size() == 0) return;
  const std::uint8_t* own = call_.data + own_shard_.begin * element_bytes(identity_.format);
  const std::size_t first = streamable_.size();
  for (std::uint32_t chunk = arrived.begin / chunk_elements_; chunk * chunk_elements_ < arrived.end; ++chunk) {
    const ElementRange range{chunk * chunk_elements_, std::min((chunk + 1) * chunk_elements_, own_shard_.size())};
    if (streamed_[chunk] || !sum_.has_all(range)) continue;
    sum_.finish_part(range, own, identity_.average);
    streamed_[chunk] = true;
    streamable_.push_back({range.begin + own_shard_.begin, range.end + own_shard_.begin});
  }
  if (first == streamable_.size()) return;
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    const std::uint32_t message = peers_[peer].result_sending.message;
    if (message == 0) continue;
    for (std::size_t i = first; i < streamable_.size(); ++i) outbox_.release(peer, message, streamable_[i]);
  }
  continue_turns(Stage::result);
}

void Operation::close_contributions(Time now, StageEnd end) {
  contributions_end_ = end;
  contributions_closed_at_ = now;
  const std::size_t size = element_bytes(identity_.format);
  const std::uint8_t* own = called_ ? call_.data + own_shard_.begin * size : nullptr;
  own_result_ = sum_.finish(own, identity_.average);
  const auto to_bucket = [this](ElementRange range) {
    return ElementRange{range.begin + own_shard_.begin, range.end + own_shard_.begin};
  };
  for (ElementRange& hole : own_result_.holes) hole = to_bucket(hole);
  for (Gap& gap : own_result_.gaps) gap.range = to_bucket(gap.range);
  if (called_ && own_result_.elements) {
    std::memcpy(call_.data + own_shard_.begin * size, own_result_.elements.get(), own_shard_.size() * size);
  }
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    const std::uint32_t message = peers_[peer].result_sending.message;
    if (message == 0) continue;
    for (std::uint32_t chunk = 0; chunk < streamed_.size(); ++chunk) {
      if (streamed_[chunk]) continue;
      const ElementRange range{chunk * chunk_elements_, std::min((chunk + 1) * chunk_elements_, own_shard_.size())};
      outbox_.release(peer, message, to_bucket(range));
    }
    outbox_.close(peer, message, own_result_.holes, own_result_.gaps);
  }
  continue_turns(Stage::result);
}

void Operation::close_results(Time now, StageEnd stage_end) {
  results_end_ = stage_end;
  end(now);
}

void Operation::fail(Time now, Status status, std::vector<std::uint16_t> culprits) {
  report_.status = status;
  report_.culprits = std::move(culprits);
  // What others wait for is still sent, unless it belongs to another bucket than theirs, or is only a beginning.
  if (status == Status::mismatch || contributions_end_ == StageEnd::open) stop_sending_results();
  if (status == Status::mismatch) announce_identity();
  end(now);
}

// From here on the caller's memory belongs to the caller again.
void Operation::end(Time now) {
  ended_ = true;
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    stop_sending(peer, peers_[peer].contribution_sending, contribution_turns_);
  }
  fill_report(now);
}

// ---------------------------------------------------------------------------------------------------- sending

std::uint32_t Operation::concurrent_turns() const {
  std::uint32_t least = num_ranks_;
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    const std::uint8_t credit = expects(peer) ? outbox_.credit_of(peer) : 0;
    if (credit != 0) least = std::min<std::uint32_t>(least, credit);
  }
  return least;
}

void Operation::continue_turns(Stage stage) {
  const bool contributions = stage == Stage::contribution;
  if (contributions ? (!called_ || ended_)
                    : ((contributions_end_ == StageEnd::open && streamable_.empty()) || failed() || conflict_))
    return;
  Turns& turns = contributions ? contribution_turns_ : result_turns_;
  const std::uint32_t most = concurrent_turns();
  while (turns.started + 1 < num_ranks_ && turns.unsent < most) {
    const auto peer = static_cast<std::uint16_t>(peer_of_turn(rank_, ++turns.started, num_ranks_));
    const bool pointless =
        !outbox_.is_alive(peer) ||
        (contributions ? peers_[peer].closed || peers_[peer].shard.size() == 0 : own_shard_.size() == 0);
    if (pointless) continue;
    ++turns.unsent;
    contributions ? send_contribution(peer) : send_result(peer);
  }
}

MessageContent Operation::message_of(Stage stage) const {
  MessageContent content;
  content.stage = stage;
  content.delivery = identity_.delivery;
  content.average = identity_.average;
  content.operation = number_;
  content.layout = identity_.layout;
  content.format = identity_.format;
  content.total = identity_.total;
  return content;
}

// An empty message, of which only the ends are sent: the others learn that this rank called something else, instead of
// waiting for what will never come.
void Operation::announce_identity() {
  MessageContent content = message_of(Stage::contribution);
  content.delivery = Delivery::bounded;
  content.of_exact_operation = identity_.delivery == Delivery::exact;
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    if (expects(peer)) outbox_.enqueue(peer, content);
  }
}

void Operation::send_contribution(std::uint16_t peer) {
  MessageContent content = message_of(Stage::contribution);
  content.range = peers_[peer].shard;
  content.completion_us = call_.contributions.sample_us;
  content.data = call_.data + content.range.begin * element_bytes(identity_.format);
  peers_[peer].contribution_sending = {outbox_.enqueue(peer, std::move(content)), true};
}

void Operation::send_result(std::uint16_t peer) {
  MessageContent content = message_of(Stage::result);
  content.range = own_shard_;
  content.completion_us = call_.results.sample_us;
  content.open = contributions_end_ == StageEnd::open;
  content.owner = content.open ? sum_.elements() : own_result_.elements;
  content.data = static_cast<const std::uint8_t*>(content.owner.get());
  content.holes = own_result_.holes;
  content.gaps = own_result_.gaps;
  peers_[peer].result_sending = {outbox_.enqueue(peer, std::move(content)), true};
  if (contributions_end_ != StageEnd::open) return;
  for (const ElementRange& range : streamable_) outbox_.release(peer, peers_[peer].result_sending.message, range);
}

void Operation::on_message_sent(std::uint16_t peer, std::uint32_t message) {
  const bool contribution = message == peers_[peer].contribution_sending.message;
  Sending& sending = contribution ? peers_[peer].contribution_sending : peers_[peer].result_sending;
  if (message != sending.message || !sending.unsent) return;
  sending.unsent = false;
  --(contribution ? contribution_turns_ : result_turns_).unsent;
  continue_turns(contribution ? Stage::contribution : Stage::result);
}

void Operation::on_message_finished(std::uint16_t peer, std::uint32_t message) {
  if (message == peers_[peer].contribution_sending.message) peers_[peer].contribution_sending = {};
  if (message == peers_[peer].result_sending.message) peers_[peer].result_sending = {};
}

void Operation::stop_sending(std::uint16_t peer, Sending& sending, Turns& turns) {
  if (sending.message != 0) outbox_.cancel(peer, sending.message);
  if (sending.unsent) --turns.unsent;
  sending = {};
}

void Operation::stop_sending_results() {
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    stop_sending(peer, peers_[peer].result_sending, result_turns_);
  }
}

// Two stages after the sum was closed nobody waits for it any more: a peer that acknowledges none of it must not keep
// it in memory for ever.
Time Operation::results_wanted_until() const {
  // The others wait by the common bound, however short the own deadline is.
  const Duration common = std::max(stage_bound_, parameters_.t_b);
  return contributions_closed_at_ == never ? never : contributions_closed_at_ + 2 * common;
}

// ---------------------------------------------------------------------------------------------------- time and peers

void Operation::on_peer_gone(Time now, std::uint16_t peer) {
  stop_sending(peer, peers_[peer].contribution_sending, contribution_turns_);
  stop_sending(peer, peers_[peer].result_sending, result_turns_);
  if (!ended_ && identity_.delivery == Delivery::exact && called_ && owes(peer)) {
    fail(now, Status::peer_dead, {peer});
    return;
  }
  // Those whose turn was waiting for this peer's are owed the result even when the own call has ended.
  continue_turns(Stage::contribution);
  continue_turns(Stage::result);
  progress(now);
}

std::vector<std::uint16_t> Operation::gone_peers() const {
  std::vector<std::uint16_t> peers;
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    if (peer != rank_ && !outbox_.is_alive(peer)) peers.push_back(peer);
  }
  return peers;
}

// Who holds this rank up. One rank that does not contribute leaves everybody without results, so whose contribution is
// missing is to blame before whose result is.
std::vector<std::uint16_t> Operation::undelivered_peers() const {
  std::vector<std::uint16_t> without_contribution;
  std::vector<std::uint16_t> without_result;
  for (std::uint16_t peer = 0; peer < num_ranks_; ++peer) {
    if (peer == rank_) continue;
    if (!sum_.from(peer).complete()) without_contribution.push_back(peer);
    if (!peers_[peer].result.complete()) without_result.push_back(peer);
  }
  return without_contribution.empty() ? without_result : without_contribution;
}

void Operation::on_timer(Time now) {
  if (abandoned_) return;
  if (ended_) {
    if (now >= results_wanted_until()) stop_sending_results();
    return;
  }
  if (!called_ && now >= last_packet_at_ + parameters_.duty_limit) {
    abandon();
    return;
  }
  if (identity_.delivery == Delivery::exact && called_ && now >= called_at_ + 2 * stage_bound_) {
    fail(now, Status::deadline_exceeded, undelivered_peers());
    return;
  }
  progress(now);
}

// The own rank never joined and the others have long fallen silent.
void Operation::abandon() {
  abandoned_ = true;
  stop_sending_results();
}

Time Operation::next_timer() const {
  if (abandoned_ || retired()) return never;
  if (ended_) return results_wanted_until();
  Time next = called_ ? never : last_packet_at_ + parameters_.duty_limit;
  if (identity_.delivery == Delivery::exact) return called_ ? called_at_ + 2 * stage_bound_ : next;
  if (contributions_end_ == StageEnd::open) {
    return std::min({next, contributions_bound(), early_close_at(Stage::contribution)});
  }
  return std::min({next, results_bound(), called_ ? early_close_at(Stage::result) : never});
}

bool Operation::retired() const {
  if (!ended_ && !abandoned_) return false;
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.result_sending.message == 0; });
}

// ---------------------------------------------------------------------------------------------------- the report

void Operation::fill_report(Time now) {
  report_.operation = number_;
  report_.delivery = identity_.delivery;
  report_.format = identity_.format;
  report_.total = identity_.total;
  report_.elapsed = now - called_at_;
  report_.waited_for_call = called_at_ - opened_at_;
  report_.contributions = {
      contributions_end_, contributions_closed_at_ == never ? now - opened_at_ : contributions_closed_at_ - opened_at_};
  report_.results = {results_end_,
                     contributions_closed_at_ == never ? 0 : now - std::max(contributions_closed_at_, called_at_)};
  report_.expected = std::uint64_t{identity_.total} * num_ranks_;
  report_.delivered = 0;
  if (report_.status == Status::mismatch) return;  // the pieces are of another bucket
  report_.peers.resize(num_ranks_);
  for (std::uint16_t rank = 0; rank < num_ranks_; ++rank) {
    if (rank == rank_) continue;
    const Peer& peer = peers_[rank];
    PeerReport& entry = report_.peers[rank];
    entry.contributed = sum_.from(rank).present_elements();
    entry.contribution_size = own_shard_.size();
    entry.results = peer.result.present_elements() - peer.hole_elements;
    entry.result_size = peer.shard.size();
    entry.contribution_arrived = since_opening(peer.of_contribution);
    entry.result_arrived = since_opening(peer.of_result);
    entry.alive = outbox_.is_alive(rank);
    entry.contributions_sample_us = peer.of_contribution.sample_us;
    entry.results_sample_us = peer.of_result.sample_us;
  }
  collect_missing();
}

ArrivalSpan Operation::since_opening(const Arrival& arrival) const {
  if (arrival.first_at < 0) return {};
  return {arrival.first_at - opened_at_, arrival.last_at - opened_at_};
}

// Zeroes what did not arrive, lists it, and adds up how many contributions the rest stands for.
void Operation::collect_missing() {
  const auto lose = [this](ElementRange range) {
    const std::size_t size = element_bytes(identity_.format);
    std::memset(call_.data + range.begin * size, 0, range.size() * size);
    report_.missing.push_back(range);
  };
  for (std::uint16_t rank = 0; rank < num_ranks_; ++rank) {
    if (rank == rank_) continue;
    const Peer& peer = peers_[rank];
    peer.result.for_each_run(0, peer.shard.size(), false, [&](ElementRange run) {
      lose({peer.shard.begin + run.begin, peer.shard.begin + run.end});
    });
    report_.delivered += peer.delivered;
  }
  // A failed operation may not have got as far as its own sum: what is there is only the own gradient.
  if (contributions_end_ == StageEnd::open && own_shard_.size() != 0) lose(own_shard_);
  report_.missing.insert(report_.missing.end(), result_holes_.begin(), result_holes_.end());
  report_.missing.insert(report_.missing.end(), own_result_.holes.begin(), own_result_.holes.end());
  report_.delivered += own_result_.delivered;
  std::sort(report_.missing.begin(), report_.missing.end(),
            [](const ElementRange& left, const ElementRange& right) { return left.begin < right.begin; });
}

}  // namespace holdfast
