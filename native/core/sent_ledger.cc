#include "core/sent_ledger.h"

#include <algorithm>

namespace holdfast {

void SentLedger::Settled::clear() {
  acknowledged.clear();
  lost.clear();
  acknowledged_bytes = 0;
  has_rtt_sample = false;
  rtt_sample = card_wait = 0;
  newest = {};
}

void SentLedger::record(const SentPacket& packet) {
  entries_.push_back({packet, true});
  bytes_in_flight_ += packet.bytes;
  ++outstanding_;
}

void SentLedger::record_unacknowledged() {
  if (entries_.empty()) {
    ++first_;
  } else {
    entries_.push_back({});
  }
}

Time SentLedger::oldest_sent_at() const {
  for (const Entry& entry : entries_) {
    if (entry.outstanding) return entry.packet.sent_at;
  }
  return never;
}

const SentPacket* SentLedger::oldest_outstanding() const {
  for (const Entry& entry : entries_) {
    if (entry.outstanding && entry.packet.message != 0) return &entry.packet;
  }
  return nullptr;
}

void SentLedger::settle(Entry& entry, std::vector<SentPacket>& into) {
  entry.outstanding = false;
  bytes_in_flight_ -= entry.packet.bytes;
  --outstanding_;
  into.push_back(entry.packet);
}

void SentLedger::drop_settled_front() {
  while (!entries_.empty() && !entries_.front().outstanding) {
    entries_.pop_front();
    ++first_;
  }
}

bool SentLedger::acknowledge(const Ack& ack, Time now, Settled& settled) {
  const std::uint64_t largest = ack.ranges.front().last;
  if (largest >= next_number()) return false;
  bool largest_is_new = false;
  for (const AckRange& range : ack.ranges) {
    if (range.last < first_) break;  // ranges run from new to old
    for (std::uint64_t number = std::max(range.first, first_); number <= range.last; ++number) {
      Entry& entry = entries_[number - first_];
      if (!entry.outstanding) continue;
      if (number == largest) largest_is_new = true;
      settled.acknowledged_bytes += entry.packet.bytes;
      if (entry.packet.sent_at >= settled.newest.sent_at) settled.newest = entry.packet;
      settle(entry, settled.acknowledged);
    }
  }
  if (largest_is_new) {
    // Only the largest number says when it left relative to this ack; the others may have waited in older acks.
    settled.has_rtt_sample = true;
    settled.rtt_sample = now - entries_[largest - first_].packet.sent_at;
    settled.card_wait = entries_[largest - first_].packet.card_wait;
  }
  if (!any_acknowledged_ || largest > largest_acknowledged_) {
    any_acknowledged_ = true;
    largest_acknowledged_ = largest;
  }
  drop_settled_front();
  return true;
}

void SentLedger::detect_loss(Time now, const RttEstimator& rtt, Settled& settled) {
  loss_check_at_ = never;
  if (!any_acknowledged_) return;
  const Duration patience = rtt.loss_delay();
  for (std::uint64_t number = first_; number < next_number() && number < largest_acknowledged_; ++number) {
    Entry& entry = entries_[number - first_];
    if (!entry.outstanding) continue;
    const bool overtaken = largest_acknowledged_ - number >= reordering_threshold;
    const bool too_old = entry.packet.sent_at + patience <= now;
    if (overtaken || too_old) {
      settle(entry, settled.lost);
    } else {
      loss_check_at_ = std::min(loss_check_at_, entry.packet.sent_at + patience);
    }
  }
  drop_settled_front();
}

void SentLedger::abandon(Settled& settled) {
  for (Entry& entry : entries_) {
    if (entry.outstanding) settle(entry, settled.lost);
  }
  drop_settled_front();
  loss_check_at_ = never;
}

}  // namespace holdfast
