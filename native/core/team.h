// Which ranks take part in an operation: evenly spaced ones, in ascending order. A rank's place is its index among
// them.
#pragma once

#include <cstdint>

namespace holdfast {

struct Team {
  std::uint16_t first = 0;
  std::uint16_t stride = 1;
  std::uint16_t size = 1;

  constexpr std::uint16_t rank_at(std::uint32_t place) const {
    return static_cast<std::uint16_t>(first + place * stride);
  }
  constexpr bool has(std::uint16_t rank) const {
    return rank >= first && (rank - first) % stride == 0 && (rank - first) / stride < size;
  }
  // Only of a rank that it has.
  constexpr std::uint16_t place_of(std::uint16_t rank) const {
    return static_cast<std::uint16_t>((rank - first) / stride);
  }

  class Iterator {
   public:
    constexpr Iterator(const Team& team, std::uint32_t place) : team_(&team), place_(place) {}
    constexpr std::uint16_t operator*() const { return team_->rank_at(place_); }
    constexpr Iterator& operator++() {
      ++place_;
      return *this;
    }
    constexpr bool operator!=(const Iterator& other) const { return place_ != other.place_; }

   private:
    const Team* team_;
    std::uint32_t place_;
  };
  constexpr Iterator begin() const { return {*this, 0}; }
  constexpr Iterator end() const { return {*this, size}; }
};

}  // namespace holdfast
