#include "sim/network.h"

#include <algorithm>
#include <utility>

#include "core/byte_order.h"
#include "core/wire.h"

namespace holdfast::sim {
namespace {

Duration from_us(double us) { return static_cast<Duration>(us * static_cast<double>(microsecond)); }
Duration from_ms(double ms) { return static_cast<Duration>(ms * static_cast<double>(millisecond)); }

constexpr Duration longest_stall = 500 * millisecond;  // half of what makes a peer dead
constexpr std::size_t wire_overhead_bytes = 42;        // Ethernet, IPv4 and UDP headers

PacketType type_of(std::span<const std::uint8_t> bytes) { return static_cast<PacketType>(bytes[1]); }

bool is_control(std::span<const std::uint8_t> bytes) {
  const PacketType type = type_of(bytes);
  return type == PacketType::ack || type == PacketType::ping || type == PacketType::end;
}

bool is_last_of_message(std::span<const std::uint8_t> bytes) { return (bytes[2] & flag::last_percentile) != 0; }

}  // namespace

Network::Network(const Scenario& scenario, std::uint16_t num_ranks, std::uint16_t victim, std::uint64_t seed,
                 EventQueue& events)
    : scenario_(scenario),
      num_ranks_(num_ranks),
      victim_(victim),
      neighbour_(static_cast<std::uint16_t>((victim + 1) % num_ranks)),
      random_(seed, 1),
      events_(events),
      carrier_loss_(scenario, num_ranks),
      links_(std::size_t{num_ranks} * num_ranks),
      uplink_free_at_(num_ranks, 0),
      port_free_at_(num_ranks, 0) {}

bool Network::victim_is_faulty(Time now) const {
  if (now < faults_start_) return false;
  return scenario_.fault_ms == 0 || now < faults_start_ + from_ms(scenario_.fault_ms);
}

// ---------------------------------------------------------------------------------------------------- loss

// The bad state comes and goes with time, not with packets: a burst hits whatever is sent while it lasts.
bool Network::in_burst(Time now, Link& link) {
  while (link.burst_changes_at <= now) {
    link.in_burst = link.burst_changes_at != 0 && !link.in_burst;
    const double mean_ms = link.in_burst ? scenario_.burst_ms : scenario_.calm_ms;
    link.burst_changes_at += std::max<Duration>(1, from_ms(random_.exponential(mean_ms)));
  }
  return link.in_burst;
}

bool Network::is_lost(Time now, std::uint16_t from, std::uint16_t to, std::span<const std::uint8_t> bytes) {
  const auto lost = [](std::uint64_t& counter) {
    ++counter;
    return true;
  };
  const bool faulty = victim_is_faulty(now);
  if (scenario_.black_hole && faulty && (from == victim_ || to == victim_)) return lost(counters_.lost_in_black_hole);
  if (faulty && is_slow_pair(from, to) && random_.chance(scenario_.one_way_loss_ratio)) {
    return lost(counters_.lost_one_way);
  }
  if (random_.chance(scenario_.loss_ratio)) return lost(counters_.lost_by_chance);
  if (scenario_.burst_loss_ratio > 0 && in_burst(now, link(from, to)) && random_.chance(scenario_.burst_loss_ratio)) {
    return lost(counters_.lost_in_burst);
  }
  if (is_last_of_message(bytes) && random_.chance(scenario_.last_packets_loss_ratio)) {
    return lost(counters_.lost_last_packets);
  }
  if (is_control(bytes) && random_.chance(scenario_.control_loss_ratio)) return lost(counters_.lost_control);
  if (now >= load_start_) {
    if (const auto cargo = carrier_loss_.loses(from, to, bytes, random_)) return lost(lost_with(*cargo));
  }
  carrier_loss_.on_passed(from, to, bytes);
  return false;
}

std::uint64_t& Network::lost_with(Cargo cargo) {
  switch (cargo) {
    case Cargo::credit: return counters_.lost_credits;
    case Cargo::mark: return counters_.lost_marks;
    case Cargo::end: return counters_.lost_ends;
    case Cargo::sample: return counters_.lost_samples;
    default: return counters_.lost_acks;
  }
}

// ---------------------------------------------------------------------------------------------------- delay

Time Network::stalled_until(Time now, Link& link) {
  const double mean_gap_ms = 1000 / scenario_.stalls_per_second;
  while (link.stall_ends_at < now) {
    link.stall_begins_at = std::max<Time>(0, link.stall_ends_at) + from_ms(random_.exponential(mean_gap_ms));
    const Duration length = from_ms(random_.pareto(scenario_.stall_scale_ms, scenario_.stall_shape));
    link.stall_ends_at = link.stall_begins_at + std::min(length, longest_stall);
  }
  return link.stall_begins_at <= now ? link.stall_ends_at : now;
}

// Bits per nanosecond.
double Network::rate_of(Time now, std::uint16_t host, double gbps) const {
  return host == victim_ && victim_is_faulty(now) ? gbps * scenario_.slow_rate_ratio : gbps;
}

Duration Network::transfer_time(Time now, std::uint16_t host, std::size_t bytes, double gbps) const {
  return static_cast<Duration>(static_cast<double>((bytes + wire_overhead_bytes) * 8) / rate_of(now, host, gbps));
}

void Network::put_on_link(Time departs, std::uint16_t from, std::uint16_t to, Origin origin,
                          std::vector<std::uint8_t> bytes) {
  Time arrives = departs + from_us(scenario_.delay_us);
  if (scenario_.stalls_per_second > 0) {
    const Time resumes = stalled_until(departs, link(from, to));
    if (resumes > departs) ++counters_.stalled;
    arrives += resumes - departs;
  }
  if (is_slow_pair(from, to) && victim_is_faulty(departs)) arrives += from_us(scenario_.slow_link_delay_us);
  if (random_.chance(scenario_.reorder_ratio)) {
    ++counters_.reordered;
    arrives += from_us(random_.uniform(0, scenario_.reorder_us));
  }
  std::uint32_t slot = static_cast<std::uint32_t>(datagrams_.size());
  if (free_slots_.empty()) {
    datagrams_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  datagrams_[slot] = {from, to, origin, std::move(bytes)};
  events_.schedule(arrives, EventKind::reaches_port, slot);
}

// ---------------------------------------------------------------------------------------------------- the way

void Network::send(Time now, std::uint16_t from, std::uint16_t to, std::span<const std::uint8_t> bytes) {
  ++counters_.sent;
  Time& free_at = uplink_free_at_[from];
  free_at = std::max(free_at, now) + transfer_time(now, from, bytes.size(), scenario_.rate_gbps);
  const Time departs = free_at;
  disturb(departs, from, to, bytes);
  if (is_lost(now, from, to, bytes)) return;
  std::vector<std::uint8_t> arriving(bytes.begin(), bytes.end());
  if (random_.chance(scenario_.corrupt_ratio)) {
    ++counters_.corrupted;
    const std::uint64_t flips = 1 + random_.below(4);
    // Distinct bytes, so that no flip undoes another.
    for (std::uint64_t flip = 0; flip < flips; ++flip) {
      const std::uint64_t stride = arriving.size() / flips;
      arriving[flip * stride + random_.below(stride)] ^= static_cast<std::uint8_t>(1u << random_.below(8));
    }
    put_on_link(departs, from, to, Origin::corrupted, std::move(arriving));
    return;
  }
  if (random_.chance(scenario_.truncate_ratio)) {
    ++counters_.truncated;
    arriving.resize(random_.below(arriving.size()));
    put_on_link(departs, from, to, Origin::truncated, std::move(arriving));
    return;
  }
  put_on_link(departs, from, to, Origin::genuine, std::move(arriving));
}

// What others add to the traffic: copies now, copies later, and forgeries.
void Network::disturb(Time departs, std::uint16_t from, std::uint16_t to, std::span<const std::uint8_t> bytes) {
  if (random_.chance(scenario_.duplicate_ratio)) {
    ++counters_.duplicated;
    const Duration later = from_us(random_.uniform(0, 2 * scenario_.delay_us));
    put_on_link(departs + later, from, to, Origin::genuine, {bytes.begin(), bytes.end()});
  }
  if (random_.chance(scenario_.replay_ratio)) {
    ++counters_.replayed;
    const Duration later = from_ms(random_.exponential(scenario_.replay_after_ms));
    put_on_link(departs + later, from, to, Origin::replayed, {bytes.begin(), bytes.end()});
  }
  if (random_.chance(scenario_.forge_ratio)) {
    ++counters_.forged;
    put_on_link(departs, from, to, Origin::forged, forgery_of(bytes, from));
  }
}

// An attacker who sees the traffic but has no key.
std::vector<std::uint8_t> Network::forgery_of(std::span<const std::uint8_t> genuine, std::uint16_t from) {
  std::vector<std::uint8_t> forged(genuine.begin(), genuine.end());
  const auto scramble = [&](std::size_t begin) {
    for (std::size_t i = begin; i < forged.size(); ++i) forged[i] = static_cast<std::uint8_t>(random_.bits());
  };
  // A number nobody has used yet, so that the replay window does not do the work of the authentication.
  const auto renumber = [&] {
    const std::uint64_t number = load_big_endian<std::uint64_t>(forged.data() + 16);
    store_big_endian(forged.data() + 16, number + ((1 + random_.below(1000)) << 16));
  };
  switch (random_.below(8)) {
    case 0:  // noise of any length
      forged.resize(random_.below(2000));
      scramble(0);
      break;
    case 1:  // a good header over other contents
      renumber();
      scramble(header_bytes);
      break;
    case 2:  // in another rank's name
      store_big_endian(forged.data() + 12, static_cast<std::uint16_t>(from + 1 + random_.below(num_ranks_)));
      renumber();
      break;
    case 3:  // of another membership epoch
      store_big_endian(forged.data() + 8, load_big_endian<std::uint32_t>(forged.data() + 8) - 1);
      break;
    case 4:  // of another job
      store_big_endian(forged.data() + 4, static_cast<std::uint32_t>(random_.bits()));
      break;
    case 5:  // a goodbye
      forged.resize(header_bytes + tag_bytes);
      forged[1] = static_cast<std::uint8_t>(PacketType::bye);
      forged[15] = 0;
      renumber();
      break;
    case 6:  // an end
      forged.resize(header_bytes + tag_bytes);
      forged[1] = static_cast<std::uint8_t>(PacketType::end);
      forged[2] |= flag::last_percentile;
      forged[15] = static_cast<std::uint8_t>(1 << 4 | 1);
      renumber();
      break;
    default:  // of a key far ahead
      forged[3] = static_cast<std::uint8_t>(forged[3] + 2 + random_.below(100));
      renumber();
      break;
  }
  return forged;
}

void Network::on_reaches_port(Time now, std::uint32_t slot) {
  const Datagram& datagram = datagrams_[slot];
  Time& free_at = port_free_at_[datagram.to];
  const double backlog_bytes = static_cast<double>(std::max<Duration>(0, free_at - now)) *
                               rate_of(now, datagram.to, scenario_.port_rate_gbps) / 8;
  if (backlog_bytes + static_cast<double>(datagram.bytes.size()) > static_cast<double>(scenario_.port_queue_bytes)) {
    ++counters_.dropped_at_port;
    free_slots_.push_back(slot);
    return;
  }
  free_at = std::max(free_at, now) + transfer_time(now, datagram.to, datagram.bytes.size(), scenario_.port_rate_gbps);
  events_.schedule(free_at, EventKind::reaches_host, slot);
}

Datagram Network::take(std::uint32_t slot) {
  ++counters_.reached_host;
  free_slots_.push_back(slot);
  return std::move(datagrams_[slot]);
}

}  // namespace holdfast::sim
