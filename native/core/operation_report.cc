// What an operation says about itself when it has ended.
#include <algorithm>
#include <cstring>

#include "core/operation.h"

namespace holdfast {

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
  report_.peers = counterparts_;
  report_.peers.resize(num_ranks_);
  for (std::uint16_t rank = 0; rank < num_ranks_; ++rank) report_.peers[rank].alive = outbox_.is_alive(rank);
  for (const std::uint16_t rank : part_.team) {
    if (rank == rank_) continue;
    const Peer& peer = peers_[rank];
    PeerReport& entry = report_.peers[rank];
    entry.contributed = contributed_by(rank).present_elements();
    entry.narrow_contributed = peer.narrow_contribution;
    entry.contribution_size = own_shard_.size();
    entry.results = peer.result.present_elements() - peer.hole_elements;
    entry.result_size = peer.shard.size();
    entry.contribution_arrived = since_opening(peer.of_contribution);
    entry.result_arrived = since_opening(peer.of_result);
    entry.contributions_sample_us = peer.of_contribution.sample_us;
    entry.results_sample_us = peer.of_result.sample_us;
    entry.silence = outbox_.silence_since(now, rank, opened_at_);
  }
  collect_missing();
}

ArrivalSpan Operation::since_opening(const Arrival& arrival) const {
  if (arrival.first_at < 0) return {};
  return {arrival.first_at - opened_at_, arrival.last_at - opened_at_};
}

// Where ranks divide differently, an element has an owner in each camp, and each would have its own result for it. Only
// one camp can be more than half of all ranks; whoever has not heard as many counts everything as lost.
bool Operation::heard_majority() const {
  const bool always_alike = identity_.delivery == Delivery::exact || part_.kind != Part::Kind::whole ||
                            !may_be_uneven(identity_.total, num_ranks_);
  if (always_alike || !parameters_.needs_majority) return true;
  const auto heard = std::count_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.heard; });
  return 2 * (1 + heard) > num_ranks_;
}

bool Operation::most_are_of_one_mind() const {
  if (!may_be_of_two_minds()) return true;
  std::uint32_t seen = part_.ranks_each;
  for (const std::uint16_t rank : part_.team) {
    if (rank != rank_ && contributed_by(rank).present_elements() != 0) seen += part_.ranks_each;
  }
  return 2 * seen > num_ranks_;
}

std::uint32_t Operation::own_contributors() const {
  std::uint32_t lacking = 0;
  std::uint32_t least_missing = num_ranks_;
  for (const ElementRange& hole : own_result_.holes) lacking += hole.size();
  for (const Gap& gap : own_result_.gaps) {
    lacking += gap.range.size();
    least_missing = std::min(least_missing, gap.missing_per_element);
  }
  return own_result_.delivered == 0 ? 0 : num_ranks_ - (lacking < own_shard_.size() ? 0 : least_missing);
}

// Where the own contribution does not count once. Of a result that did not arrive nobody here can tell, unless its
// owner had been dead all the time: it is taken to count, lest it would be given twice.
void Operation::collect_counted() {
  if (part_.kind != Part::Kind::whole || failed()) return;
  std::vector<Counted>& counted = report_.counted;
  counted = std::move(counted_);
  for (const std::uint16_t rank : part_.team) {
    const Peer& peer = peers_[rank];
    if (rank == rank_ || !peer.was_gone || outbox_.is_alive(rank)) continue;
    // What arrived of it has said it itself.
    peer.result.for_each_run(0, peer.shard.size(), false, [&](ElementRange run) {
      counted.push_back({{run.begin + peer.shard.begin, run.end + peer.shard.begin}, 0});
    });
  }
  if (own_shard_.size() != 0 && !has_own_) {
    counted.push_back({own_shard_, 0});
  } else {
    for (const ElementRange& hole : own_result_.holes) counted.push_back({hole, 0});
  }
  std::sort(counted.begin(), counted.end(),
            [](const Counted& left, const Counted& right) { return left.range.begin < right.range.begin; });
  const auto joins = [](Counted& before, const Counted& next) {
    if (before.range.end != next.range.begin || before.times != next.times) return false;
    before.range.end = next.range.end;
    return true;
  };
  std::size_t kept = 0;
  for (std::size_t i = 1; i < counted.size(); ++i) {
    if (!joins(counted[kept], counted[i])) counted[++kept] = counted[i];
  }
  if (!counted.empty()) counted.resize(kept + 1);
}

// Zeroes what did not arrive, lists it, and adds up how many contributions the rest stands for.
void Operation::collect_missing() {
  const auto lose = [this](ElementRange range) {
    const std::size_t size = element_bytes(identity_.format);
    std::memset(call_.data + range.begin * size, 0, range.size() * size);
    report_.missing.push_back(range);
  };
  if (!heard_majority()) {
    lose({0, identity_.total});
    report_.not_received = identity_.total;
    return;
  }
  // What is missing here may have reached another group, or those who did otherwise.
  const bool alike = !of_group() && most_are_of_one_mind();
  for (const std::uint16_t rank : part_.team) {
    if (rank == rank_) continue;
    const Peer& peer = peers_[rank];
    peer.result.for_each_run(0, peer.shard.size(), false, [&](ElementRange run) {
      lose({peer.shard.begin + run.begin, peer.shard.begin + run.end});
      // Who died on the way may have served some.
      const bool nobody_has_it = peer.was_gone && !outbox_.is_alive(rank) && alike;
      (nobody_has_it ? report_.ownerless : report_.not_received) += run.size();
    });
    report_.delivered += peer.delivered;
    report_.contributors = std::max(report_.contributors, peer.contributors);
  }
  report_.missing.insert(report_.missing.end(), result_holes_.begin(), result_holes_.end());
  // A failed operation may not have got as far as its own sum: what is there is only the own gradient.
  if (own_result_at_ == never) {
    if (own_shard_.size() != 0) lose(own_shard_);
    if (of_group()) report_.not_received += own_shard_.size();
  } else {
    report_.missing.insert(report_.missing.end(), own_result_.holes.begin(), own_result_.holes.end());
    report_.delivered += own_result_.delivered;
    report_.contributors = std::max(report_.contributors, own_contributors());
  }
  if (!alike) {
    for (const ElementRange& hole : result_holes_) report_.not_received += hole.size();
    for (const ElementRange& hole : own_result_.holes)
      report_.not_received += own_result_at_ == never ? 0 : hole.size();
  }
  collect_counted();
  std::sort(report_.missing.begin(), report_.missing.end(),
            [](const ElementRange& left, const ElementRange& right) { return left.begin < right.begin; });
}

}  // namespace holdfast
