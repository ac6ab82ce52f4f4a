#include "sim/carrier_loss.h"

#include "core/byte_order.h"
#include "core/wire.h"

namespace holdfast::sim {
namespace {

// Where core/wire.cc puts them. The network cannot tell how long the tag is, so it reads what it needs by itself.
PacketType type_of(std::span<const std::uint8_t> datagram) { return static_cast<PacketType>(datagram[1]); }
std::uint8_t flags_of(std::span<const std::uint8_t> datagram) { return datagram[2]; }
std::uint8_t credit_of(std::span<const std::uint8_t> datagram) { return datagram[14]; }
std::uint8_t stage_of(std::span<const std::uint8_t> datagram) { return datagram[15] >> 4 & 7; }
std::uint32_t operation_of(std::span<const std::uint8_t> datagram) {
  return load_big_endian<std::uint32_t>(datagram.data() + 24);
}
std::uint32_t sample_of(std::span<const std::uint8_t> datagram) {
  return load_big_endian<std::uint32_t>(datagram.data() + 40);
}

}  // namespace

CarrierLoss::CarrierLoss(const Scenario& scenario, std::uint16_t num_ranks)
    : num_ranks_(num_ranks),
      ratios_{scenario.credit_loss_ratio, scenario.mark_loss_ratio, scenario.end_loss_ratio, scenario.sample_loss_ratio,
              scenario.ack_loss_ratio},
      most_of_a_piece_(static_cast<std::uint64_t>(scenario.carriers_lost_first)),
      credits_passed_(std::size_t{num_ranks} * num_ranks, 0) {}

std::optional<Cargo> CarrierLoss::loses(std::uint16_t from, std::uint16_t to, std::span<const std::uint8_t> datagram,
                                        Random& random) {
  for (std::size_t i = 0; i < ratios_.size(); ++i) {
    const auto cargo = static_cast<Cargo>(i);
    if (ratios_[i] == 0 || !carries(cargo, link(from, to), datagram) || !random.chance(ratios_[i])) continue;
    if (most_of_a_piece_ == 0) return cargo;
    std::uint64_t& lost = lost_of_piece_[piece_of(cargo, link(from, to), datagram)];
    if (lost == most_of_a_piece_) continue;
    ++lost;
    return cargo;
  }
  return std::nullopt;
}

void CarrierLoss::on_passed(std::uint16_t from, std::uint16_t to, std::span<const std::uint8_t> datagram) {
  if (ratios_[static_cast<std::size_t>(Cargo::credit)] == 0) return;
  const std::size_t at = link(from, to);
  if (credits_passed_[at] == credit_of(datagram)) return;
  credits_passed_[at] = credit_of(datagram);
  lost_of_piece_.erase(piece_of(Cargo::credit, at, datagram));  // the next change to this credit is another one
}

bool CarrierLoss::carries(Cargo cargo, std::size_t at, std::span<const std::uint8_t> datagram) const {
  const bool is_end = type_of(datagram) == PacketType::end;
  switch (cargo) {
    case Cargo::credit: return credit_of(datagram) != credits_passed_[at];
    case Cargo::mark: return !is_end && (flags_of(datagram) & flag::last_percentile) != 0;
    case Cargo::end: return is_end;
    case Cargo::sample: return sample_of(datagram) != 0;
    case Cargo::ack: return type_of(datagram) == PacketType::ack;
    case Cargo::count_: break;
  }
  return false;
}

std::uint64_t CarrierLoss::piece_of(Cargo cargo, std::size_t at, std::span<const std::uint8_t> datagram) {
  const std::uint64_t whose = at << 3 | static_cast<std::uint64_t>(cargo);
  switch (cargo) {
    case Cargo::credit: return whose << 34 | credit_of(datagram);
    case Cargo::ack: return whose << 34;
    default: return whose << 34 | std::uint64_t{stage_of(datagram)} << 32 | operation_of(datagram);
  }
}

}  // namespace holdfast::sim
