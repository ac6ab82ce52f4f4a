#include "core/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace holdfast {
namespace {

// What lies in `part` of them, counted from its beginning.
std::vector<Gap> within(ElementRange part, const std::vector<Gap>& gaps) {
  std::vector<Gap> inside;
  for (const Gap& gap : gaps) {
    const ElementRange common{std::max(gap.range.begin, part.begin), std::min(gap.range.end, part.end)};
    if (common.begin >= common.end) continue;
    inside.push_back({{common.begin - part.begin, common.end - part.begin}, gap.missing_per_element});
  }
  return inside;
}

}  // namespace

Operation::Operation(std::uint32_t number, std::uint16_t rank, std::uint16_t num_ranks, const Identity& identity,
                     std::uint16_t identified_by, Time now, const Parameters& parameters, Outbox& outbox,
                     BufferPool& pool, const Part& part)
    : number_(number),
      rank_(rank),
      num_ranks_(num_ranks),
      part_(part),
      identity_(identity),
      parameters_(parameters),
      division_(division_of(identity, parameters_)),
      own_shard_(shard_of(rank)),
      outbox_(outbox),
      pool_(pool),
      peers_(num_ranks),
      identified_by_(identified_by),
      opened_at_(now),
      last_packet_at_(now),
      stage_bound_(part.kind == Part::Kind::whole || part.hosts_meet ? parameters.t_b : parameters.t_b / 2),
      contributions_within_(stage_bound_),
      sum_(own_shard_.size(), identity.format, part.team.place_of(rank), part.team.size, pool, part.ranks_each),
      early_bytes_(bookkeeping_bytes(identity, num_ranks)),
      chunk_elements_(outbox.chunk_elements(identity.format)),
      streamed_(own_shard_.size()) {
  if (parameters_.deterministic) sum_.sum_in_rank_order();
  if (parameters_.zero_fill) sum_.fill_with_zeros();
  if (may_be_of_two_minds()) sum_.require_gradients(num_ranks_ / 2 + 1);
  for (const std::uint16_t peer : part_.team) {
    peers_[peer].was_gone = peer != rank_ && !outbox_.is_alive(peer);
    peers_[peer].shard = shard_of(peer);
    peers_[peer].result = Presence(peers_[peer].shard.size());
  }
}

const Division& Operation::division_of(const Identity& identity, const Parameters& parameters) const {
  if (identity.delivery == Delivery::exact || part_.kind != Part::Kind::whole) return Division::even();
  return parameters.division.of_bucket(identity.total, num_ranks_);
}

ElementRange Operation::shard_of(std::uint16_t rank) const {
  const std::uint32_t place = part_.team.place_of(rank);
  // What a group lacks lies on the grid of its shard, and must do so in the shards of the shard.
  if (between_groups()) {
    return shard_of_blocks(identity_.total, part_.team.size, responsible_shard(place, part_.rotation, part_.team.size));
  }
  return division_.shard(identity_.total, part_.team.size, place, part_.rotation);
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
  if (call.deadline > 0) stage_bound_ = call.deadline / num_stages();
  contributions_within_ = call.contributions_within > 0 && !of_group() ? call.contributions_within : stage_bound_;
  if (of_group()) call_.limit = {};  // its stages are ended one by one
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
  if (!call_.gaps.empty() && contributions_end_ == StageEnd::open) sum_.own_lacks(within(own_shard_, call_.gaps));
  start_narrowing();
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
  if (own_result_at_ != never && own_result_.elements) copy(own_shard_, own_result_.elements.get());
}

// ---------------------------------------------------------------------------------------------------- packets

std::optional<Drop> Operation::on_packet(Time now, const Header& header, std::span<const std::uint8_t> payload) {
  last_packet_at_ = now;
  if (identity_of(header) != identity_) return note_conflict(now, header.sender);
  if (!part_.team.has(header.sender)) return Drop::misplaced;
  // A rank that missed an agreement, or has it before this one: an element can have two owners then, and none but those
  // that divide alike may be believed about it.
  if (header.division != division_.number()) return Drop::other_division;
  if (header.encoded != encoded_by(identity_, parameters_)) return Drop::other_encoding;
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
  if (carries_elements(header.type)) {
    const std::uint32_t count = covered_elements(header, payload.size());
    const std::uint32_t begin = header.offset - own_shard_.begin;
    if (header.offset < own_shard_.begin || !contributed_by(header.sender).fits(begin, count)) return Drop::misplaced;
    const std::uint32_t lacking = between_groups() ? header.missing / count : 0;
    if (between_groups() && (header.missing % count != 0 || lacking > part_.ranks_each)) return Drop::malformed;
    if (lacking != 0 && identity_.delivery == Delivery::exact) return Drop::malformed;
    if (const std::size_t bytes = sum_.bytes_to_allocate(); bytes != 0 && !called_) {
      if (!outbox_.may_hold_early(bytes)) return Drop::early_over_cap;
      early_bytes_ += bytes;
    }
    const std::uint16_t place = part_.team.place_of(header.sender);
    const std::uint32_t added = sum_.add(place, begin, count, payload.data(), lacking);
    if (added == 0) return Drop::duplicate;
    note_received(header, added);
    if (narrowing_ && header.type == PacketType::narrow) narrowing_->on_narrow_contribution({begin, begin + count});
    last_contribution_at_ = now;
    stream_results({begin, begin + count});
  }
  note_progress(now, header, peer.of_contribution);
  return std::nullopt;
}

void Operation::note_received(const Header& header, std::uint32_t elements) {
  if (header.type == PacketType::narrow) {
    report_.narrow_elements += elements;
    if (header.stage == Stage::contribution) peers_[header.sender].narrow_contribution += elements;
  }
  if (narrowing_) narrowing_->pace().on_received(header.sender, header.stage, elements);
}

std::optional<Drop> Operation::place_result(Time now, const Header& header, std::span<const std::uint8_t> payload) {
  Peer& peer = peers_[header.sender];
  const std::uint32_t count = covered_elements(header, payload.size());
  const std::uint32_t begin = header.offset - peer.shard.begin;
  if (header.type != PacketType::end) {
    if (header.offset < peer.shard.begin || !peer.result.fits(begin, count)) return Drop::misplaced;
    // The owner may lack some contributions but never all of them: that would be a hole.
    const bool lacks_all = header.missing > std::uint64_t{count} * (num_ranks_ - 1u);
    if (carries_elements(header.type) && lacks_all) return Drop::malformed;
    // The owner of an exact sum closes it with everything or not at all.
    const bool lacks_any = header.type == PacketType::hole || header.missing != 0;
    if (lacks_any && identity_.delivery == Delivery::exact) return Drop::malformed;
    const bool has_gap = between_groups() && carries_elements(header.type) && header.missing != 0;
    if (has_gap && header.missing % count != 0) return Drop::malformed;
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
      if (header.type == PacketType::hole || header.missing != 0)
        note_counted(absolute, header, header.missing / count);
      if (header.type == PacketType::hole) {
        peer.hole_elements += run.size();
        result_holes_.push_back(absolute);
        std::memset(result_memory(absolute), 0, run.size() * size);
      } else {
        std::memcpy(result_memory(absolute), payload.data() + (run.begin - begin) * size, run.size() * size);
        if (has_gap) result_gaps_.push_back({absolute, header.missing / count});
      }
    });
    if (added == 0) return Drop::duplicate;
    note_received(header, added);
    if (carries_elements(header.type)) {
      peer.delivered += std::uint64_t{added} * num_ranks_ - std::uint64_t{header.missing} * added / count;
      // What is missing may be spread unevenly: then some element lacks less than the mean.
      peer.contributors = std::max(peer.contributors, num_ranks_ - header.missing / count);
    }
    last_result_at_ = now;
  }
  note_progress(now, header, peer.of_result);
  return std::nullopt;
}

// Packets of results end where what their elements lack changes, if it is asked for: what holds for a packet holds for
// each of them then.
void Operation::note_counted(ElementRange range, const Header& header, std::uint32_t missing_per_element) {
  if (part_.kind != Part::Kind::whole) return;
  float times = 0;
  if (carries_elements(header.type) && !header.without_receiver) {
    if (parameters_.zero_fill) return;
    // The weights of ShardSum::combine, times all ranks.
    const std::uint32_t sharing = header.without_owner ? num_ranks_ : num_ranks_ - 1u;
    times = static_cast<float>(sharing) / static_cast<float>(std::max(1u, sharing - missing_per_element));
  }
  counted_.push_back({range, times});
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

bool Operation::closed_without_somebody() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.away; });
}

// ---------------------------------------------------------------------------------------------------- time and peers

void Operation::on_peer_gone(Time now, std::uint16_t peer) {
  if (narrowing_) narrowing_->pace().on_gone(peer);
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
  for (const std::uint16_t peer : part_.team) {
    if (peer == rank_) continue;
    if (!contributed_by(peer).complete()) without_contribution.push_back(peer);
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
  // While the groups are summed, the deadline is that of the operation between them, which knows who is to blame.
  if (identity_.delivery == Delivery::exact && called_ && now >= exact_due() && !awaits_groups()) {
    fail(now, Status::deadline_exceeded, undelivered_peers());
    return;
  }
  progress(now);
}

void Operation::abandon() {
  abandoned_ = true;
  stop_sending_results();
}

Time Operation::next_timer() const {
  if (abandoned_ || retired()) return never;
  if (ended_) return results_wanted_until();
  Time next = called_ ? never : last_packet_at_ + parameters_.duty_limit;
  if (identity_.delivery == Delivery::exact) return !called_ ? next : awaits_groups() ? never : exact_due();
  if (contributions_end_ == StageEnd::open) {
    return std::min({next, contributions_end_by(), early_close_at(Stage::contribution)});
  }
  return std::min({next, results_end_by(), called_ ? early_close_at(Stage::result) : never});
}

// ---------------------------------------------------------------------------------------------------- groups

Call Operation::call_between_groups(Time now) {
  groups_ = Groups::asked;
  Call call;
  call.data = own_result_.elements.get();
  call.owner = own_result_.elements;
  call.count = own_shard_.size();
  call.format = identity_.format;
  call.layout = identity_.layout;
  call.delivery = identity_.delivery;
  call.average = identity_.average;
  call.gaps = own_result_.gaps;
  for (const ElementRange& hole : own_result_.holes) call.gaps.push_back({hole, part_.team.size});
  std::sort(call.gaps.begin(), call.gaps.end(),
            [](const Gap& left, const Gap& right) { return left.range.begin < right.range.begin; });
  // Each of the four stages ends by its quarter of the deadline, however early those before it did: a group that waited
  // to the bound for one of its ranks still has time to be heard by the others.
  call.deadline = 2 * stage_bound_;
  call.contributions_until = opened_at_ + 2 * stage_bound_;
  call.results_until = opened_at_ + 3 * stage_bound_;
  if (identity_.delivery == Delivery::exact) call.deadline = std::max<Duration>(exact_due() - now, 2);
  call.contributions.early_wait = call_.contributions.early_wait;
  call.results.early_wait = call_.results.early_wait;
  call.repair_grace = call_.repair_grace;
  return call;
}

void Operation::on_groups_summed(Time now, const Operation& between) {
  groups_ = Groups::answered;
  const OperationReport& report = between.report();
  if (report.status != Status::done) {
    if (called_ && !ended_) fail(now, report.status, report.culprits);
    if (!called_) note_conflict(now, report.culprits.front());
    return;
  }
  own_result_.holes.clear();
  for (const ElementRange& range : report.missing) own_result_.holes.push_back(to_bucket(range));
  own_result_.gaps = between.gaps_by_element();
  for (Gap& gap : own_result_.gaps) gap.range = to_bucket(gap.range);
  own_result_.delivered = report.delivered;
  if (!ended_) report_.groups = {report.contributions, report.results, between.own_included()};
  counterparts_ = report.peers;
  const Duration later = between.opened_at_ - opened_at_;
  for (PeerReport& peer : counterparts_) {
    for (ArrivalSpan* span : {&peer.contribution_arrived, &peer.result_arrived}) {
      if (span->first >= 0)
        *span = {std::max<Duration>(span->first + later, 0), std::max<Duration>(span->last + later, 0)};
    }
  }
  publish_own_result(now);
  progress(now);
}

void Operation::on_groups_forgotten(Time now) {
  groups_ = Groups::answered;
  if (identity_.delivery == Delivery::exact) {
    if (!ended_) fail(now, Status::deadline_exceeded, {rank_});
    return;
  }
  own_result_.holes = {own_shard_};
  own_result_.gaps.clear();
  own_result_.delivered = 0;
  std::memset(own_result_.elements.get(), 0, own_shard_.size() * element_bytes(identity_.format));
  publish_own_result(now);
  progress(now);
}

// Where the result lacks contributors, element by element.
std::vector<Gap> Operation::gaps_by_element() const {
  std::vector<Gap> gaps = result_gaps_;
  gaps.insert(gaps.end(), own_result_.gaps.begin(), own_result_.gaps.end());
  std::sort(gaps.begin(), gaps.end(),
            [](const Gap& left, const Gap& right) { return left.range.begin < right.range.begin; });
  return gaps;
}

bool Operation::retired() const {
  if (!ended_ && !abandoned_) return false;
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.result_sending.message == 0; });
}

}  // namespace holdfast
