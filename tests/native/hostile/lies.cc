#include "lies.h"

#include <map>
#include <stdexcept>

namespace holdfast::hostile {
namespace {

constexpr std::uint32_t block_bytes = 64;  // sixteen f32
// Beyond what an honest rank is ever ahead, within what a rank holds open.
constexpr std::uint32_t far_but_open = 40;
// What is opened before its time begins here, so that a job soon comes to it.
constexpr std::uint32_t first_opened = 1;
constexpr std::uint32_t unread_channel = 0xbad;

ElementRange shard_of(const Occasion& at, std::uint16_t rank, std::uint32_t operation, std::uint32_t total) {
  return shard_range(total, at.job.num_ranks, responsible_shard(rank, operation, at.job.num_ranks));
}

// Truthful: one block of zeros of what this rank may say in this stage of this operation.
Lie block(const Occasion& at, Stage stage, std::uint32_t operation, std::uint32_t total) {
  Lie lie;
  lie.header.type = PacketType::data;
  lie.header.stage = stage;
  lie.header.format = Format::f32;
  lie.header.operation = operation;
  lie.header.total = total;
  if (at.schedule.is_exact(operation)) lie.header.flags = flag::exact | flag::sum;
  lie.header.offset = shard_of(at, stage == Stage::contribution ? at.victim : at.own_rank, operation, total).begin;
  lie.payload.resize(block_bytes);
  return lie;
}

Lie block(const Occasion& at, Stage stage) { return block(at, stage, at.next_operation, at.schedule.total); }

Lie note(const Occasion& at, std::uint32_t total, std::size_t payload_bytes) {
  Lie lie;
  lie.header.type = PacketType::data;
  lie.header.stage = Stage::note;
  lie.header.layout = unread_channel;
  lie.header.flags = flag::exact;
  lie.header.operation = lie.header.missing = static_cast<std::uint32_t>(at.index);  // and none before it is given up
  lie.header.total = total;
  lie.payload.resize(payload_bytes);
  return lie;
}

// The next operation of the delivery that is asked for.
std::uint32_t next_of(const Occasion& at, bool exact) {
  return at.next_operation + (at.schedule.is_exact(at.next_operation) == exact ? 0 : 1);
}

Lie wrong_epoch(const Occasion& at) {
  Lie lie = block(at, Stage::contribution);
  lie.header.epoch = at.job.epoch + 1;
  return lie;
}
Lie wrong_job(const Occasion& at) {
  Lie lie = block(at, Stage::contribution);
  lie.header.job = at.job.job + 1;
  return lie;
}
Lie other_sender(const Occasion& at) {
  Lie lie = block(at, Stage::contribution);
  for (const Target& target : at.job.targets) {
    if (target.rank != at.victim) lie.header.sender = target.rank;
  }
  return lie;
}
Lie far_ahead(const Occasion& at) {
  return block(at, Stage::contribution, at.next_operation + 1'000'000, at.schedule.total);
}
Lie far_behind(const Occasion& at) { return block(at, Stage::contribution, 0, at.schedule.total); }
Lie contribution_outside(const Occasion& at) {
  Lie lie = block(at, Stage::contribution);
  lie.header.offset = shard_of(at, at.own_rank, at.next_operation, at.schedule.total).begin;
  return lie;
}
Lie result_outside(const Occasion& at) {
  Lie lie = block(at, Stage::result);
  lie.header.offset = shard_of(at, at.victim, at.next_operation, at.schedule.total).begin;
  return lie;
}
Lie hole_outside(const Occasion& at) {
  Lie lie = result_outside(at);
  lie.header.type = PacketType::hole;
  lie.header.missing = 16;
  lie.payload.clear();
  return lie;
}
Lie hole_in_contribution(const Occasion& at) {
  Lie lie = block(at, Stage::contribution);
  lie.header.type = PacketType::hole;
  lie.header.missing = 16;
  lie.payload.clear();
  return lie;
}
Lie hole_in_exact(const Occasion& at) {
  Lie lie = block(at, Stage::result, next_of(at, true), at.schedule.total);
  lie.header.type = PacketType::hole;
  lie.header.missing = 16;
  lie.payload.clear();
  return lie;
}
Lie missing_in_exact(const Occasion& at) {
  Lie lie = block(at, Stage::result, next_of(at, true), at.schedule.total);
  lie.header.missing = 1;
  return lie;
}
Lie missing_too_many(const Occasion& at) {
  Lie lie = block(at, Stage::result, next_of(at, false), at.schedule.total);
  lie.header.missing = 16 * (at.job.num_ranks - 1u) + 1;
  return lie;
}
Lie total_other(const Occasion& at) {
  Lie lie = block(at, Stage::contribution);
  lie.header.total = at.schedule.total + 16;
  return lie;
}
Lie total_huge(const Occasion& at) {
  return block(at, Stage::contribution, at.next_operation + far_but_open, UINT32_MAX);
}
Lie format_other(const Occasion& at) {
  Lie lie = block(at, Stage::contribution);
  lie.header.format = Format::bf16;
  return lie;
}
Lie layout_other(const Occasion& at) {
  Lie lie = block(at, Stage::contribution);
  lie.header.layout = 1;
  return lie;
}
Lie end_forged(const Occasion& at) {
  Lie lie = block(at, Stage::contribution, next_of(at, true), at.schedule.total);
  lie.header.type = PacketType::end;
  lie.header.flags |= flag::last_percentile;
  lie.payload.clear();
  return lie;
}
Lie acknowledges(const Ack& ack) {
  Lie lie;
  lie.header.type = PacketType::ack;
  lie.payload = encode(ack);
  return lie;
}
Lie ack_unsent(const Occasion&) {
  return acknowledges({.receive_window = 1 << 20, .ranges = {{1ull << 40, 1ull << 40}}});
}
Lie ack_malformed(const Occasion&) {
  Lie lie = acknowledges({.receive_window = 1 << 20, .ranges = {{5, 10}}});
  lie.payload[21] = 2;  // two ranges are announced, one is there
  return lie;
}
Lie operations_without_end(const Occasion& at) {
  const auto ahead = first_opened + static_cast<std::uint32_t>(at.index);
  return block(at, Stage::contribution, at.next_operation + ahead, 256);
}
// Each would hold a bucket of 16 MB until the own call comes.
Lie early_without_end(const Occasion& at) {
  const auto ahead = first_opened + static_cast<std::uint32_t>(at.index % 20);
  return block(at, Stage::result, at.next_operation + ahead, 4u << 20);
}
// Nothing of it but bitmaps would be held, 24 MB each.
Lie bitmaps_without_end(const Occasion& at) {
  const auto ahead = first_opened + static_cast<std::uint32_t>(at.index % 20);
  Lie lie = block(at, Stage::contribution, at.next_operation + ahead, 1u << 30);
  lie.header.type = PacketType::end;
  lie.payload.clear();
  return lie;
}
Lie note_huge(const Occasion& at) { return note(at, UINT32_MAX, 16); }
Lie note_never_finished(const Occasion& at) { return note(at, 1u << 20, 16); }
Lie note_unread(const Occasion& at) { return note(at, 16, 16); }
Lie note_contradicts(const Occasion& at) {
  Lie lie = note(at, 64, 16);
  lie.header.operation = 0;
  lie.header.missing = 1;  // older than the first
  return lie;
}

}  // namespace

Lie lie_of(const std::string& kind, const Occasion& occasion) {
  static const std::map<std::string, Lie (*)(const Occasion&)> kinds{
      {"wrong_epoch", wrong_epoch},
      {"wrong_job", wrong_job},
      {"other_sender", other_sender},
      {"far_ahead", far_ahead},
      {"far_behind", far_behind},
      {"contribution_outside", contribution_outside},
      {"result_outside", result_outside},
      {"hole_outside", hole_outside},
      {"hole_in_contribution", hole_in_contribution},
      {"hole_in_exact", hole_in_exact},
      {"missing_in_exact", missing_in_exact},
      {"missing_too_many", missing_too_many},
      {"total_other", total_other},
      {"total_huge", total_huge},
      {"format_other", format_other},
      {"layout_other", layout_other},
      {"end_forged", end_forged},
      {"ack_unsent", ack_unsent},
      {"ack_malformed", ack_malformed},
      {"operations_without_end", operations_without_end},
      {"early_without_end", early_without_end},
      {"bitmaps_without_end", bitmaps_without_end},
      {"note_huge", note_huge},
      {"note_never_finished", note_never_finished},
      {"note_unread", note_unread},
      {"note_contradicts", note_contradicts},
  };
  const auto found = kinds.find(kind);
  if (found == kinds.end()) throw std::invalid_argument("no lie of kind " + kind);
  Lie lie = found->second(occasion);
  if (lie.header.job == 0) lie.header.job = occasion.job.job;
  if (kind != "wrong_epoch") lie.header.epoch = occasion.job.epoch;
  if (kind != "other_sender") lie.header.sender = occasion.own_rank;
  return lie;
}

}  // namespace holdfast::hostile
