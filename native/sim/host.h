// One simulated machine: an endpoint, its clock, its socket, and what its caller saw.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/digest.h"
#include "core/endpoint.h"
#include "sim/network.h"
#include "sim/steering.h"
#include "sim/truth.h"
#include "sim/violation.h"
#include "sim/workload.h"

namespace holdfast::sim {

// The elements of one message as they left: when the first and the last did, in true time.
struct Sending {
  Time first_at = never;
  Time last_at = never;
  std::uint64_t num_datagrams = 0;
  std::uint64_t payload_bytes = 0;
};

// What a host sent of an operation, or of one part of it, and what it was told.
struct HostPart {
  bool own_included = false;                // in the sum, as last seen; of a hierarchical operation
  std::uint64_t owners_closed = 0;          // bit r: rank r has said that it takes no more contributions
  std::vector<Sending> contributions_sent;  // by peer
  std::vector<Sending> results_sent;
};

// One rank's side of one operation.
struct HostOperation {
  bool called = false;
  bool reported = false;
  bool sent_result = false;  // before the own call
  Time called_at = 0;        // on the host's clock, like all times here but those of sendings
  Duration deadline = 0;     // as called
  TimeLimit limit;
  Duration t_b = 0;  // of this call, or of the time before it if that was longer
  Time reported_at = 0;
  Time first_late_contribution = never;  // the first good contribution that was turned away as late
  Time first_late_result = never;
  std::vector<std::uint8_t> memory;  // the caller's
  std::uint64_t memory_digest = 0;   // when it was reported
  OperationReport report;
  HostPart whole;  // or within the group
  HostPart between_groups;
};

struct HostNote {
  bool sent = false;
  bool settled = false;
  Time sent_at = 0;
  Time settled_at = 0;
  std::uint32_t ticket = 0;
  NoteFate fate = NoteFate::delivered;
};

// A stretch of the host's clock during which it could not run.
struct Absence {
  Time begin = 0;
  Time end = 0;
};

class Host {
 public:
  Host(const EndpointSettings& settings, const Workload& workload, std::size_t socket_queue_bytes, Steering& steering,
       Network& network, EventQueue& events, Truth& truth, Violations& violations);

  // Events. `now` is true time; a host that is frozen or dead keeps to the rules by itself.
  void on_datagram(Time now, Datagram datagram);
  void on_wake(Time now);
  void on_call(Time now, std::uint32_t operation);
  void on_send_note(Time now, std::size_t note);
  void on_freeze(Time now);
  void on_thaw(Time now);
  void on_death(Time now);
  void on_clock_jump(Time now, Duration by);
  void start(Time now);

  std::uint16_t rank() const { return endpoint_->settings().rank; }
  const Endpoint& endpoint() const { return *endpoint_; }
  void publish(const Parameters& parameters);
  bool dead() const { return dead_; }
  bool joined() const { return endpoint_->all_peers_alive(); }
  // Nothing this host's caller still waits for.
  bool settled() const;
  // The latest moment, on the host's clock, at which something due at `due` may happen.
  Time allowed_until(Time due) const;
  // Paths that have been seen with nothing in flight; call repeatedly, heartbeats come and go.
  void note_idle_paths();
  bool all_paths_were_idle() const;

  const std::vector<HostOperation>& operations() const { return operations_; }
  const std::vector<HostNote>& notes() const { return notes_; }
  // By note: how often it was received, and whether with the right bytes.
  const std::vector<std::uint32_t>& notes_received() const { return notes_received_; }
  std::uint64_t num_wakes() const { return num_wakes_; }
  std::uint64_t num_datagrams() const { return num_sent_ + num_received_; }
  std::uint64_t digest() const { return digest_.value(); }
  bool was_absent() const { return !absences_.empty(); }

 private:
  Time local(Time now) const { return now + clock_offset_; }
  bool runs() const { return !dead_ && !frozen_; }
  void receive(Time now, Datagram& datagram);
  void judge(Time now, const Datagram& datagram, const Header* header, std::size_t payload_bytes, bool fresh,
             const Drop* drop);
  void note_late(Time now, const Header& header);
  void call(Time now, std::uint32_t operation);
  void note_sent(Time now, std::uint16_t peer, const Header& header, std::size_t payload_bytes);
  void pump(Time now);
  void transmit(Time now, const TransmitBatch& batch);
  void check_contribution(Time now, std::uint16_t owner, const Header& header, std::uint32_t count);
  HostPart* part_of(std::uint32_t number);
  void note_own_included();
  void collect(Time now);
  void schedule_wake(Time now);
  std::string where(Time now) const;

  std::unique_ptr<Endpoint> endpoint_;
  const Workload& workload_;
  Steering& steering_;
  Network& network_;
  EventQueue& events_;
  Truth& truth_;
  Violations& violations_;
  TransmitBatch batch_;
  Parameters parameters_;

  Duration clock_offset_ = 0;
  bool frozen_ = false;
  bool dead_ = false;
  Time frozen_since_ = 0;
  std::vector<Absence> absences_;
  std::deque<Datagram> socket_;
  std::size_t socket_bytes_ = 0;
  std::size_t socket_capacity_;
  std::deque<std::uint32_t> deferred_calls_;
  std::deque<std::size_t> deferred_notes_;
  Time wake_at_ = never;  // true time

  std::vector<HostOperation> operations_;
  std::vector<HostNote> notes_;
  std::vector<std::uint32_t> notes_received_;
  std::vector<std::vector<bool>> delivered_numbers_;  // by sender: transmission numbers that got to the endpoint
  std::vector<bool> path_was_idle_;
  std::uint64_t num_wakes_ = 0;
  std::uint64_t num_sent_ = 0;
  std::uint64_t num_received_ = 0;
  Digest digest_;
};

}  // namespace holdfast::sim
