// The end of a run, judged from what really arrived where.
#include <algorithm>
#include <bit>
#include <cstring>

#include "core/digest.h"
#include "fuzz/check.h"
#include "fuzz/job.h"

namespace holdfast::fuzz {
namespace {

class OperationVerdict {
 public:
  OperationVerdict(const Job& job, const sim::PlannedOperation& planned) : job_(job), planned_(planned) {
    std::vector<std::vector<std::uint8_t>> gradients;
    for (std::uint16_t rank = 0; rank < job.num_ranks(); ++rank) {
      gradients.push_back(job.workload().gradient(planned, rank));
    }
    for (std::uint16_t owner = 0; owner < job.num_ranks(); ++owner) {
      shards_.push_back(job.truth().shard(planned.number, owner, own_included(owner), gradients));
    }
  }

  void check(std::uint16_t rank) const {
    const sim::HostOperation& operation = on(rank);
    if (job_.host(rank).dead() || !operation.called) return;
    FUZZ_CHECK(operation.reported);
    FUZZ_CHECK(operation.reported_at <= job_.host(rank).allowed_until(operation.called_at + planned_.deadline));
    Digest digest;
    digest.add(operation.memory);
    FUZZ_CHECK(operation.memory_digest == digest.value());  // not touched after it was given back
    const OperationReport& report = operation.report;
    FUZZ_CHECK(report.status != Status::mismatch);
    FUZZ_CHECK(report.expected == std::uint64_t{planned_.total} * job_.num_ranks());
    if (planned_.delivery == Delivery::bounded) FUZZ_CHECK(report.status == Status::done);
    if (planned_.delivery == Delivery::exact && report.status == Status::done) {
      FUZZ_CHECK(report.missing.empty() && report.delivered == report.expected);
    }
    if (report.status != Status::done) FUZZ_CHECK(!report.culprits.empty());
    check_result(rank, report);
  }

 private:
  const sim::HostOperation& on(std::uint16_t rank) const { return job_.host(rank).operations()[planned_.number]; }

  // Called when the others were long done, and its duty long given up.
  static bool was_forgotten(const OperationReport& report) {
    return report.contributions.end == StageEnd::bound && report.contributions.elapsed == 0 && report.delivered == 0;
  }
  bool own_included(std::uint16_t owner) const {
    const sim::HostOperation& operation = on(owner);
    if (!operation.called) return false;
    if (!operation.reported) return !operation.sent_result;
    return !was_forgotten(operation.report) &&
           operation.report.contributions.elapsed >= operation.report.waited_for_call;
  }

  void check_result(std::uint16_t rank, const OperationReport& report) const {
    std::vector<bool> present(planned_.total, false);
    std::uint64_t delivered = 0;
    if (!was_forgotten(report)) {
      for (std::uint16_t owner = 0; owner < job_.num_ranks(); ++owner) delivered += mark_present(rank, owner, present);
    }
    FUZZ_CHECK(report.delivered == delivered);
    std::vector<bool> listed(planned_.total, false);
    for (const ElementRange& range : report.missing) {
      for (std::uint32_t i = range.begin; i < range.end; ++i) {
        FUZZ_CHECK(i < planned_.total && !listed[i]);
        listed[i] = true;
      }
    }
    const std::size_t size = element_bytes(planned_.format);
    const std::vector<std::uint8_t> zeros(size, 0);
    for (const sim::ShardTruth& truth : shards_) {
      for (std::uint32_t i = truth.shard.begin; i < truth.shard.end; ++i) {
        FUZZ_CHECK(listed[i] == !present[i]);
        const std::uint8_t* right = present[i] ? truth.elements.data() + (i - truth.shard.begin) * size : zeros.data();
        FUZZ_CHECK(std::memcmp(on(rank).memory.data() + i * size, right, size) == 0);
      }
    }
  }

  // Which elements of `owner`'s shard `rank` has, and for how many contributions they stand.
  std::uint64_t mark_present(std::uint16_t rank, std::uint16_t owner, std::vector<bool>& present) const {
    const sim::ShardTruth& truth = shards_[owner];
    const auto taken =
        rank == owner ? std::vector<std::uint8_t>() : job_.truth().results_taken(planned_.number, rank, owner);
    const bool closed = on(rank).report.contributions.end != StageEnd::open;
    std::uint64_t delivered = 0;
    for (std::uint32_t block = 0; block < truth.contributors.size(); ++block) {
      const std::uint64_t mask = truth.contributors[block];
      const bool is_hole = (mask & ~(1ull << owner)) == 0;
      if (rank != owner && taken[block] != 0) FUZZ_CHECK((taken[block] == 2) == is_hole);
      if (rank == owner ? !closed || is_hole : taken[block] != 1) continue;
      const std::uint32_t begin = block * block_elements;
      const std::uint32_t end = std::min(begin + block_elements, truth.shard.size());
      delivered += static_cast<std::uint64_t>(std::popcount(mask)) * (end - begin);
      std::fill(present.begin() + truth.shard.begin + begin, present.begin() + truth.shard.begin + end, true);
    }
    return delivered;
  }

  const Job& job_;
  const sim::PlannedOperation& planned_;
  std::vector<sim::ShardTruth> shards_;  // by owner
};

}  // namespace

void check_operations(const Job& job) {
  for (const sim::PlannedOperation& planned : job.workload().operations()) {
    const OperationVerdict verdict(job, planned);
    for (std::uint16_t rank = 0; rank < job.num_ranks(); ++rank) verdict.check(rank);
  }
}

void check_notes(const Job& job) {
  for (std::size_t index = 0; index < job.workload().notes().size(); ++index) {
    const sim::PlannedNote& planned = job.workload().notes()[index];
    const sim::Host& sender = job.host(planned.from);
    const sim::HostNote& note = sender.notes()[index];
    const std::uint32_t received = job.host(planned.to).notes_received()[index];
    FUZZ_CHECK(received <= (note.sent ? 1u : 0u));
    if (!note.sent || sender.dead()) continue;
    FUZZ_CHECK(note.settled);
    FUZZ_CHECK(note.settled_at <= sender.allowed_until(note.sent_at + job.workload().note_deadline()));
    if (note.fate == NoteFate::delivered && !job.host(planned.to).dead()) FUZZ_CHECK(received == 1);
  }
}

}  // namespace holdfast::fuzz
