// One transpose all-reduce on one rank (OptiReduce 2.2): contributions to the own shard come in and are summed, the
// result goes out, the other shards' results come in.
//
// The operation opens at its first datagram or at the own call, whichever is first, and serves its duty even when the
// own gradient is late or never comes. It knows nothing of paths and packets beyond headers: it is told the time and
// talks to its peers through an Outbox.
//
// It can be a part of a hierarchical one (see hierarchy.h). Within a group the sum of the own shard is not yet the
// result: `wants_groups` asks for an operation between the groups, and `on_groups_summed` brings what that came to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/buffer_pool.h"
#include "core/division.h"
#include "core/hierarchy.h"
#include "core/report.h"
#include "core/shard_sum.h"
#include "core/wire.h"

namespace holdfast {

// A numbered block of parameters, published by control, that holds from a named operation on.
struct Parameters {
  std::uint32_t from_operation = 0;
  Duration t_b = 5 * second;      // hard bound of a stage
  Duration t_c = 5 * second;      // what a stage usually takes
  double early_wait_ratio = 0.5;  // x: with the last percentile of all senders in, wait x * t_c of silence, then end
  std::uint8_t credit = 0;        // senders this rank hears at once in a stage; 0: all
  bool deterministic = false;     // sum in rank order instead of order of arrival, at the price of memory
  Duration duty_limit = 60 * second;  // an operation the own rank never joins is forgotten after this silence
  Division division{};          // of bounded operations; exact ones, which must be complete, are always divided evenly
  bool encoded = false;         // of bounded operations: callers hand over coefficients; only their like are summed
  bool needs_majority = false;  // ranks may divide differently for a while: of them one camp's results count, at most
  bool zero_fill = false;       // what did not arrive counts as zero, instead of being estimated from the rest
  // Results that the network lost are sent again, and with some of them missing the silence that ends their stage is so
  // much longer, within its bound. 0: what is lost is lost.
  Duration repair_grace = 0;
  // Packets of results end where what their elements lack changes, so that each contributor learns exactly what counts
  // of its gradient. Else a packet says only how much its elements lack together: fewer packets, where many ranks lose
  // some.
  bool tells_by_element = true;
};

// What control knows about one stage of the bucket that is called.
struct StageTiming {
  Duration early_wait = -1;     // x t_C for this bucket and stage; negative: as the parameters say
  std::uint32_t sample_us = 0;  // what this stage took the last time, for the peers' median; 0: not known
};

// Where operations of such a bucket hardly ever take as long as both stages may. Zeros: there is no such limit.
struct TimeLimit {
  Duration contributions = 0;  // since the operation opened
  Duration whole = 0;          // since the call
  Duration results = 0;        // at least so long since the contributions ended, however long these took

  bool holds() const { return whole > 0; }
};

struct Call {
  std::uint8_t* data = nullptr;  // gradient in, result out, until the operation is reported
  std::uint32_t count = 0;
  Format format = Format::f32;
  std::uint32_t layout = 0;
  Delivery delivery = Delivery::bounded;
  Duration deadline = 0;  // of the whole operation; 0: two t_b
  // How much of the deadline the contributions may take: more than half where others' operations go before this one,
  // and both stages of those come first. 0, or with groups: a stage's share.
  Duration contributions_within = 0;
  TimeLimit limit;
  bool average = true;  // else the sum
  // Of float32 elements: what a path has still to carry goes in sixteen bits while it lacks more than this share of all
  // (see Pace). 0: never. Not where results must not depend on who was late (`deterministic`).
  double narrow_behind_ratio = 0;
  StageTiming contributions;
  StageTiming results;
  Duration repair_grace = -1;  // for this bucket; negative: as the parameters say

  // -- where the ranks of a host meet in its memory: the number was reserved before, and this is between the hosts
  // only.
  std::optional<std::uint32_t> number;
  bool between_groups = false;

  // -- of a part between groups, which no caller but another operation has.
  BufferPool::Buffer owner;      // of `data`
  std::vector<Gap> gaps;         // ascending: where `data` lacks some of the gradients that should be in it, or all
  Time contributions_until = 0;  // the ends of the stages; 0: as the deadline says
  Time results_until = 0;
};

// Until when each stage would have gone on, had it not been ended early; 0 where it was not. What comes after the end
// and before that, a longer silence would have let in.
struct EarlyEnds {
  Time contributions_until = 0;
  Time results_until = 0;
  Time of(Stage stage) const { return stage == Stage::contribution ? contributions_until : results_until; }
};

class Outbox {
 public:
  virtual std::uint32_t enqueue(std::uint16_t peer, MessageContent content) = 0;
  // Of a message enqueued open: this part may go; there will be no more, and this is missing of it.
  virtual void release(std::uint16_t peer, std::uint32_t message, ElementRange range) = 0;
  virtual void close(std::uint16_t peer, std::uint32_t message, const std::vector<ElementRange>& holes,
                     const std::vector<Gap>& gaps, std::vector<ElementRange> without_receiver) = 0;
  virtual void cancel(std::uint16_t peer, std::uint32_t message) = 0;
  // What fits one datagram, unpacked.
  virtual std::uint32_t chunk_elements(Format format) const = 0;
  virtual bool is_alive(std::uint16_t peer) const = 0;
  virtual bool is_on_this_host(std::uint16_t peer) const = 0;
  // Has anything at all come from this peer since then?
  virtual bool heard_since(std::uint16_t peer, Time then) const = 0;
  // Since when it owes an answer to what was sent to it, and has not been heard at all; never: it owes none.
  virtual Time unanswered_since(std::uint16_t peer) const = 0;
  // When it was last heard again after it had owed an answer for so long; never: it was not.
  virtual Time answered_again_at(std::uint16_t peer, Duration silence) const = 0;
  // For how long it last owed an answer, since then; 0: never for so long that it, or this rank, stood still.
  virtual Duration silence_since(Time now, std::uint16_t peer, Time then) const = 0;
  // An operation whose stages were bounded so has ended: did this peer take part in it?
  virtual void note_part(Time now, std::uint16_t peer, bool took_part, Duration stage_bound) = 0;
  // Was it away, and has it taken part in nothing since?
  virtual bool is_coming_back(std::uint16_t peer) const = 0;
  // Or has it ended this operation, so that results would come too late?
  virtual bool wants_results(std::uint16_t peer, std::uint32_t operation) const = 0;
  // Asks for memory on behalf of an operation the own rank has not called yet.
  virtual bool may_hold_early(std::size_t bytes) const = 0;
  virtual std::uint8_t credit_of(std::uint16_t peer) const = 0;

 protected:
  ~Outbox() = default;
};

class Operation {
 public:
  struct Identity {
    std::uint32_t total = 0;
    std::uint32_t layout = 0;
    Format format = Format::f32;
    Delivery delivery = Delivery::bounded;
    bool average = true;
    bool operator==(const Identity&) const = default;
  };

  Operation(std::uint32_t number, std::uint16_t rank, std::uint16_t num_ranks, const Identity& identity,
            std::uint16_t identified_by, Time now, const Parameters& parameters, Outbox& outbox, BufferPool& pool)
      : Operation(number, rank, num_ranks, identity, identified_by, now, parameters, outbox, pool,
                  {Part::Kind::whole, {0, 1, num_ranks}, number, 1}) {}
  Operation(std::uint32_t number, std::uint16_t rank, std::uint16_t num_ranks, const Identity& identity,
            std::uint16_t identified_by, Time now, const Parameters& parameters, Outbox& outbox, BufferPool& pool,
            const Part& part);
  Operation(const Operation&) = delete;  // it refers to its own parameters
  Operation& operator=(const Operation&) = delete;

  static Identity identity_of(const Call& call);
  static Identity identity_of(const Header& header);
  // What an operation takes before any element arrives.
  static std::size_t bookkeeping_bytes(const Identity& identity, std::uint16_t num_ranks);

  void on_call(Time now, const Call& call);
  std::optional<Drop> on_packet(Time now, const Header& header, std::span<const std::uint8_t> payload);
  void on_message_sent(std::uint16_t peer, std::uint32_t message);
  void on_message_finished(std::uint16_t peer, std::uint32_t message);
  void on_peer_gone(Time now, std::uint16_t peer);
  // It does not want the results any more (`Outbox::wants_results`).
  void on_results_unwanted(std::uint16_t peer);
  void on_timer(Time now);
  Time next_timer() const;

  // -- within a group: the own shard is summed here, and has to be summed with the other groups'.
  bool wants_groups() const {
    return groups_ == Groups::unasked && of_group() && contributions_end_ != StageEnd::open && own_result_at_ == never;
  }
  // What to call that operation with; asked once.
  Call call_between_groups(Time now);
  bool awaits_groups() const { return groups_ == Groups::asked; }
  void on_groups_summed(Time now, const Operation& between);
  // That operation is long forgotten here: nothing of the shard can be had any more.
  void on_groups_forgotten(Time now);

  std::uint32_t number() const { return number_; }
  const Part& part() const { return part_; }
  // The own part is in the sum of the own shard, or will be.
  bool own_included() const { return contributions_end_ == StageEnd::open ? called_ : has_own_; }
  const EarlyEnds& early_ends() const { return early_ends_; }
  // The results were closed before this peer was heard at all.
  bool closed_without(std::uint16_t peer) const { return peers_[peer].away; }
  bool closed_without_somebody() const;
  bool contributions_closed() const { return contributions_end_ != StageEnd::open; }
  bool called() const { return called_; }
  // The caller's memory is not touched any more once this holds.
  bool ended() const { return ended_; }
  const OperationReport& report() const { return report_; }
  // Nothing is owed to anybody any more.
  bool retired() const;
  // Whether a caller who goes by these parameters hands over what this operation sums.
  bool is_encoded_by(const Parameters& parameters) const {
    return encoded_by(identity_, parameters) == encoded_by(identity_, parameters_);
  }
  // The own rank never joined, or will with something else: nobody is to get results any more.
  void abandon();
  std::size_t early_bytes() const { return called_ ? 0 : early_bytes_; }

 private:
  // A message of ours on its way to a peer.
  struct Sending {
    std::uint32_t message = 0;  // 0: none
    bool unsent = false;        // elements are still to leave, so it occupies a turn
  };

  // Sending takes turns over the peers, `concurrent_turns` of them at once.
  struct Turns {
    std::uint32_t started = 0;
    std::uint32_t unsent = 0;  // started, with elements still to leave
  };

  // How far a peer has come in one stage, beside the elements themselves.
  struct Arrival {
    Time first_at = -1;  // useful elements; -1: none yet
    Time last_at = -1;
    bool marked = false;          // something of its last percentile, or its end, has arrived
    bool ended = false;           // it has sent everything once
    std::uint32_t sample_us = 0;  // what the stage took it the last time; 0: it has not said
  };

  struct Peer {
    Presence result;                 // of its shard
    ElementRange shard;              // the part this peer is responsible for
    std::uint64_t delivered = 0;     // contributor-elements that the results from it stand for
    std::uint32_t contributors = 0;  // the most that any element of them has
    std::uint32_t hole_elements = 0;
    std::uint32_t narrow_contribution = 0;  // elements of it that came in sixteen bits
    Arrival of_contribution;
    Arrival of_result;
    bool closed = false;    // its owner takes no more contributions
    bool was_gone = false;  // when the operation opened
    bool away = false;      // not heard, or not dividing alike, by the time the results were closed
    bool heard = false;     // anything of this operation, divided and encoded alike, came from it, even if of no use
    Sending contribution_sending;
    Sending result_sending;
  };

  std::optional<Drop> place_contribution(Time now, const Header& header, std::span<const std::uint8_t> payload);
  std::optional<Drop> place_result(Time now, const Header& header, std::span<const std::uint8_t> payload);
  std::optional<Drop> note_conflict(Time now, std::uint16_t sender);
  std::uint8_t* result_memory(ElementRange range);
  void note_counted(ElementRange range, const Header& header, std::uint32_t missing_per_element);
  static void note_progress(Time now, const Header& header, Arrival& arrival);
  bool hold_results_early();
  void adopt_early_results();

  void progress(Time now);
  StageEnd contributions_verdict(Time now) const;
  StageEnd results_verdict(Time now) const;
  Time contributions_bound() const;
  Time results_bound() const;
  // The bounds, or what is usual if that is less.
  Time contributions_end_by() const;
  Time results_end_by() const;
  Time exact_due() const { return called_at_ + num_stages() * stage_bound_; }
  Time early_close_at(Stage stage) const;
  Time away_at(Stage stage, std::uint16_t peer) const;
  Time end_of_own_absence(Stage stage) const;
  Duration early_wait(Stage stage, bool all_ended) const;
  Duration repair_grace() const { return call_.repair_grace >= 0 ? call_.repair_grace : parameters_.repair_grace; }
  void stream_results(ElementRange arrived);
  void stream_growing();
  void close_contributions(Time now, StageEnd end);
  void close_results(Time now, StageEnd end);
  void publish_own_result(Time now);
  std::vector<Gap> gaps_by_element() const;
  void fail(Time now, Status status, std::vector<std::uint16_t> culprits);
  void end(Time now);
  void fill_report(Time now);
  ArrivalSpan since_opening(const Arrival& arrival) const;
  void collect_missing();
  void collect_counted();
  std::uint32_t own_contributors() const;

  void continue_turns(Stage stage);
  std::uint32_t concurrent_turns() const;
  void stop_sending(std::uint16_t peer, Sending& sending, Turns& turns);
  void stop_sending_results();
  Time results_wanted_until() const;
  MessageContent message_of(Stage stage) const;
  void announce_identity();
  void send_contribution(std::uint16_t peer);
  void send_result(std::uint16_t peer);
  void start_narrowing();
  void note_received(const Header& header, std::uint32_t elements);
  std::vector<ElementRange> not_contributed_by(std::uint16_t peer) const;
  const Division& division_of(const Identity& identity, const Parameters& parameters) const;
  static bool encoded_by(const Identity& identity, const Parameters& parameters) {
    return identity.delivery != Delivery::exact && parameters.encoded;
  }
  ElementRange shard_of(std::uint16_t rank) const;
  ElementRange to_bucket(ElementRange of_own_shard) const {
    return {of_own_shard.begin + own_shard_.begin, of_own_shard.end + own_shard_.begin};
  }
  bool of_group() const { return part_.kind == Part::Kind::within_group; }
  bool between_groups() const { return part_.kind == Part::Kind::between_groups; }
  // Between the two stages of a group lie those of the operation between the groups.
  int num_stages() const { return of_group() ? 4 : 2; }
  const Presence& contributed_by(std::uint16_t peer) const { return sum_.from(part_.team.place_of(peer)); }
  bool heard_majority() const;
  // Some ranks may meet on their hosts for this call while others do not any more, and each camp has its own sum of an
  // element. Each rank's gradient is in one of them, so only one can hold more than half of all.
  bool may_be_of_two_minds() const { return part_.hosts_meet && identity_.delivery != Delivery::exact; }
  bool most_are_of_one_mind() const;
  bool expects(std::uint16_t peer) const { return peer != rank_ && outbox_.is_alive(peer); }
  // Does this rank still wait for something of this peer, when everything must arrive? What a rank of another group, or
  // of a host, still has to give, nobody here can tell.
  bool owes(std::uint16_t peer) const {
    if (!part_.team.has(peer)) return of_group() || part_.hosts_meet;
    return !contributed_by(peer).complete() || !peers_[peer].result.complete();
  }
  bool failed() const { return report_.status != Status::done; }
  std::vector<std::uint16_t> gone_peers() const;
  std::vector<std::uint16_t> undelivered_peers() const;

  const std::uint32_t number_;
  const std::uint16_t rank_;
  const std::uint16_t num_ranks_;
  const Part part_;
  Identity identity_;
  const Parameters parameters_;
  const Division& division_;  // of this bucket
  const ElementRange own_shard_;
  Outbox& outbox_;
  BufferPool& pool_;

  std::vector<Peer> peers_;      // by rank; of those who take part, and the own entry holds only the own shard
  std::uint16_t identified_by_;  // whose packet or call fixed the identity
  bool conflict_ = false;        // another peer's packets contradicted it before the own call
  std::uint16_t conflicting_peer_ = 0;

  Call call_;
  bool called_ = false;
  bool ended_ = false;
  bool abandoned_ = false;
  Time opened_at_;
  Time called_at_ = 0;
  Time last_packet_at_;
  Duration stage_bound_;
  Duration contributions_within_;  // so long, from the beginning; the stage's bound, unless the call says otherwise

  StageEnd contributions_end_ = StageEnd::open;
  Time contributions_closed_at_ = never;
  Time last_contribution_at_ = 0;
  StageEnd results_end_ = StageEnd::open;
  Time last_result_at_ = 0;
  EarlyEnds early_ends_;

  ShardSum sum_;  // of the own shard
  bool has_own_ = false;
  ShardSum::Result own_result_;  // of the group, and from `own_result_at_` on of all
  Time own_result_at_ = never;
  enum class Groups : std::uint8_t { unasked, asked, answered } groups_ = Groups::unasked;
  std::vector<PeerReport> counterparts_;  // in the other groups, by rank; empty until they are heard of
  BufferPool::Buffer early_results_;      // bucket-sized, while the own call is late
  std::size_t early_bytes_ = 0;

  std::uint32_t chunk_elements_;
  ElementRange growing_;                  // of the own shard: complete, and too short yet to be released
  std::vector<ElementRange> streamable_;  // whose result may leave before the sum is closed, in the order in which they
                                          // were complete; within the bucket
  Presence streamed_;                     // those, within the own shard
  std::vector<ElementRange> result_holes_;
  std::vector<Counted> counted_;  // in results that others own
  std::vector<Gap> result_gaps_;  // between groups only, where each packet says it of every element
  Turns contribution_turns_;
  Turns result_turns_;
  std::shared_ptr<Narrowing> narrowing_;  // null: what this rank sends keeps all its bits

  OperationReport report_;
};

}  // namespace holdfast
