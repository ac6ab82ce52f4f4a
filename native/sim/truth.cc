#include "sim/truth.h"

#include <algorithm>
#include <cstring>

#include "core/narrowing.h"

namespace holdfast::sim {
namespace {

template <class Real>
std::vector<Real> widened(Format format, const std::vector<std::uint8_t>& narrow) {
  std::vector<Real> values(narrow.size() / element_bytes(format));
  const Format wide = sizeof(Real) == 8 ? Format::f64 : Format::f32;
  kernels::cast(wide, values.data(), format, narrow.data(), values.size());
  return values;
}

struct Piece {
  std::uint16_t sender;
  ElementRange range;  // within the shard, new for this sender
  bool narrow;
};

// The shard of a rank, or its result, as it would be in sixteen bits.
std::vector<float> rounded(std::uint32_t operation, std::uint16_t rank, std::uint32_t shard_begin,
                           const std::vector<std::uint8_t>& elements) {
  std::vector<std::uint8_t> narrow(elements.size() / 2);
  kernels::narrow_stochastic(Format::bf16, narrow.data(), elements.data(), narrow.size() / 2,
                             Narrowing::seed(operation, rank, shard_begin));
  return widened<float>(Format::bf16, narrow);
}

// Element by element, in the order of the pieces: the sum the owner must have made, in the same arithmetic.
template <class Real>
std::vector<std::uint8_t> sum_of(const PlannedOperation& operation, std::uint16_t owner, std::uint32_t size,
                                 std::size_t num_sharing, const std::vector<Share>& shares,
                                 const std::vector<Piece>& pieces, const std::vector<bool>& own_included,
                                 std::uint32_t shard_begin) {
  std::vector<std::vector<Real>> values, narrow_values(shares.size());
  for (const Share& share : shares) values.push_back(widened<Real>(operation.format, share.elements));
  for (const Piece& piece : pieces) {
    auto& of_sender = narrow_values[piece.sender];
    if (!piece.narrow || !of_sender.empty()) continue;
    const auto elements = rounded(operation.number, piece.sender, shard_begin, shares[piece.sender].elements);
    of_sender.assign(elements.begin(), elements.end());
  }
  std::vector<Real> sum(size, 0);
  std::vector<std::uint32_t> others(size, 0);
  for (const Piece& piece : pieces) {
    const std::vector<Real>& sent = (piece.narrow ? narrow_values : values)[piece.sender];
    for (std::uint32_t i = piece.range.begin; i < piece.range.end; ++i) {
      sum[i] = others[i] == 0 ? sent[i] : sum[i] + sent[i];
      ++others[i];
    }
  }
  const auto sharing = static_cast<double>(num_sharing);
  const double whole = operation.average ? 1 : sharing;  // what the weights of a block add up to
  for (std::uint32_t i = 0; i < size; ++i) {
    const double count = others[i];
    if (others[i] == 0 && num_sharing > 1) {
      sum[i] = 0;  // lost
    } else if (!own_included[i / block_elements]) {
      sum[i] *= static_cast<Real>(whole / count);
    } else {
      // own/N + (N-1)/N x the mean of the others; with all of them there, every weight is 1/N.
      const double others_weight =
          others[i] + 1 == num_sharing ? whole / sharing : whole * (sharing - 1) / (sharing * count);
      const Real own_part = values[owner][i] * static_cast<Real>(whole / sharing);
      sum[i] = others[i] == 0 ? own_part : own_part + sum[i] * static_cast<Real>(others_weight);
    }
  }
  std::vector<std::uint8_t> narrow(size * element_bytes(operation.format));
  kernels::cast(operation.format, narrow.data(), sizeof(Real) == 8 ? Format::f64 : Format::f32, sum.data(), size);
  return narrow;
}

std::uint32_t blocks_of(ElementRange range) { return (range.size() + block_elements - 1) / block_elements; }

// The n-th of so many parts, the larger ones first.
ElementRange part_of(std::uint32_t total, std::uint32_t num_parts, std::uint32_t index) {
  std::uint32_t begin = 0;
  for (std::uint32_t part = 0;; ++part) {
    const std::uint32_t size = total / num_parts + (part < total % num_parts ? 1 : 0);
    if (part == index) return {begin, begin + size};
    begin += size;
  }
}

}  // namespace

Truth::Truth(const Workload& workload, std::uint16_t num_ranks)
    : workload_(workload),
      num_ranks_(num_ranks),
      contributions_(workload.operations().size() * 2 * num_ranks),
      results_(workload.operations().size() * 2 * num_ranks),
      rounded_results_(workload.operations().size() * 2 * num_ranks) {}

std::size_t Truth::slot(std::uint32_t operation, std::uint16_t host) const {
  return (std::size_t{call_of(operation)} * 2 + (is_between_groups(operation) ? 1 : 0)) * num_ranks_ + host;
}

bool Truth::on_taken(std::uint16_t host, const Header& header, std::uint32_t count) {
  if (header.stage != Stage::contribution && header.stage != Stage::result) return true;
  if (call_of(header.operation) >= workload_.operations().size()) return false;
  if (!take_part_together(header.operation, host, header.sender)) return false;
  if (!carries_elements(header.type) && header.type != PacketType::hole) return true;
  const bool contribution = header.stage == Stage::contribution;
  const ElementRange shard = shard_of(header.operation, contribution ? host : header.sender);
  if (header.offset < shard.begin || header.offset + count > shard.end) return false;
  if ((header.offset - shard.begin) % block_elements != 0) return false;
  auto& by_host = contribution ? contributions_ : results_;
  by_host[slot(header.operation, host)].push_back({header.sender, header.type, header.offset, count});
  return true;
}

void Truth::on_sent_narrow(std::uint16_t host, const Header& header) {
  if (header.stage != Stage::result || call_of(header.operation) >= workload_.operations().size()) return;
  const std::uint32_t begin = header.offset;
  rounded_results_[slot(header.operation, host)].push_back({begin, begin + header.packed_elements});
}

bool Truth::take_part_together(std::uint32_t operation, std::uint16_t one, std::uint16_t other) const {
  const auto num_groups = static_cast<std::uint32_t>(workload_.num_groups());
  if (num_groups == 1) return !is_between_groups(operation);
  const std::uint32_t group_size = num_ranks_ / num_groups;
  return is_between_groups(operation) ? one % group_size == other % group_size : one / group_size == other / group_size;
}

// Worked out here once more rather than taken from the core. In groups: the group's shards go by place, and move on
// with each call; those of a shard go by group, in whole blocks, and move on when the others have been round.
ElementRange Truth::shard_of(std::uint32_t operation, std::uint16_t owner) const {
  const std::uint32_t call = call_of(operation);
  const auto num_groups = static_cast<std::uint32_t>(workload_.num_groups());
  if (num_groups == 1) return whole_shard_of(call, owner);
  const std::uint32_t group_size = num_ranks_ / num_groups;
  const ElementRange shard =
      part_of(workload_.operations()[call].total, group_size, (owner % group_size + call) % group_size);
  if (!is_between_groups(operation)) return shard;
  const ElementRange blocks =
      part_of(blocks_of(shard), num_groups, (owner / group_size + call / group_size) % num_groups);
  return {std::min(shard.size(), blocks.begin * block_elements), std::min(shard.size(), blocks.end * block_elements)};
}

// The larger shards first, one further with each operation; with weights, rank by rank in that order, each up to its
// share of the bucket.
ElementRange Truth::whole_shard_of(std::uint32_t operation, std::uint16_t owner) const {
  const PlannedOperation& planned = workload_.operations()[operation];
  const std::uint32_t total = planned.total;
  const auto& weights = workload_.division().weights();
  std::uint32_t begin = 0;
  if (!weights.empty() && planned.delivery == Delivery::bounded && total / num_ranks_ >= 64 && num_ranks_ > 2) {
    double weight_sum = 0;
    for (const std::uint8_t weight : weights) weight_sum += weight;
    double reached = 0;
    for (std::uint32_t rank = num_ranks_ * (operation + 1) - operation;; ++rank) {
      reached += weights[rank % num_ranks_];
      const auto end = static_cast<std::uint32_t>(reached * total / weight_sum);
      if (rank % num_ranks_ == owner) return {begin, end};
      begin = end;
    }
  }
  return part_of(total, num_ranks_, (owner + operation) % num_ranks_);
}

ShardTruth Truth::shard(std::uint32_t number, std::uint16_t owner, bool own_included,
                        const std::vector<std::vector<std::uint8_t>>& gradients) const {
  const ElementRange shard = shard_of(number, owner);
  const std::size_t size = element_bytes(workload_.operations()[number].format);
  std::vector<Share> shares;
  for (std::uint16_t rank = 0; rank < num_ranks_; ++rank) {
    const auto begin = gradients[rank].begin() + static_cast<std::ptrdiff_t>(shard.begin * size);
    shares.push_back({{begin, begin + static_cast<std::ptrdiff_t>(shard.size() * size)},
                      std::vector<std::uint64_t>(blocks_of(shard), 1ull << rank)});
  }
  const auto num_groups = static_cast<std::size_t>(workload_.num_groups());
  return sum(number, owner, own_included, num_ranks_ / num_groups, shares);
}

ShardTruth Truth::sum(std::uint32_t number, std::uint16_t owner, bool own_included, std::size_t num_sharing,
                      const std::vector<Share>& shares) const {
  const PlannedOperation& operation = workload_.operations()[call_of(number)];
  ShardTruth truth;
  truth.shard = shard_of(number, owner);
  const std::uint32_t num_blocks = blocks_of(truth.shard);
  std::vector<bool> has_own(num_blocks, false);
  for (std::uint32_t block = 0; block < num_blocks; ++block) {
    truth.contributors.push_back(own_included ? shares[owner].makeup[block] : 0);
    has_own[block] = truth.contributors[block] != 0;
  }
  truth.holes.assign(num_blocks, num_sharing > 1);

  std::vector<Taken> order = taken(contributions_, number, owner);
  if (workload_.deterministic()) {
    std::stable_sort(order.begin(), order.end(),
                     [](const Taken& left, const Taken& right) { return left.sender < right.sender; });
  }
  std::vector<Piece> pieces;
  for (const Taken& packet : order) {
    const std::uint32_t begin = packet.begin - truth.shard.begin;
    for (std::uint32_t at = begin; at < begin + packet.count; at += block_elements) {
      std::uint64_t& mask = truth.contributors[at / block_elements];
      const std::uint64_t makeup = shares[packet.sender].makeup[at / block_elements];
      if ((mask & makeup) == makeup) continue;  // nothing is in it, or it counts once, however often it arrives
      mask |= makeup;
      truth.holes[at / block_elements] = false;
      const bool narrow = packet.type == PacketType::narrow;
      pieces.push_back({packet.sender, {at, std::min(at + block_elements, truth.shard.size())}, narrow});
    }
  }
  const auto sum_in = [&]<class Real>() {
    return sum_of<Real>(operation, owner, truth.shard.size(), num_sharing, shares, pieces, has_own, truth.shard.begin);
  };
  truth.elements =
      operation.format == Format::f64 ? sum_in.template operator()<double>() : sum_in.template operator()<float>();
  const auto& narrow = rounded_results_[slot(number, owner)];
  if (narrow.empty()) return truth;
  const std::vector<float> as_narrow = rounded(number, owner, truth.shard.begin, truth.elements);
  for (const ElementRange& range : narrow) {
    const std::uint32_t begin = range.begin - truth.shard.begin;
    std::memcpy(truth.elements.data() + begin * sizeof(float), as_narrow.data() + begin, range.size() * sizeof(float));
  }
  return truth;
}

std::vector<std::uint8_t> Truth::results_taken(std::uint32_t operation, std::uint16_t host, std::uint16_t owner) const {
  const ElementRange shard = shard_of(operation, owner);
  std::vector<std::uint8_t> blocks((shard.size() + block_elements - 1) / block_elements, 0);
  for (const Taken& packet : taken(results_, operation, host)) {
    if (packet.sender != owner) continue;
    const std::uint32_t begin = (packet.begin - shard.begin) / block_elements;
    const std::uint32_t end = (packet.begin + packet.count - shard.begin + block_elements - 1) / block_elements;
    for (std::uint32_t block = begin; block < end; ++block) {
      if (blocks[block] == 0) blocks[block] = packet.type == PacketType::hole ? 2 : 1;
    }
  }
  return blocks;
}

bool Truth::has_result_within(std::uint32_t operation, std::uint16_t host, ElementRange range) const {
  const auto& packets = taken(results_, operation, host);
  return std::any_of(packets.begin(), packets.end(), [range](const Taken& packet) {
    return packet.begin < range.end && range.begin < packet.begin + packet.count;
  });
}

bool Truth::has_contribution(std::uint32_t operation, std::uint16_t owner, std::uint16_t sender,
                             ElementRange range) const {
  std::vector<bool> seen(range.size(), false);
  for (const Taken& packet : taken(contributions_, operation, owner)) {
    if (packet.sender != sender) continue;
    const std::uint32_t end = std::min(range.end, packet.begin + packet.count);
    for (std::uint32_t i = std::max(range.begin, packet.begin); i < end; ++i) seen[i - range.begin] = true;
  }
  return std::find(seen.begin(), seen.end(), false) == seen.end();
}

std::uint32_t Truth::contributed(std::uint32_t operation, std::uint16_t owner, std::uint16_t sender) const {
  const ElementRange shard = shard_of(operation, owner);
  std::vector<bool> seen((shard.size() + block_elements - 1) / block_elements, false);
  std::uint32_t elements = 0;
  for (const Taken& packet : taken(contributions_, operation, owner)) {
    if (packet.sender != sender) continue;
    for (std::uint32_t at = packet.begin - shard.begin; at < packet.begin + packet.count - shard.begin;
         at += block_elements) {
      if (seen[at / block_elements]) continue;
      seen[at / block_elements] = true;
      elements += std::min(block_elements, shard.size() - at);
    }
  }
  return elements;
}

}  // namespace holdfast::sim
