#include "sim/truth.h"

#include <algorithm>
#include <cstring>

namespace holdfast::sim {
namespace {

template <class Real>
std::vector<Real> widened(const PlannedOperation& operation, const std::vector<std::uint8_t>& gradient,
                          ElementRange shard) {
  std::vector<Real> values(shard.size());
  const Format wide = sizeof(Real) == 8 ? Format::f64 : Format::f32;
  kernels::cast(wide, values.data(), operation.format, gradient.data() + shard.begin * element_bytes(operation.format),
                shard.size());
  return values;
}

struct Piece {
  std::uint16_t sender;
  ElementRange range;  // within the shard, new for this sender
};

// Element by element, in the order of the pieces: the sum the owner must have made, in the same arithmetic.
template <class Real>
std::vector<std::uint8_t> sum_of(const PlannedOperation& operation, std::uint16_t owner, ElementRange shard,
                                 const std::vector<std::vector<std::uint8_t>>& narrow_gradients,
                                 const std::vector<Piece>& pieces, const std::vector<std::uint64_t>& contributors) {
  const std::size_t num_ranks = narrow_gradients.size();
  std::vector<std::vector<Real>> gradients;
  for (const auto& gradient : narrow_gradients) gradients.push_back(widened<Real>(operation, gradient, shard));
  std::vector<Real> sum(shard.size(), 0);
  std::vector<std::uint32_t> others(shard.size(), 0);
  for (const Piece& piece : pieces) {
    for (std::uint32_t i = piece.range.begin; i < piece.range.end; ++i) {
      sum[i] = others[i] == 0 ? gradients[piece.sender][i] : sum[i] + gradients[piece.sender][i];
      ++others[i];
    }
  }
  const auto ranks = static_cast<double>(num_ranks);
  const double whole = operation.average ? 1 : ranks;  // what the weights of a block add up to
  for (std::uint32_t i = 0; i < shard.size(); ++i) {
    const bool own_included = (contributors[i / block_elements] >> owner & 1) != 0;
    const double count = others[i];
    if (others[i] == 0 && num_ranks > 1) {
      sum[i] = 0;  // lost
    } else if (!own_included) {
      sum[i] *= static_cast<Real>(whole / count);
    } else {
      // own/N + (N-1)/N x the mean of the others; with all of them there, every weight is 1/N.
      const double others_weight = others[i] + 1 == num_ranks ? whole / ranks : whole * (ranks - 1) / (ranks * count);
      const Real own_part = gradients[owner][i] * static_cast<Real>(whole / ranks);
      sum[i] = others[i] == 0 ? own_part : own_part + sum[i] * static_cast<Real>(others_weight);
    }
  }
  std::vector<std::uint8_t> narrow(shard.size() * element_bytes(operation.format));
  kernels::cast(operation.format, narrow.data(), sizeof(Real) == 8 ? Format::f64 : Format::f32, sum.data(),
                shard.size());
  return narrow;
}

}  // namespace

Truth::Truth(const Workload& workload, std::uint16_t num_ranks)
    : workload_(workload),
      num_ranks_(num_ranks),
      contributions_(workload.operations().size() * num_ranks),
      results_(workload.operations().size() * num_ranks) {}

bool Truth::on_taken(std::uint16_t host, const Header& header, std::uint32_t count) {
  if (header.stage != Stage::contribution && header.stage != Stage::result) return true;
  if (header.operation >= workload_.operations().size()) return false;
  if (header.type != PacketType::data && header.type != PacketType::hole) return true;
  const bool contribution = header.stage == Stage::contribution;
  const ElementRange shard = shard_of(header.operation, contribution ? host : header.sender);
  if (header.offset < shard.begin || header.offset + count > shard.end) return false;
  if ((header.offset - shard.begin) % block_elements != 0) return false;
  auto& by_host = contribution ? contributions_ : results_;
  by_host[std::size_t{header.operation} * num_ranks_ + host].push_back(
      {header.sender, header.type, header.offset, count});
  return true;
}

// Worked out here once more rather than taken from the core: the larger shards first, one further with each operation;
// with weights, rank by rank in that order, each up to its share of the bucket.
ElementRange Truth::shard_of(std::uint32_t operation, std::uint16_t owner) const {
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
  const std::uint32_t index = (owner + operation) % num_ranks_;
  for (std::uint32_t shard = 0;; ++shard) {
    const std::uint32_t size = total / num_ranks_ + (shard < total % num_ranks_ ? 1 : 0);
    if (shard == index) return {begin, begin + size};
    begin += size;
  }
}

ShardTruth Truth::shard(std::uint32_t number, std::uint16_t owner, bool own_included,
                        const std::vector<std::vector<std::uint8_t>>& gradients) const {
  const PlannedOperation& operation = workload_.operations()[number];
  ShardTruth truth;
  truth.shard = shard_of(number, owner);
  const std::uint32_t num_blocks = (truth.shard.size() + block_elements - 1) / block_elements;
  truth.contributors.assign(num_blocks, own_included ? 1ull << owner : 0);

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
      if ((mask >> packet.sender & 1) != 0) continue;  // counts once, however often it arrives
      mask |= 1ull << packet.sender;
      pieces.push_back({packet.sender, {at, std::min(at + block_elements, truth.shard.size())}});
    }
  }
  truth.elements = operation.format == Format::f64
                       ? sum_of<double>(operation, owner, truth.shard, gradients, pieces, truth.contributors)
                       : sum_of<float>(operation, owner, truth.shard, gradients, pieces, truth.contributors);
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
