// The modelled network: what becomes of a datagram between one host's send and another host's socket.
//
// A host's uplink serialises what it sends; links delay it and lose or disturb it; the switch port of the receiver has
// a finite queue, which is where incast drops come from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/time.h"
#include "sim/carrier_loss.h"
#include "sim/event_queue.h"
#include "sim/random.h"
#include "sim/scenario.h"

namespace holdfast::sim {

// What the receiver is about to see. Copies of a genuine datagram are genuine: whether it is the first to arrive is
// for the receiver to know.
enum class Origin : std::uint8_t { genuine, replayed, corrupted, truncated, forged };

struct Datagram {
  std::uint16_t from = 0;
  std::uint16_t to = 0;
  Origin origin = Origin::genuine;
  std::vector<std::uint8_t> bytes;
};

struct NetworkCounters {
  std::uint64_t sent = 0;
  std::uint64_t reached_host = 0;
  std::uint64_t lost_by_chance = 0;
  std::uint64_t lost_in_burst = 0;
  std::uint64_t lost_one_way = 0;
  std::uint64_t lost_last_packets = 0;
  std::uint64_t lost_control = 0;
  std::uint64_t lost_credits = 0;
  std::uint64_t lost_marks = 0;
  std::uint64_t lost_ends = 0;
  std::uint64_t lost_samples = 0;
  std::uint64_t lost_acks = 0;
  std::uint64_t lost_in_black_hole = 0;
  std::uint64_t dropped_at_port = 0;
  std::uint64_t dropped_at_socket = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t truncated = 0;
  std::uint64_t replayed = 0;
  std::uint64_t forged = 0;
  std::uint64_t stalled = 0;
};

// visit(name, left's counter, right's counter) for every counter.
template <class Left, class Right, class Visit>
void for_each_counter(Left& left, Right& right, Visit visit) {
#define HF_COUNTER(counter) visit(#counter, left.counter, right.counter)
  HF_COUNTER(sent);
  HF_COUNTER(reached_host);
  HF_COUNTER(lost_by_chance);
  HF_COUNTER(lost_in_burst);
  HF_COUNTER(lost_one_way);
  HF_COUNTER(lost_last_packets);
  HF_COUNTER(lost_control);
  HF_COUNTER(lost_credits);
  HF_COUNTER(lost_marks);
  HF_COUNTER(lost_ends);
  HF_COUNTER(lost_samples);
  HF_COUNTER(lost_acks);
  HF_COUNTER(lost_in_black_hole);
  HF_COUNTER(dropped_at_port);
  HF_COUNTER(dropped_at_socket);
  HF_COUNTER(duplicated);
  HF_COUNTER(reordered);
  HF_COUNTER(corrupted);
  HF_COUNTER(truncated);
  HF_COUNTER(replayed);
  HF_COUNTER(forged);
  HF_COUNTER(stalled);
#undef HF_COUNTER
}

class Network {
 public:
  Network(const Scenario& scenario, std::uint16_t num_ranks, std::uint16_t victim, std::uint64_t seed,
          EventQueue& events);

  // The time from which the victim's faults count; until then there are none.
  void start_faults_at(Time start) { faults_start_ = start; }
  // The time from which carriers are lost: a job that cannot form says nothing.
  void start_load_at(Time start) { load_start_ = start; }

  void send(Time now, std::uint16_t from, std::uint16_t to, std::span<const std::uint8_t> bytes);
  // A `reaches_port` event: queues the datagram for its receiver, or drops it.
  void on_reaches_port(Time now, std::uint32_t slot);
  // A `reaches_host` event: hands the datagram over.
  Datagram take(std::uint32_t slot);

  bool victim_is_faulty(Time now) const;
  NetworkCounters& counters() { return counters_; }
  const NetworkCounters& counters() const { return counters_; }

 private:
  // One directed pair.
  struct Link {
    bool in_burst = false;
    Time burst_changes_at = 0;
    Time stall_begins_at = 0;
    Time stall_ends_at = -1;
  };

  Link& link(std::uint16_t from, std::uint16_t to) { return links_[from * num_ranks_ + to]; }
  bool is_lost(Time now, std::uint16_t from, std::uint16_t to, std::span<const std::uint8_t> bytes);
  std::uint64_t& lost_with(Cargo cargo);
  bool in_burst(Time now, Link& link);
  Time stalled_until(Time now, Link& link);
  bool is_slow_pair(std::uint16_t from, std::uint16_t to) const { return from == victim_ && to == neighbour_; }
  double rate_of(Time now, std::uint16_t host, double gbps) const;
  Duration transfer_time(Time now, std::uint16_t host, std::size_t bytes, double gbps) const;
  void put_on_link(Time departs, std::uint16_t from, std::uint16_t to, Origin origin, std::vector<std::uint8_t> bytes);
  void disturb(Time departs, std::uint16_t from, std::uint16_t to, std::span<const std::uint8_t> bytes);
  std::vector<std::uint8_t> forgery_of(std::span<const std::uint8_t> genuine, std::uint16_t from);

  const Scenario& scenario_;
  const std::uint16_t num_ranks_;
  const std::uint16_t victim_;
  const std::uint16_t neighbour_;  // the other end of the victim's faulty link
  Random random_;
  EventQueue& events_;
  Time faults_start_ = never;
  Time load_start_ = never;
  CarrierLoss carrier_loss_;
  std::vector<Link> links_;
  std::vector<Time> uplink_free_at_;
  std::vector<Time> port_free_at_;
  std::vector<Datagram> datagrams_;  // by slot
  std::vector<std::uint32_t> free_slots_;
  NetworkCounters counters_;
};

}  // namespace holdfast::sim
