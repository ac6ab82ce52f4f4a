// What is in flight on one path, and what became of it: acknowledgements by ranges of transmission numbers in any
// order, loss by three later acks or 9/8 of a round trip (RFC 9002 6.1).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/rate.h"
#include "core/rtt.h"
#include "core/wire.h"

namespace holdfast {

struct SentPacket {
  Time sent_at = 0;
  Duration card_wait = 0;  // that it then waited in this host's own network card
  std::uint32_t bytes = 0;
  // Which elements of which outgoing message it carried; message 0 is no message (ping).
  std::uint32_t message = 0;
  std::uint32_t offset = 0;
  std::uint32_t count = 0;
  bool is_end = false;
  DeliverySnapshot delivery;
};

class SentLedger {
 public:
  // What one ack, or the passing of time, settled. Reused between calls to spare allocations.
  struct Settled {
    std::vector<SentPacket> acknowledged;
    std::vector<SentPacket> lost;
    std::uint64_t acknowledged_bytes = 0;
    bool has_rtt_sample = false;
    Duration rtt_sample = 0;
    Duration card_wait = 0;  // of it, in this host's own network card
    SentPacket newest;

    void clear();
  };

  std::uint64_t next_number() const { return first_ + entries_.size(); }
  std::uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  bool has_outstanding() const { return outstanding_ != 0; }
  Time oldest_sent_at() const;

  // Every datagram takes a number; only those that ask for an ack are kept.
  void record(const SentPacket& packet);
  void record_unacknowledged();

  // False when the ack speaks of numbers never sent: nothing of it is believed.
  bool acknowledge(const Ack& ack, Time now, Settled& settled);
  // Declares lost what has waited too long behind a later acknowledged packet.
  void detect_loss(Time now, const RttEstimator& rtt, Settled& settled);
  Time loss_check_at() const { return loss_check_at_; }
  // The peer is gone: everything in flight is lost.
  void abandon(Settled& settled);
  // The oldest packet in flight that carried part of a message, for a probe to repeat.
  const SentPacket* oldest_outstanding() const;

 private:
  struct Entry {
    SentPacket packet;
    bool outstanding = false;
  };
  static constexpr std::uint64_t reordering_threshold = 3;

  void settle(Entry& entry, std::vector<SentPacket>& into);
  void drop_settled_front();

  std::deque<Entry> entries_;
  std::uint64_t first_ = 0;  // number of entries_.front()
  std::uint64_t bytes_in_flight_ = 0;
  std::uint64_t outstanding_ = 0;
  bool any_acknowledged_ = false;
  std::uint64_t largest_acknowledged_ = 0;
  Time loss_check_at_ = never;
};

}  // namespace holdfast
