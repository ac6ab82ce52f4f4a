// What an operation sends, to whom, and in which order.
#include <algorithm>
#include <utility>

#include "core/operation.h"

namespace holdfast {

std::uint32_t Operation::concurrent_turns() const {
  std::uint32_t least = part_.team.size;
  for (const std::uint16_t peer : part_.team) {
    const std::uint8_t credit = expects(peer) ? outbox_.credit_of(peer) : 0;
    if (credit != 0) least = std::min<std::uint32_t>(least, credit);
  }
  return least;
}

void Operation::continue_turns(Stage stage) {
  const bool contributions = stage == Stage::contribution;
  if (contributions ? (!called_ || ended_)
                    : ((own_result_at_ == never && streamable_.empty()) || failed() || conflict_))
    return;
  Turns& turns = contributions ? contribution_turns_ : result_turns_;
  const std::uint32_t most = concurrent_turns();
  const Team& team = part_.team;
  while (turns.started + 1 < team.size && turns.unsent < most) {
    const std::uint16_t peer = team.rank_at(peer_of_turn(team.place_of(rank_), ++turns.started, team.size));
    const bool pointless =
        !outbox_.is_alive(peer) || (contributions ? peers_[peer].closed || peers_[peer].shard.size() == 0
                                                  : !outbox_.wants_results(peer, number_) || own_shard_.size() == 0);
    if (pointless) continue;
    ++turns.unsent;
    contributions ? send_contribution(peer) : send_result(peer);
  }
}

// Two large bursts: paths take turns, so a burst is nothing that one is behind by.
constexpr std::uint32_t least_packets_behind = 22;

void Operation::start_narrowing() {
  // What went to somebody before the own call has all its bits, and nobody here knows how far it has come.
  const bool begun = own_result_at_ != never;
  const bool alike = identity_.format == Format::f32 && identity_.delivery == Delivery::bounded && !of_group();
  // Where credit lets few send at once, those whose turn comes later are behind for no other reason.
  const bool all_at_once = concurrent_turns() + 1u >= part_.team.size;
  if (call_.narrow_behind_ratio <= 0 || begun || !alike || !all_at_once || parameters_.deterministic) return;
  Pace pace(num_ranks_, call_.narrow_behind_ratio, least_packets_behind * chunk_elements_);
  for (const std::uint16_t peer : part_.team) {
    if (!expects(peer) || outbox_.is_on_this_host(peer)) continue;
    pace.expect(peer, peers_[peer].shard.size(), own_shard_.size());
    pace.on_received(peer, Stage::contribution, contributed_by(peer).present_elements());
    pace.on_received(peer, Stage::result, peers_[peer].result.present_elements());
  }
  narrowing_ = std::make_shared<Narrowing>(Narrowing::Identity{number_, rank_, own_shard_}, pace);
}

MessageContent Operation::message_of(Stage stage) const {
  MessageContent content;
  content.stage = stage;
  content.delivery = identity_.delivery;
  content.average = identity_.average;
  content.operation = number_;
  content.layout = identity_.layout;
  // After a mismatch the identity is what this rank called, which may be divided otherwise than what was opened.
  content.division = division_of(identity_, parameters_).number();
  content.encoded = encoded_by(identity_, parameters_);
  content.format = identity_.format;
  content.total = identity_.total;
  content.cut_at_gaps = between_groups() || parameters_.tells_by_element;
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
  content.gaps = call_.gaps;
  content.narrowing = narrowing_;
  content.receiver = peer;
  peers_[peer].contribution_sending = {outbox_.enqueue(peer, std::move(content)), true};
}

void Operation::send_result(std::uint16_t peer) {
  MessageContent content = message_of(Stage::result);
  content.range = own_shard_;
  content.completion_us = call_.results.sample_us;
  content.open = own_result_at_ == never;
  const BufferPool::Buffer& elements = content.open ? sum_.elements() : own_result_.elements;
  if (narrowing_) narrowing_->set_results(elements.get());
  content.owner = elements;
  content.data = static_cast<const std::uint8_t*>(content.owner.get());
  content.narrowing = narrowing_;
  content.receiver = peer;
  content.holes = own_result_.holes;
  content.gaps = own_result_.gaps;
  content.without_receiver = not_contributed_by(peer);
  content.without_owner = part_.kind == Part::Kind::whole && own_result_at_ != never && !has_own_;
  content.repaired = parameters_.repair_grace > 0;
  peers_[peer].result_sending = {outbox_.enqueue(peer, std::move(content)), true};
  if (own_result_at_ != never) return;
  for (const ElementRange& range : streamable_) outbox_.release(peer, peers_[peer].result_sending.message, range);
}

// What this rank did not get of a peer's contribution, in time: the result tells the peer. An acknowledgement would
// not, for it is also given to what comes too late.
std::vector<ElementRange> Operation::not_contributed_by(std::uint16_t peer) const {
  std::vector<ElementRange> ranges;
  if (part_.kind != Part::Kind::whole || own_result_at_ == never) return ranges;
  const Presence& contributed = contributed_by(peer);
  if (contributed.complete()) return ranges;
  contributed.for_each_run(0, own_shard_.size(), false, [&](ElementRange run) { ranges.push_back(to_bucket(run)); });
  return ranges;
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
  if (narrowing_)
    narrowing_->pace().on_given_up(
        peer, &sending == &peers_[peer].contribution_sending ? Stage::contribution : Stage::result);
  if (sending.unsent) --turns.unsent;
  sending = {};
}

void Operation::on_results_unwanted(std::uint16_t peer) {
  if (peers_[peer].result_sending.message == 0) return;
  stop_sending(peer, peers_[peer].result_sending, result_turns_);
  continue_turns(Stage::result);
}

void Operation::stop_sending_results() {
  for (const std::uint16_t peer : part_.team) {
    stop_sending(peer, peers_[peer].result_sending, result_turns_);
  }
}

// Two stages after the sum was closed nobody waits for it any more: a peer that acknowledges none of it must not keep
// it in memory for ever.
Time Operation::results_wanted_until() const {
  // The others wait by the common bound, however short the own deadline is.
  const Duration common = std::max(stage_bound_, parameters_.t_b);
  return own_result_at_ == never ? never : own_result_at_ + 2 * common;
}

}  // namespace holdfast
