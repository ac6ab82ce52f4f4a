// Everything between this rank and one peer: keys, numbers, acknowledgements, round-trip time, rate, and the messages
// waiting to go. All deliveries share it, so there is one controller per path.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/card_rate.h"
#include "core/forward_queue.h"
#include "core/keys.h"
#include "core/outgoing_message.h"
#include "core/pacer.h"
#include "core/queue_allowance.h"
#include "core/rate.h"
#include "core/received_numbers.h"
#include "core/rtt.h"
#include "core/sent_ledger.h"
#include "core/transmit_batch.h"
#include "core/wire.h"

namespace holdfast {

// Why a path carries nothing any more.
enum class PeerState : std::uint8_t { joining, alive, dead, left };

struct PathSettings {
  std::uint32_t job = 0;
  std::uint32_t epoch = 0;
  std::uint16_t own_rank = 0;
  std::uint16_t peer_rank = 0;
  ProcessId own_process{};
  ProcessId peer_process{};
  JobKey job_key{};
  Protection protection = Protection::encrypted;
  std::uint64_t packets_per_key = default_packets_per_key;
  std::uint32_t datagram_bytes = 1472;  // UDP payload: header, elements and tag
  bool same_host = false;
  RateRule rate_rule = RateRule::model;
  std::uint32_t receive_window = 256 * 1024;  // bytes the peer may have in flight towards this rank
  std::uint64_t max_note_bytes = 64u << 20;   // of notes that the peer holds under assembly
  double pack_below_bytes_per_second = 0;     // elements are packed where the network is slower than this; 0: never
  Duration initial_rtt = millisecond;
  Duration heartbeat_interval = 250 * millisecond;
  Duration silence_limit = second;  // then the peer is dead
};

// What one datagram holds: a whole number of blocks.
std::uint32_t payload_bytes(std::uint32_t datagram_bytes, Protection protection);
std::uint32_t chunk_elements(std::uint32_t datagram_bytes, Protection protection, Format format);

struct PathCounters {
  std::uint64_t datagrams_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t datagrams_received = 0;
  std::uint64_t datagrams_expected = 0;  // that the peer has sent, by the highest of their numbers
  std::uint64_t bytes_received = 0;
  std::uint64_t packets_lost = 0;  // sent, and known not to have arrived
  std::uint64_t resent = 0;
  std::uint64_t probes = 0;
};

class Path {
 public:
  // `queue`: what all paths of a rank have learnt about ports together.
  Path(const PathSettings& settings, Time now,
       std::shared_ptr<QueueAllowance> queue = std::make_shared<QueueAllowance>());

  // -- what comes in ---------------------------------------------------------------------------------------------
  // Authenticates, refuses replays, notes liveness. `payload` is decrypted in place.
  std::optional<Drop> open(Time now, const Header& header, std::span<const std::uint8_t> header_octets,
                           std::span<std::uint8_t> payload, std::span<const std::uint8_t> tag);
  // To be called for what was opened, unless there was no room for it: an acknowledgement tells the sender of an exact
  // message that it need not send this again.
  void acknowledge(Time now, const Header& header, Duration age = 0);
  std::optional<Drop> on_ack(Time now, std::span<const std::uint8_t> payload, Duration age = 0);
  void on_bye();

  // -- what goes out ---------------------------------------------------------------------------------------------
  std::uint32_t enqueue(MessageContent content);  // returns the message's id
  // Of an open message: this part may go; there will be no more, and this is missing of it.
  void release(std::uint32_t message, ElementRange range);
  void close(std::uint32_t message, const std::vector<ElementRange>& holes, const std::vector<Gap>& gaps,
             std::vector<ElementRange> without_receiver);
  void cancel(std::uint32_t message);
  void say_goodbye() { bye_pending_ = true; }
  // Fills one batch with what may leave now; without room in the network card only what is small and urgent. False:
  // nothing.
  bool fill(Time now, TransmitBatch& batch, const CardUse& card = {});
  // Messages that ended since the last call: exact ones acknowledged in full, bounded ones sent in full.
  std::vector<std::uint32_t> take_finished() { return std::exchange(finished_, {}); }

  // Messages of which every element has now left once: the next sender's turn, where credit is short.
  std::vector<std::uint32_t> take_sent() { return std::exchange(sent_, {}); }

  // -- time ------------------------------------------------------------------------------------------------------
  Time next_timer() const;
  void on_timer(Time now);
  // This process itself did not run for a while: silence until now proves nothing about the peer.
  void forgive_silence(Time now);

  PeerState state() const { return state_; }
  bool has_messages() const { return !messages_.empty(); }
  // Of a message, that could leave now or later.
  bool has_chunk() const {
    return std::any_of(messages_.begin(), messages_.end(), [](const auto& message) { return message.has_chunk(); });
  }
  Time last_heard() const { return last_heard_; }
  // What was sent asks for acks: since when the peer owes one and nothing at all has come from it. Never: it owes none.
  Time unanswered_since() const;
  // When it was last heard again after it had owed an answer for so long; never: it was not.
  Time answered_again_at(Duration silence) const { return last_silence_ >= silence ? answered_again_at_ : never; }
  // For how long, since then, it was silent last; 0: for no longer than hosts and roads take.
  Duration silence_since(Time now, Time then) const;
  std::uint8_t peer_credit() const { return peer_credit_; }
  void advertise_credit(std::uint8_t credit) { own_credit_ = credit; }
  // Of operations before this one the peer need not send results any more.
  void want_results_from(std::uint32_t operation) { results_wanted_from_ = operation; }
  const RttEstimator& rtt() const { return rtt_; }
  const RateController& rate() const { return rate_; }
  double pacing_bytes_per_second() const;
  std::uint32_t burst_datagrams() const { return pacer_.burst_size().datagrams(); }
  std::uint64_t window_bytes() const { return rate_.window_bytes(queue_->tolerable()); }  // most in flight
  double card_share() const { return card_.share(peer_credit_); }  // most that it may send because of the others
  void set_fair_bandwidth(double bytes_per_second) { rate_.set_fair_bandwidth(bytes_per_second); }
  const PathCounters& counters() const { return counters_; }
  std::uint32_t sealing_phase() const { return sealer_.phase(); }
  std::uint32_t opening_phase() const { return opener_.phase(); }
  // How long to let datagrams gather, as far as this path goes: half a round trip while it is empty. Peers of one host
  // answer each other at once.
  Duration wakeup_spacing() const { return rate_.same_host() ? 0 : rate_.base_rtt() / 2; }
  std::uint64_t bytes_in_flight() const { return ledger_.bytes_in_flight(); }

 private:
  struct Planned {
    Header header;
    const std::uint8_t* payload = nullptr;
    std::size_t payload_bytes = 0;
    bool asks_for_ack = true;
    OutgoingMessage* message = nullptr;
    OutgoingMessage::Chunk chunk;
    bool is_end = false;
    bool is_probe = false;
  };

  std::optional<Planned> plan_next(Time now, bool pace_allows);
  std::optional<Planned> plan_control(Time now);
  std::optional<Planned> plan_chunk(bool pace_allows);
  bool packing_pays() const;
  Planned plan_message_packet(OutgoingMessage& message, PacketType type);
  const OutgoingMessage* next_with_chunk() const;
  void append(Time now, Planned& planned, TransmitBatch& batch);
  void after_sent(Time now, const Planned& planned, std::size_t datagram_bytes, Duration card_wait);
  void note_app_limited();
  bool is_long_silence(Duration silence) const;
  bool was_sent_into_silence(const SentPacket& packet) const;
  void settle(Time now);
  void sweep_finished();
  void schedule_probe(Time now);
  void plan_echo(Time now, const OutgoingMessage& message, ElementRange range);
  void queue_echoes(Time now);
  Time unheard_at() const;
  std::uint32_t oldest_note() const;
  void give_up(PeerState state);
  OutgoingMessage* find(std::uint32_t message);
  Header base_header(PacketType type) const;

  PathSettings settings_;
  Sealer sealer_;
  Opener opener_;
  SentLedger ledger_;
  SentLedger::Settled settled_;
  RttEstimator rtt_;
  ForwardQueue forward_queue_;
  RateController rate_;
  std::shared_ptr<QueueAllowance> queue_;
  Pacer pacer_;
  CardUse card_;  // when this path was last asked for something to send
  ReplayWindow replay_;
  NumberRanges received_{max_ack_ranges};
  PathCounters counters_;
  PeerState state_ = PeerState::joining;
  Time last_heard_;
  Time answered_again_at_ = never;
  Duration last_silence_ = 0;  // before that; of the long ones
  Time last_acknowledged_;     // when the peer last showed that it hears us
  Time last_sent_ = 0;

  std::list<OutgoingMessage> messages_;  // stable addresses; a handful at a time
  std::uint32_t next_message_ = 1;
  std::vector<std::uint32_t> finished_;
  std::vector<std::uint32_t> sent_;

  // Acknowledging the peer.
  std::uint32_t unacknowledged_packets_ = 0;
  Time largest_received_at_ = 0;
  Time ack_at_ = never;
  std::vector<std::uint8_t> ack_body_;

  // What was sent again with nothing behind it, and goes once more a moment later.
  struct Echo {
    std::uint32_t message;
    ElementRange range;
    Time due_at;  // never: it is queued
  };
  std::vector<Echo> echoes_;

  // Probing when acks stop coming.
  Time probe_at_ = never;
  int probe_backoff_ = 0;
  bool probe_pending_ = false;

  bool ping_pending_ = true;  // the first datagram on a path tells the peer that we are here
  bool bye_pending_ = false;
  std::uint8_t peer_credit_ = 0;
  std::uint8_t own_credit_ = 0;
  std::uint32_t results_wanted_from_ = 0;
};

}  // namespace holdfast
