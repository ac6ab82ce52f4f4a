// Loses exactly the packets that carry one thing, known by their header (which no protection hides) and not by chance.
//
// What is carried, and which packets count as carriers of it:
//   credit   the first packets after a change: whose credit is not that of the last packet that was let through between
//            the two ranks. Every packet carries a credit, so with all carriers lost a rank that changes its own has
//            fallen silent.
//   mark     data and holes of the last percentile; ends, which carry the flag too, are a class of their own
//   end      ends
//   sample   packets of a message whose sender announces how long the stage took it: all of that message
//   ack      acknowledgements
// A limit loses only the first few carriers of each piece of news: of one change of credit, of one message's mark, end
// or sample; of acks the first few between two ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim/random.h"
#include "sim/scenario.h"

namespace holdfast::sim {

enum class Cargo : std::uint8_t { credit, mark, end, sample, ack, count_ };

class CarrierLoss {
 public:
  CarrierLoss(const Scenario& scenario, std::uint16_t num_ranks);

  // Which cargo costs this datagram its way, if any does.
  std::optional<Cargo> loses(std::uint16_t from, std::uint16_t to, std::span<const std::uint8_t> datagram,
                             Random& random);
  // This one was let through.
  void on_passed(std::uint16_t from, std::uint16_t to, std::span<const std::uint8_t> datagram);

 private:
  std::size_t link(std::uint16_t from, std::uint16_t to) const { return std::size_t{from} * num_ranks_ + to; }
  bool carries(Cargo cargo, std::size_t link, std::span<const std::uint8_t> datagram) const;
  static std::uint64_t piece_of(Cargo cargo, std::size_t link, std::span<const std::uint8_t> datagram);

  const std::uint16_t num_ranks_;
  const std::array<double, static_cast<std::size_t>(Cargo::count_)> ratios_;
  const std::uint64_t most_of_a_piece_;       // 0: no limit
  std::vector<std::uint8_t> credits_passed_;  // by link
  std::unordered_map<std::uint64_t, std::uint64_t> lost_of_piece_;
};

}  // namespace holdfast::sim
