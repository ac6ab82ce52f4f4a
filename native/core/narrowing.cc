#include "core/narrowing.h"

#include "kernels/kernels.h"

namespace holdfast {
namespace {

constexpr std::size_t wide_bytes = element_bytes(Format::f32);
constexpr std::size_t narrow_bytes = element_bytes(Format::bf16);

// Elements at the beginning of `range` whose presence is the same, and whether they are there.
Narrowing::Choice run_at_begin(const Presence& presence, ElementRange range) {
  const bool present = presence.has_block(range.begin / block_elements);
  std::uint32_t count = range.size();
  presence.for_each_run(range.begin, range.size(), !present,
                        [&](ElementRange other) { count = std::min(count, other.begin - range.begin); });
  return {count, present};
}

}  // namespace

std::uint64_t Narrowing::seed(std::uint32_t operation, std::uint16_t rank, std::uint32_t shard_begin) {
  return (std::uint64_t{operation} << 32 | shard_begin) ^ std::uint64_t{rank} << 48;
}

Narrowing::Choice Narrowing::choose(Stage stage, std::uint16_t peer, ElementRange range) const {
  if (stage == Stage::contribution) return {range.size(), pace_.is_behind(peer)};
  const ElementRange of_shard{range.begin - identity_.shard.begin, range.end - identity_.shard.begin};
  const Choice decided = run_at_begin(narrow_, of_shard);
  const ElementRange undecided{of_shard.begin, of_shard.begin + decided.count};
  if (decided.narrow || !results_may_change_) return decided;
  const Choice sent = run_at_begin(sent_, undecided);
  if (sent.narrow || pace_.anybody_is_behind()) return {sent.count, !sent.narrow};
  return run_at_begin(rough_, {undecided.begin, undecided.begin + sent.count});
}

const std::uint8_t* Narrowing::narrowed(ElementRange range, std::uint32_t message_begin, const std::uint8_t* elements) {
  scratch_.resize(range.size() * narrow_bytes);
  kernels::narrow_stochastic(Format::bf16, scratch_.data(), elements, range.size(),
                             seed(identity_.operation, identity_.rank, message_begin), range.begin - message_begin);
  return scratch_.data();
}

void Narrowing::on_sent(Stage stage, std::uint16_t peer, ElementRange range, bool narrow) {
  pace_.on_sent(peer, stage, range.size());
  if (stage != Stage::result) return;
  const ElementRange of_shard{range.begin - identity_.shard.begin, range.end - identity_.shard.begin};
  if (narrow) narrow_.mark(of_shard.begin, of_shard.size(), [this](ElementRange run) { round_results(run); });
  sent_.mark(of_shard.begin, of_shard.size(), [](ElementRange) {});
}

void Narrowing::round_results(ElementRange of_shard) {
  const ElementRange range{of_shard.begin + identity_.shard.begin, of_shard.end + identity_.shard.begin};
  std::uint8_t* results = results_ + of_shard.begin * wide_bytes;
  const std::uint8_t* rounded = narrowed(range, identity_.shard.begin, results);
  kernels::cast(Format::f32, results, Format::bf16, rounded, of_shard.size());
  if (callers_results_ != nullptr) {
    kernels::cast(Format::f32, callers_results_ + of_shard.begin * wide_bytes, Format::bf16, rounded, of_shard.size());
  }
}

}  // namespace holdfast
