// One rank of one job: fed datagrams, calls and the time; answers with datagrams, timers and reports.
//
// No socket, no clock, no thread. The reactor runs it on real UDP, the simulator on a virtual clock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/card_rate.h"
#include "core/hierarchy.h"
#include "core/note_inbox.h"
#include "core/note_outbox.h"
#include "core/operation.h"
#include "core/path.h"
#include "core/sending_order.h"

namespace holdfast {

struct PeerSettings {
  ProcessId process{};
  bool same_host = false;
};

struct EndpointSettings {
  std::uint16_t rank = 0;
  std::uint16_t num_ranks = 1;
  std::uint16_t num_groups = 1;  // of neighbouring ranks, see hierarchy.h; 1: all ranks are one
  bool hosts_meet = false;       // a group shares a host, and does its part in its memory
  std::uint32_t job = 0;
  std::uint32_t epoch = 0;
  JobKey job_key{};
  Protection protection = Protection::encrypted;
  std::uint64_t packets_per_key = default_packets_per_key;
  std::uint32_t datagram_bytes = 1472;
  std::vector<PeerSettings> peers;                // by rank, the own entry included
  std::uint64_t receive_buffer_bytes = 4u << 20;  // shared by the peers' windows
  std::uint64_t max_operation_bytes = 4ull << 30;
  std::uint64_t early_bytes_cap = 256u << 20;  // one step's gradients, held before the own calls
  std::uint32_t max_open_operations = 64;
  std::uint64_t max_note_bytes = 64u << 20;  // under assembly or untaken, per peer
  Duration initial_rtt = millisecond;
  RateRule rate_rule = RateRule::model;
  double pack_below_bytes_per_second = 0;  // elements are packed where the network is slower than this; 0: never
  Duration heartbeat_interval = 250 * millisecond;
  Duration silence_limit = second;
};

struct PeerChange {
  std::uint16_t peer = 0;
  PeerState state = PeerState::joining;
  Duration silence = 0;
};

class Endpoint final : private Outbox {
 public:
  Endpoint(const EndpointSettings& settings, Time now);
  Endpoint(const Endpoint&) = delete;  // operations and notes refer to it
  Endpoint& operator=(const Endpoint&) = delete;

  // Takes part in the next operation; ranks call in the same order. Returns its number.
  std::uint32_t call(Time now, const Call& call);
  // The number of an operation that will be called later, with it, or released: there will be no such call. Its place
  // in the order is that of the reservation.
  std::uint32_t reserve();
  void release_number(std::uint32_t number);
  // The next call takes part in this operation: the own rank was away while the others did those before it. Harmless
  // when that is not later than the next.
  void skip_to(Time now, std::uint32_t operation);
  std::uint32_t send_note(Time now, std::uint16_t peer, std::uint32_t channel, std::vector<std::uint8_t> bytes,
                          Duration deadline);
  // Parameters that hold from `parameters.from_operation` on.
  void publish(const Parameters& parameters);
  void say_goodbye();

  // `age`: how long the datagram has waited for this rank to look, after the network had brought it.
  void receive(Time now, std::span<std::uint8_t> datagram, Duration age = 0);
  void on_timer(Time now);
  Time next_timer() const;
  // How long datagrams may gather before they are looked at, without the peers noticing.
  Duration wakeup_spacing() const;
  // How much the network card should have waiting: enough to be busy, no more.
  std::uint64_t wanted_card_queue_bytes() const;
  // Fills one batch for one peer with what may leave now. False: nothing more. `card_queue_bytes` is what the network
  // card has waiting.
  bool fill(Time now, TransmitBatch& batch, std::uint64_t card_queue_bytes = 0);

  std::vector<OperationReport> take_reports() { return std::exchange(reports_, {}); }
  std::vector<Note> take_notes() { return std::exchange(notes_, {}); }
  // A note that was handed out by take_notes is in its reader's hands: its sender may send more.
  void release_note(std::uint16_t sender, std::size_t bytes) { inboxes_.at(sender).release(bytes); }
  std::vector<SentNote> take_sent_notes() { return note_outbox_.take_sent(); }
  std::vector<PeerChange> take_peer_changes() { return std::exchange(peer_changes_, {}); }

  const EndpointSettings& settings() const { return settings_; }
  double card_bytes_per_second() const { return card_rate_.bytes_per_second(); }  // 0: not known
  const DropCounts& drops() const { return drops_; }
  // Datagrams in this rank's name range that failed authentication, by the rank they claimed to come from.
  std::uint64_t failed_authentications(std::uint16_t rank) const { return failed_authentications_[rank]; }
  const Path& path(std::uint16_t peer) const { return *paths_[peer]; }
  bool all_peers_alive() const;
  // Nothing is on its way to anybody: a good moment to leave.
  bool owes_nothing() const;
  std::size_t open_operations() const { return operations_.size(); }
  // By its number on the wire; null: not open.
  const Operation* operation(std::uint32_t number) const;
  std::size_t early_bytes() const;
  std::uint32_t next_operation() const { return next_operation_; }

 private:
  // Outbox: what an operation may ask for.
  std::uint32_t enqueue(std::uint16_t peer, MessageContent content) override;
  void release(std::uint16_t peer, std::uint32_t message, ElementRange range) override;
  void close(std::uint16_t peer, std::uint32_t message, const std::vector<ElementRange>& holes,
             const std::vector<Gap>& gaps, std::vector<ElementRange> without_receiver) override;
  void cancel(std::uint16_t peer, std::uint32_t message) override;
  std::uint32_t chunk_elements(Format format) const override;
  bool is_alive(std::uint16_t peer) const override;
  bool is_on_this_host(std::uint16_t peer) const override { return paths_[peer]->rate().same_host(); }
  bool heard_since(std::uint16_t peer, Time then) const override { return paths_[peer]->last_heard() >= then; }
  Time unanswered_since(std::uint16_t peer) const override { return paths_[peer]->unanswered_since(); }
  Time answered_again_at(std::uint16_t peer, Duration silence) const override {
    return paths_[peer]->answered_again_at(silence);
  }
  Duration silence_since(Time now, std::uint16_t peer, Time then) const override {
    return paths_[peer]->silence_since(now, then);
  }
  void note_part(Time now, std::uint16_t peer, bool took_part, Duration stage_bound) override;
  bool is_coming_back(std::uint16_t peer) const override { return patience_[peer] != 0; }
  bool wants_results(std::uint16_t peer, std::uint32_t operation) const override {
    return operation >= results_wanted_from_[peer];
  }
  bool may_hold_early(std::size_t bytes) const override;
  std::uint8_t credit_of(std::uint16_t peer) const override;

  using OpenOperations = std::map<std::uint32_t, std::unique_ptr<Operation>>;

  std::optional<Drop> accept(Time now, std::span<std::uint8_t> datagram, Duration age);
  std::optional<Drop> dispatch(Time now, const Header& header, std::span<const std::uint8_t> payload, Duration age);
  std::optional<Drop> to_operation(Time now, const Header& header, std::span<const std::uint8_t> payload);
  std::optional<Drop> unpack_to_operation(Time now, Header header, std::span<const std::uint8_t> payload);
  void stop_unwanted_results(Time now, std::uint16_t peer, std::uint32_t wanted_from);
  void tell_which_results_are_wanted();
  void count_late(Time now, const Header& header, std::size_t payload_bytes, const EarlyEnds& ends);
  const Parameters& parameters_for(std::uint32_t operation) const;
  OpenOperations::iterator open_operation(Time now, std::uint32_t number, const Operation::Identity& identity,
                                          std::uint16_t identified_by);
  void call_as(Time now, std::uint32_t number, const Call& call);
  void refuse(std::uint32_t number);
  std::uint32_t oldest_to_come() const;
  bool may_be_called(std::uint32_t number) const;
  bool is_past(std::uint32_t number) const;
  void after_event(Time now, std::uint32_t number);
  void sum_groups(Time now, std::uint32_t call);
  void settle(std::uint32_t number);
  void complete_report(OperationReport& report);
  void share_bandwidth();
  CardUse card_use(std::uint64_t queue_bytes) const;
  void sweep_operations(Time now);
  std::vector<std::uint32_t> open_numbers() const;
  void forward_path_events(Time now, std::uint16_t peer);
  void notice_peer_changes(Time now);
  void report_forgotten(const Call& call, std::uint32_t number);

  EndpointSettings settings_;
  Hierarchy hierarchy_;
  BufferPool pool_;
  std::vector<std::uint8_t> unpacked_;        // the elements of the packet at hand
  std::vector<std::unique_ptr<Path>> paths_;  // by rank; null for the own
  std::vector<NoteInbox> inboxes_;
  std::vector<PeerState> known_states_;
  std::vector<std::uint8_t>
      patience_;  // operations that go on without a peer that was away, until it takes part; by rank
  std::vector<std::uint64_t> failed_authentications_;
  std::vector<std::uint32_t> results_wanted_from_;  // this operation on, by each rank
  DropCounts drops_{};
  Time last_tick_;
  std::uint64_t late_elements_ = 0;      // since the last report
  std::uint64_t reported_expected_ = 0;  // datagrams, up to the last report
  std::uint64_t reported_received_ = 0;
  double bandwidth_bytes_per_second_ = 0;  // of all paths together
  CardRate card_rate_;
  SendingOrder sending_order_;

  std::vector<Parameters> parameters_{Parameters{}};  // ascending by from_operation
  OpenOperations operations_;                         // by their number on the wire
  std::set<std::uint32_t> reported_;                  // of the open ones
  std::map<std::uint32_t, EarlyEnds> retired_ends_;   // of the latest that retired, with all ranks heard; by `age_of`
  std::set<std::uint32_t> forgotten_;                 // never called, given up, and may be called yet
  std::uint32_t next_operation_ = 0;
  std::set<std::uint32_t> reserved_;  // below that, and still to be called

  NoteOutbox note_outbox_;
  std::vector<OperationReport> reports_;
  std::vector<Note> notes_;
  std::vector<PeerChange> peer_changes_;
};

}  // namespace holdfast
