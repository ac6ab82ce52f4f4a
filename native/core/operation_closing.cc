// When the stages of an operation end, and what follows.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/operation.h"

namespace holdfast {
namespace {

// Packets of one path keep their order, but for a few that take another road: through the network, or through another
// core of a busy host.
constexpr Duration shortest_overtaking = 500 * microsecond;

}  // namespace

// The stage state machine of OptiReduce 4.4: complete, early by the last-percentile rule, at the limit of what is
// usual, or at the bound.
StageEnd Operation::contributions_verdict(Time now) const {
  bool complete = called_;
  for (const std::uint16_t peer : part_.team) {
    const bool expected = identity_.delivery == Delivery::exact ? peer != rank_ : expects(peer);
    complete = complete && (!expected || contributed_by(peer).complete());
  }
  if (complete) return StageEnd::complete;
  if (identity_.delivery == Delivery::exact) return StageEnd::open;
  if (now >= contributions_end_by()) return now >= contributions_bound() ? StageEnd::bound : StageEnd::limit;
  return now >= early_close_at(Stage::contribution) ? StageEnd::early : StageEnd::open;
}

StageEnd Operation::results_verdict(Time now) const {
  if (!called_ || contributions_end_ == StageEnd::open) return StageEnd::open;
  bool complete = own_result_at_ != never;
  for (const std::uint16_t peer : part_.team) {
    const bool expected = identity_.delivery == Delivery::exact ? peer != rank_ : expects(peer);
    complete = complete && (!expected || peers_[peer].result.complete());
  }
  if (complete) return StageEnd::complete;
  if (identity_.delivery == Delivery::exact) return StageEnd::open;
  if (now >= results_end_by()) return now >= results_bound() ? StageEnd::bound : StageEnd::limit;
  return now >= early_close_at(Stage::result) ? StageEnd::early : StageEnd::open;
}

Time Operation::contributions_bound() const {
  if (identity_.delivery == Delivery::exact) return never;
  if (call_.contributions_until != 0) return call_.contributions_until;
  return opened_at_ + contributions_within_;
}

// The second stage has its own bound, but a first one that closed late (this process did not run) does not extend the
// operation: no call outlives its deadline.
Time Operation::results_bound() const {
  if (!called_ || contributions_end_ == StageEnd::open || identity_.delivery == Delivery::exact) return never;
  if (call_.results_until != 0) return call_.results_until;
  if (of_group()) return std::max(opened_at_ + num_stages() * stage_bound_, called_at_ + stage_bound_);
  return std::min(std::max(contributions_closed_at_, called_at_) + stage_bound_, called_at_ + 2 * stage_bound_);
}

Time Operation::contributions_end_by() const {
  const Time bound = contributions_bound();
  return called_ && call_.limit.holds() ? std::min(bound, opened_at_ + call_.limit.contributions) : bound;
}

Time Operation::results_end_by() const {
  const Time bound = results_bound();
  if (bound == never || !call_.limit.holds()) return bound;
  const Time begun_at = std::max(contributions_closed_at_, called_at_);
  return std::min(bound, std::max(called_at_ + call_.limit.whole, begun_at + call_.limit.results));
}

// OptiReduce 3.2.1: with at least something of every sender's last percentile in, x % of t_C of silence ends the stage.
Time Operation::early_close_at(Stage stage) const {
  if (!called_ || identity_.delivery == Delivery::exact) return never;
  const bool contributions = stage == Stage::contribution;
  if (!contributions && own_result_at_ == never) return never;
  bool all_ended = true;
  bool heard_anybody = false;
  bool repairs = false;
  Time all_away_at = 0;
  for (const std::uint16_t peer : part_.team) {
    if (!expects(peer)) continue;
    const bool complete = contributions ? contributed_by(peer).complete() : peers_[peer].result.complete();
    const Arrival& arrival = contributions ? peers_[peer].of_contribution : peers_[peer].of_result;
    if (complete || arrival.marked) {
      heard_anybody = true;
      if (complete) continue;
      all_ended = all_ended && arrival.ended;
      repairs = repairs || !contributions;
      continue;
    }
    all_ended = false;  // the silence must last its whole time
    all_away_at = std::max(all_away_at, away_at(stage, peer));
  }
  if (!heard_anybody) return end_of_own_absence(stage);
  if (all_away_at == never) return never;
  const Time quiet_since = contributions ? std::max(last_contribution_at_, called_at_)
                                         : std::max({last_result_at_, own_result_at_, called_at_});
  return std::max(quiet_since + early_wait(stage, all_ended) + (repairs ? repair_grace() : 0), all_away_at);
}

// Where nobody is heard, it is this rank that is away, and waits: there is nothing else to do. When the others answer
// again after longer than a stage they have gone on without it, as it would have (`away_at`), and what does not come at
// once never will. Of two nobody knows which one was away.
Time Operation::end_of_own_absence(Stage stage) const {
  if (part_.team.size <= 2) return never;
  Time back_at = never;
  for (const std::uint16_t peer : part_.team) {
    if (!expects(peer) || !outbox_.heard_since(peer, opened_at_)) continue;
    const Time answered = outbox_.answered_again_at(peer, stage_bound_);
    const bool was_silent = answered != never && answered >= opened_at_;
    if (!was_silent || peers_[peer].heard) return never;  // it was there all the time, or what was kept is coming
    back_at = back_at == never ? answered : std::max(back_at, answered);
  }
  return back_at == never ? never : std::max(back_at, called_at_) + early_wait(stage, false);
}

// From when on a peer that is not heard to its end is not waited for, once the others are in. One that is only late
// answers, and serves its duty.
Time Operation::away_at(Stage stage, std::uint16_t peer) const {
  // It had nothing to say in the whole first stage, about this or anything else: no results will come.
  const bool silent = !peers_[peer].heard && !outbox_.heard_since(peer, opened_at_);
  if (stage == Stage::result && own_shard_.size() != 0 && silent) return 0;
  // It was away, answers again, and is still busy with what the others have done without it.
  if (outbox_.is_coming_back(peer) && !peers_[peer].heard) return 0;
  // A stage is as much patience as anybody gets, over all operations together: one that was away is so for each.
  const Time unanswered = outbox_.unanswered_since(peer);
  return unanswered == never ? never : unanswered + stage_bound_;
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
  if (of_group()) return;  // of this rank's group it would be, and not of all
  const std::uint8_t* own = call_.data + own_shard_.begin * element_bytes(identity_.format);
  const std::uint32_t before = streamed_.present_elements();
  for (const ElementRange& part : sum_.ready_in(arrived)) {
    sum_.finish_part(part, own, identity_.average);
    // Packets of different senders end at different elements: each may complete a block or two, and to tell the paths
    // of every one of these is not worth it.
    if (growing_.end != part.begin) {
      stream_growing();
      growing_.begin = part.begin;
    }
    growing_.end = part.end;
    if (growing_.size() >= chunk_elements_) stream_growing();
  }
  if (streamed_.present_elements() != before) continue_turns(Stage::result);
}

void Operation::stream_growing() {
  if (growing_.size() == 0) return;
  const ElementRange part = to_bucket(growing_);
  streamed_.mark(growing_.begin, growing_.size(), [](ElementRange) {});
  growing_.begin = growing_.end;
  if (!streamable_.empty() && streamable_.back().end == part.begin) {
    streamable_.back().end = part.end;
  } else {
    streamable_.push_back(part);
  }
  for (const std::uint16_t peer : part_.team) {
    const std::uint32_t message = peers_[peer].result_sending.message;
    if (message != 0) outbox_.release(peer, message, part);
  }
}

void Operation::close_contributions(Time now, StageEnd end) {
  contributions_end_ = end;
  contributions_closed_at_ = now;
  if (end == StageEnd::early) early_ends_.contributions_until = contributions_end_by();
  has_own_ = called_;
  const std::uint8_t* own = called_ ? call_.data + own_shard_.begin * element_bytes(identity_.format) : nullptr;
  own_result_ = sum_.finish(own, identity_.average);
  if (of_group() && own_shard_.size() != 0) return;
  for (ElementRange& hole : own_result_.holes) hole = to_bucket(hole);
  for (Gap& gap : own_result_.gaps) gap.range = to_bucket(gap.range);
  publish_own_result(now);
}

// The result of the own shard is known: to the caller, and to those who wait for it.
void Operation::publish_own_result(Time now) {
  own_result_at_ = now;
  if (called_ && !ended_ && own_result_.elements) {
    const std::size_t size = element_bytes(identity_.format);
    std::uint8_t* callers = call_.data + own_shard_.begin * size;
    std::memcpy(callers, own_result_.elements.get(), own_shard_.size() * size);
    if (narrowing_) narrowing_->set_callers_results(callers);
  }
  for (const std::uint16_t peer : part_.team) {
    const std::uint32_t message = peers_[peer].result_sending.message;
    if (message == 0) continue;
    streamed_.for_each_run(0, own_shard_.size(), false,
                           [&](ElementRange rest) { outbox_.release(peer, message, to_bucket(rest)); });
    outbox_.close(peer, message, own_result_.holes, own_result_.gaps, not_contributed_by(peer));
  }
  continue_turns(Stage::result);
}

void Operation::close_results(Time now, StageEnd stage_end) {
  results_end_ = stage_end;
  // Where lost results are sent again, the grace decided, not the silence that x stands for.
  if (stage_end == StageEnd::early && repair_grace() == 0) early_ends_.results_until = results_end_by();
  const bool heard_anybody = std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.heard; });
  const bool tells = heard_anybody && called_ && identity_.delivery != Delivery::exact;
  for (const std::uint16_t peer : part_.team) {
    if (peer == rank_) continue;
    peers_[peer].away = !peers_[peer].heard;
    // Who heard nobody was away itself, and knows nothing about the others.
    if (tells) outbox_.note_part(now, peer, peers_[peer].heard, stage_bound_);
  }
  end(now);
}

void Operation::fail(Time now, Status status, std::vector<std::uint16_t> culprits) {
  report_.status = status;
  report_.culprits = std::move(culprits);
  // What others wait for is still sent, unless it belongs to another bucket than theirs, or is only a beginning.
  if (status == Status::mismatch || own_result_at_ == never) stop_sending_results();
  if (status == Status::mismatch) announce_identity();
  end(now);
}

// From here on the caller's memory belongs to the caller again.
void Operation::end(Time now) {
  ended_ = true;
  if (narrowing_) narrowing_->set_callers_results(nullptr);
  for (const std::uint16_t peer : part_.team) {
    stop_sending(peer, peers_[peer].contribution_sending, contribution_turns_);
  }
  fill_report(now);
}

}  // namespace holdfast
