#include "sim/invariants.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "core/digest.h"

namespace holdfast::sim {
namespace {

std::string label(std::uint32_t operation, std::uint16_t rank) {
  return "operation " + std::to_string(operation) + " on rank " + std::to_string(rank);
}

std::string numbers(std::uint64_t found, std::uint64_t right) {
  return " says " + std::to_string(found) + ", truth is " + std::to_string(right);
}

// A fault of one rank that an exact operation need not survive, if it says who is to blame: the rank is gone, or away
// for about as long as makes it dead, or calls when its duty is long forgotten.
bool has_culprit(const Scenario& scenario) {
  constexpr double nearly_dead_ms = 700;
  const bool lasts = scenario.fault_ms == 0 || scenario.fault_ms >= nearly_dead_ms;
  const bool unreachable = lasts && (scenario.one_way_loss_ratio >= 1 || scenario.black_hole);
  const bool away = scenario.freeze_ms >= nearly_dead_ms || scenario.dies;
  const double too_late_ms = scenario.duty_limit_ms;
  const bool absent =
      scenario.calls_until >= 0 || scenario.late_call_ms >= too_late_ms || scenario.clock_jump_ms >= too_late_ms;
  return unreachable || away || absent;
}

// All carriers of what every packet carries, or of what shows that a peer is alive: nobody hears anybody any more.
bool loses_contact(const Scenario& scenario) {
  return scenario.carriers_lost_first == 0 && (scenario.credit_loss_ratio >= 1 || scenario.ack_loss_ratio >= 1);
}

// One operation on all ranks, beside the truth about it.
class OperationCheck {
 public:
  OperationCheck(World& world, std::uint32_t number, Tally& tally)
      : world_(world), planned_(world.workload().operations()[number]), number_(number), tally_(tally) {}

  void run(bool sample_blocks) {
    for (std::uint16_t rank = 0; rank < world_.num_ranks(); ++rank) check_end(rank);
    for (std::uint16_t rank = 0; rank < world_.num_ranks(); ++rank) {
      gradients_.push_back(world_.workload().gradient(planned_, rank));
    }
    work_out_shards();
    for (std::uint16_t rank = 0; rank < world_.num_ranks(); ++rank) {
      if (!on(rank).reported || on(rank).report.status == Status::mismatch) continue;
      was_forgotten(rank) ? check_forgotten(rank) : check_result(rank);
    }
    if (sample_blocks) sample();
  }

 private:
  const Host& host(std::uint16_t rank) const { return *world_.hosts()[rank]; }
  const HostOperation& on(std::uint16_t rank) const { return host(rank).operations()[number_]; }
  void complain(const char* invariant, std::uint16_t rank, const std::string& what) {
    world_.violations().add(invariant, label(number_, rank) + what);
  }

  bool in_groups() const { return world_.scenario().num_groups > 1; }
  std::uint32_t group_size() const {
    return world_.num_ranks() / static_cast<std::uint32_t>(world_.scenario().num_groups);
  }
  // Whoever sums one of the shards into which this rank divides the bucket: all ranks, or those of its group.
  bool is_owner_for(std::uint16_t rank, std::uint16_t owner) const {
    return rank / group_size() == owner / group_size();
  }

  // A hierarchical operation that ended on this rank before its groups were summed.
  bool lacks_groups(std::uint16_t rank) const {
    return in_groups() && on(rank).report.groups.contributions.end == StageEnd::open;
  }

  void work_out_shards() {
    const std::uint16_t num_ranks = world_.num_ranks();
    if (!in_groups()) {
      for (std::uint16_t owner = 0; owner < num_ranks; ++owner) {
        shards_.push_back(world_.truth().shard(number_, owner, own_included(owner), gradients_));
      }
      return;
    }
    std::vector<std::pair<bool, bool>> included;
    for (std::uint16_t owner = 0; owner < num_ranks; ++owner) {
      const HostOperation& operation = on(owner);
      const GroupsReport& groups = operation.report.groups;
      const bool told = operation.reported && !lacks_groups(owner);
      included.emplace_back(operation.reported ? own_included(owner) : operation.whole.own_included,
                            told ? groups.own_included : operation.between_groups.own_included);
    }
    GroupsTruth truth = world_.truth().groups(number_, included, gradients_);
    shards_ = std::move(truth.within);
    between_groups_ = std::move(truth.between);
  }

  // The owner's part is in its sum unless it closed the sum before it called.
  bool own_included(std::uint16_t owner) const {
    const HostOperation& operation = on(owner);
    if (!operation.called) return false;
    if (!operation.reported) return !operation.sent_result;
    if (was_forgotten(owner)) return false;
    return operation.report.contributions.elapsed >= operation.report.waited_for_call;
  }

  // A rank that calls when the others are long done, and its duty long given up, is told that it has nothing.
  bool was_forgotten(std::uint16_t rank) const {
    const OperationReport& report = on(rank).report;
    return report.contributions.end == StageEnd::bound && report.contributions.elapsed == 0 && report.delivered == 0;
  }

  void check_forgotten(std::uint16_t rank) {
    if (!has_culprit(world_.scenario())) complain("duty_is_done", rank, " was forgotten");
    check_values(rank, std::vector<bool>(planned_.total, false));
    check_missing(rank, std::vector<bool>(planned_.total, false));
  }

  // ---------------------------------------------------------------------------------------- in time, rightly named

  void check_end(std::uint16_t rank) {
    const HostOperation& operation = on(rank);
    if (host(rank).dead() || !operation.called) return;
    const bool exact = planned_.delivery == Delivery::exact;
    const Time due = operation.called_at + operation.deadline;
    if (!operation.reported) {
      complain("ends_by_deadline", rank, " never ended");
      return;
    }
    const OperationReport& report = operation.report;
    if (operation.reported_at > host(rank).allowed_until(due)) {
      complain("ends_by_deadline", rank, " ended " + std::to_string(operation.reported_at - due) + " ns late");
    }
    if (operation.memory_digest != digest_of(operation.memory))
      complain("memory_is_returned", rank, " was written after its end");
    if (!was_forgotten(rank)) {
      check_late_drops(rank);
      if (!exact) check_stages(rank);
      if (!exact) check_limit(rank);
    }
    ++(exact ? tally_.num_exact : tally_.num_bounded);
    if (!exact) {
      tally_.longest_bounded = std::max(tally_.longest_bounded, operation.reported_at - operation.called_at);
      tally_.delivered += report.delivered;
      tally_.expected += report.expected;
      tally_.num_narrow_elements += report.narrow_elements;
      if (report.status != Status::done) complain("bounded_is_no_error", rank, " failed");
    } else if (report.status != Status::done) {
      ++tally_.num_exact_failed;
      check_blame(rank);
    } else if (!report.missing.empty() || report.delivered != report.expected) {
      complain("exact_is_complete", rank, " is done, yet incomplete");
    }
    const bool complete = report.delivered == report.expected && report.missing.empty();
    if (world_.scenario().expects_complete && !complete) complain("clean_is_complete", rank, " lacks something");
  }

  static std::uint64_t digest_of(std::span<const std::uint8_t> bytes) {
    Digest digest;
    digest.add(bytes);
    return digest.value();
  }

  // Nor an operation its limit, if it has one, or what the results have at least after late contributions.
  void check_limit(std::uint16_t rank) {
    const HostOperation& operation = on(rank);
    const OperationReport& report = operation.report;
    if (in_groups() || !operation.limit.holds()) return;
    const auto at_limit = [](const StageReport& stage) { return stage.end == StageEnd::limit; };
    if (at_limit(report.contributions) || at_limit(report.results)) ++tally_.num_ended_at_limit;
    const Time opened_at = operation.called_at - report.waited_for_call;
    const Time closed_at = opened_at + report.contributions.elapsed;
    // The limit is known from the call on.
    const Time first_due = std::max(opened_at + operation.limit.contributions, operation.called_at);
    if (closed_at > host(rank).allowed_until(first_due)) {
      complain("ends_by_limit", rank, ", contributions after " + std::to_string(report.contributions.elapsed) + " ns");
    }
    const Time due = std::max(operation.called_at + operation.limit.whole,
                              std::max(closed_at, operation.called_at) + operation.limit.results);
    if (operation.reported_at > host(rank).allowed_until(due)) {
      complain("ends_by_limit", rank, " ended " + std::to_string(operation.reported_at - due) + " ns late");
    }
  }

  // No stage outlives t_B, whatever was lost of the packets that could have ended it before.
  void check_stages(std::uint16_t rank) {
    const HostOperation& operation = on(rank);
    const OperationReport& report = operation.report;
    const Time opened_at = operation.called_at - report.waited_for_call;
    const Time closed_at = opened_at + report.contributions.elapsed;
    const Duration first_bound = in_groups() ? operation.t_b / 2 : operation.t_b;
    if (closed_at > host(rank).allowed_until(opened_at + first_bound)) {
      complain("stage_ends_by_bound", rank,
               ", contributions after " + std::to_string(report.contributions.elapsed) + " ns");
    }
    if (in_groups()) return;  // the other three stages have what is left of the deadline
    const Time results_from = std::max(closed_at, operation.called_at);
    if (results_from + report.results.elapsed > host(rank).allowed_until(results_from + operation.t_b)) {
      complain("stage_ends_by_bound", rank, ", results after " + std::to_string(report.results.elapsed) + " ns");
    }
  }

  // What was turned away as late must have come after the end of its stage.
  void check_late_drops(std::uint16_t rank) {
    const HostOperation& operation = on(rank);
    const OperationReport& report = operation.report;
    const bool closed = report.contributions.end != StageEnd::open;
    const Time closed_at = operation.called_at - report.waited_for_call + report.contributions.elapsed;
    if (operation.first_late_contribution < (closed ? closed_at : operation.reported_at)) {
      complain("late_is_late", rank, " refused a contribution in time");
    }
    if (operation.first_late_result < operation.reported_at)
      complain("late_is_late", rank, " refused a result in time");
  }

  // An exact operation may fail only through the faulty rank, and must name it, or somebody it held up.
  void check_blame(std::uint16_t rank) {
    const OperationReport& report = on(rank).report;
    if (!has_culprit(world_.scenario())) {
      complain("exact_succeeds", rank, " failed without a faulty rank");
      return;
    }
    if (report.culprits.empty()) complain("culprit_is_named", rank, " failed and names nobody");
    if (rank == world_.victim() || is_neighbour(rank)) return;  // from there everybody may look faulty
    for (const std::uint16_t culprit : report.culprits) {
      const bool faulty = culprit == world_.victim() || is_neighbour(culprit);
      const HostOperation& theirs = on(culprit);
      const bool held_up = theirs.reported && theirs.report.status != Status::done;
      if (!faulty && !held_up) complain("culprit_is_named", rank, " blames rank " + std::to_string(culprit));
    }
  }

  bool is_neighbour(std::uint16_t rank) const {
    return world_.scenario().one_way_loss_ratio > 0 && rank == (world_.victim() + 1) % world_.num_ranks();
  }

  // ---------------------------------------------------------------------------------------- the numbers

  void check_result(std::uint16_t rank) {
    const OperationReport& report = on(rank).report;
    std::vector<bool> present(planned_.total, false);
    std::uint64_t delivered = 0;
    for (std::uint16_t owner = 0; owner < world_.num_ranks(); ++owner) {
      if (is_owner_for(rank, owner)) delivered += mark_present(rank, owner, present);
      if (owner != rank) check_peer(rank, owner);
    }
    if (report.delivered != delivered) complain("share_is_true", rank, numbers(report.delivered, delivered));
    if (report.expected != std::uint64_t{planned_.total} * world_.num_ranks())
      complain("share_is_true", rank, ": expected");
    check_values(rank, present);
    check_missing(rank, present);
    if (!in_groups()) check_counted(rank);
  }

  // How often the own contribution counts in what arrived: as often as its weight in the owner's sum says.
  void check_counted(std::uint16_t rank) {
    if (on(rank).report.status != Status::done) return;  // nothing of it is applied
    std::vector<float> told(planned_.total, 1);
    for (const Counted& part : on(rank).report.counted) {
      for (std::uint32_t i = part.range.begin; i < part.range.end; ++i) told.at(i) = part.times;
    }
    for (std::uint16_t owner = 0; owner < world_.num_ranks(); ++owner) {
      const ShardTruth& truth = shards_[owner];
      const auto taken = rank == owner ? std::vector<std::uint8_t>(truth.contributors.size(), 1)
                                       : world_.truth().results_taken(number_, rank, owner);
      for (std::uint32_t block = 0; block < truth.contributors.size(); ++block) {
        if (taken[block] == 0) continue;  // nobody can tell
        const float times = truth.holes[block] ? 0 : times_counted(rank, owner, truth.contributors[block]);
        if (told[truth.shard.begin + block * block_elements] == times) continue;
        complain("counted_is_true", rank, ", block " + std::to_string(block) + " of rank " + std::to_string(owner));
        return;
      }
    }
  }

  float times_counted(std::uint16_t rank, std::uint16_t owner, std::uint64_t contributors) const {
    const auto has = [contributors](std::uint16_t one) { return (contributors >> one & 1) != 0; };
    if (!has(rank)) return 0;
    if (rank == owner) return 1;
    const auto present = static_cast<float>(std::popcount(contributors));
    const float own = has(owner) ? 1 : 0;
    return (static_cast<float>(world_.num_ranks()) - own) / (present - own);
  }

  // Which elements of `owner`'s shard `rank` has, and for how many contributions they stand.
  std::uint64_t mark_present(std::uint16_t rank, std::uint16_t owner, std::vector<bool>& present) {
    const ShardTruth& truth = shards_[owner];
    const auto taken = rank == owner ? std::vector<std::uint8_t>() : world_.truth().results_taken(number_, rank, owner);
    const bool closed = on(rank).report.contributions.end != StageEnd::open && !lacks_groups(rank);
    std::uint64_t delivered = 0;
    for (std::uint32_t block = 0; block < truth.contributors.size(); ++block) {
      const std::uint64_t mask = truth.contributors[block];
      const bool is_hole = truth.holes[block];
      const bool here = rank == owner ? closed && !is_hole : taken[block] == 1;
      if (rank != owner && taken[block] == 2 && !is_hole)
        complain("hole_is_true", rank, " was told of a hole that is none");
      if (rank != owner && taken[block] == 1 && is_hole)
        complain("hole_is_true", rank, " was sent what nobody contributed");
      if (!here) continue;
      const std::uint32_t begin = block * block_elements;
      const std::uint32_t end = std::min(begin + block_elements, truth.shard.size());
      delivered += std::uint64_t(std::popcount(mask)) * (end - begin);
      for (std::uint32_t i = begin; i < end; ++i) present[truth.shard.begin + i] = true;
    }
    return delivered;
  }

  void check_peer(std::uint16_t rank, std::uint16_t peer) {
    const PeerReport& report = on(rank).report.peers.at(peer);
    std::uint32_t number = number_;
    if (!is_owner_for(rank, peer)) {
      if (lacks_groups(rank)) return;  // nothing was heard of them yet
      number |= between_groups_bit;
      if (rank % group_size() != peer % group_size()) {
        if (report.contribution_size != 0 || report.result_size != 0)
          complain("peer_share_is_true", rank, ": a stranger");
        return;
      }
    }
    const std::uint32_t contributed = world_.truth().contributed(number, rank, peer);
    if (report.contributed != contributed) {
      complain("peer_share_is_true", rank,
               ", contribution of " + std::to_string(peer) + numbers(report.contributed, contributed));
    }
    const auto taken = world_.truth().results_taken(number, rank, peer);
    const std::uint32_t size = world_.truth().shard_of(number, peer).size();
    std::uint32_t results = 0;
    for (std::uint32_t block = 0; block < taken.size(); ++block) {
      if (taken[block] == 1) results += std::min(block_elements, size - block * block_elements);
    }
    if (report.results != results) {
      complain("peer_share_is_true", rank, ", results of " + std::to_string(peer) + numbers(report.results, results));
    }
  }

  void check_values(std::uint16_t rank, const std::vector<bool>& present) {
    const std::size_t size = element_bytes(planned_.format);
    const std::vector<std::uint8_t>& memory = on(rank).memory;
    const std::vector<std::uint8_t> zeros(size, 0);
    for (std::uint16_t owner = 0; owner < world_.num_ranks(); ++owner) {
      if (!is_owner_for(rank, owner)) continue;
      const ShardTruth& truth = shards_[owner];
      for (std::uint32_t i = 0; i < truth.shard.size(); ++i) {
        const std::uint32_t element = truth.shard.begin + i;
        const std::uint8_t* right = present[element] ? truth.elements.data() + i * size : zeros.data();
        if (std::memcmp(memory.data() + element * size, right, size) == 0) continue;
        complain(present[element] ? "value_is_right" : "missing_is_zero", rank,
                 ", element " + std::to_string(element) + " of rank " + std::to_string(owner) + "'s shard");
        break;
      }
    }
  }

  void check_missing(std::uint16_t rank, const std::vector<bool>& present) {
    std::vector<bool> listed(planned_.total, false);
    for (const ElementRange& range : on(rank).report.missing) {
      for (std::uint32_t i = range.begin; i < range.end; ++i) {
        if (i >= planned_.total || listed[i]) {
          complain("missing_is_listed", rank, " lists element " + std::to_string(i) + " wrongly");
          return;
        }
        listed[i] = true;
      }
    }
    for (std::uint32_t i = 0; i < planned_.total; ++i) {
      if (listed[i] == !present[i]) continue;
      complain("missing_is_listed", rank,
               ", element " + std::to_string(i) + (listed[i] ? " is listed" : " is not listed"));
      return;
    }
  }

  void sample() {
    const std::size_t size = element_bytes(planned_.format);
    const auto mean_of = [&](const std::uint8_t* elements, std::uint32_t count) {
      std::vector<double> values(count);
      kernels::cast(Format::f64, values.data(), planned_.format, elements, count);
      double sum = 0;
      for (const double value : values) sum += value;
      return sum / count;
    };
    for (std::uint16_t owner = 0; owner < world_.num_ranks(); ++owner) {
      const ShardTruth& truth = in_groups() ? between_groups_[owner] : shards_[owner];
      if (!on(owner).reported || lacks_groups(owner)) continue;
      const std::uint32_t shard_begin = truth.shard.begin + (in_groups() ? shards_[owner].shard.begin : 0);
      for (std::uint32_t block = 0; block < truth.contributors.size(); ++block) {
        if (truth.holes[block]) continue;
        const std::uint32_t begin = shard_begin + block * block_elements;
        const std::uint32_t count = std::min(block_elements, truth.shard.size() - block * block_elements);
        BlockSample sample{number_, owner, truth.contributors[block], 0, {}};
        sample.value = mean_of(on(owner).memory.data() + begin * size, count);
        for (const auto& gradient : gradients_)
          sample.gradients.push_back(mean_of(gradient.data() + begin * size, count));
        tally_.blocks.push_back(std::move(sample));
      }
    }
  }

  World& world_;
  const PlannedOperation& planned_;
  std::uint32_t number_;
  Tally& tally_;
  std::vector<std::vector<std::uint8_t>> gradients_;  // by rank
  std::vector<ShardTruth> shards_;                    // by owner
  std::vector<ShardTruth> between_groups_;            // by owner, of a hierarchical operation
};

void check_notes(World& world) {
  for (std::size_t index = 0; index < world.workload().notes().size(); ++index) {
    const PlannedNote& planned = world.workload().notes()[index];
    const Host& sender = *world.hosts()[planned.from];
    const Host& receiver = *world.hosts()[planned.to];
    const HostNote& note = sender.notes()[index];
    const std::uint32_t received = receiver.notes_received()[index];
    const std::string text = "note " + std::to_string(index);
    if (received > 1)
      world.violations().add("note_arrives_once", text + " arrived " + std::to_string(received) + " times");
    if (received == 1 && !note.sent) world.violations().add("note_arrives_once", text + " arrived and was never sent");
    if (!note.sent || sender.dead()) continue;
    if (!note.settled) {
      world.violations().add("note_is_settled", text + " has no fate");
      continue;
    }
    if (note.settled_at > sender.allowed_until(note.sent_at + world.workload().note_deadline())) {
      world.violations().add("note_is_settled", text + " was settled after its deadline");
    }
    if (note.fate == NoteFate::delivered && received != 1 && !receiver.dead()) {
      world.violations().add("note_fate_is_true", text + " is called delivered and did not arrive");
    }
    if (note.fate != NoteFate::delivered && !has_culprit(world.scenario())) {
      world.violations().add("note_arrives", text + " failed without a faulty rank");
    }
  }
}

void check_quiet(World& world) {
  // A rank that cannot be heard to the end of the run leaves its last packets in flight for good.
  const bool cut_off = world.network().victim_is_faulty(world.now()) &&
                       (world.scenario().black_hole || world.scenario().one_way_loss_ratio >= 1);
  const bool unreachable = cut_off || loses_contact(world.scenario());
  for (const auto& host : world.hosts()) {
    if (host->dead()) continue;
    const std::string text = "rank " + std::to_string(host->rank());
    if (host->endpoint().open_operations() != 0) {
      world.violations().add(
          "nothing_leaks", text + " holds " + std::to_string(host->endpoint().open_operations()) + " operations open");
    }
    if (host->endpoint().early_bytes() != 0) world.violations().add("nothing_leaks", text + " holds early bytes");
    if (!unreachable && !host->all_paths_were_idle())
      world.violations().add("nothing_leaks", text + " has bytes in flight for ever");
  }
}

void check_wakes(World& world) {
  for (const auto& host : world.hosts()) {
    // A wake-up for each datagram and its timers, and what heartbeats need, is work; more is a loop.
    const double seconds = static_cast<double>(world.now()) / static_cast<double>(second) + 1;
    const double most = 2 * static_cast<double>(host->num_datagrams()) + 100 * world.num_ranks() * seconds;
    if (static_cast<double>(host->num_wakes()) > most) {
      world.violations().add("no_busy_loop", "rank " + std::to_string(host->rank()) + " woke " +
                                                 std::to_string(host->num_wakes()) + " times");
    }
  }
}

}  // namespace

Tally check_invariants(World& world, bool sample_blocks) {
  Tally tally;
  if (!world.formed()) return tally;
  for (const PlannedOperation& operation : world.workload().operations()) {
    OperationCheck(world, operation.number, tally).run(sample_blocks);
  }
  check_notes(world);
  check_quiet(world);
  check_wakes(world);
  return tally;
}

}  // namespace holdfast::sim
