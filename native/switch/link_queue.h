// What waits to cross one direction of a port: packets, first come first served, and fluid cross traffic among them.
//
// The backlog is kept as a number of bytes. A packet knows how many bytes must be served before it is through, so the
// rate may change at any time, and the sum of all rounding is at most one nanosecond per packet, never more.
#pragma once

#include <cstdint>

#include "core/time.h"
#include "switch/port_rates.h"
#include "switch/ring.h"

namespace holdfast::lab {

struct Parcel {
  std::uint32_t packet = 0;  // whatever the caller calls it
  std::uint32_t bytes = 0;
  std::uint16_t from = 0;
  std::uint16_t to = 0;
};

class LinkQueue {
 public:
  enum class Direction : std::uint8_t { uplink, downlink };
  LinkQueue(PortRates& rates, Direction direction, Time now) : rates_(rates), direction_(direction), now_(now) {}

  // Cross traffic may fill the backlog up to `limit_bytes`.
  void advance(Time now, double limit_bytes);
  bool has_room(std::uint32_t bytes, double limit_bytes) const { return backlog_ + bytes <= limit_bytes; }
  void push(const Parcel& parcel);
  bool empty() const { return waiting_.empty(); }
  // The next packet that is through; advance first.
  bool pop(Parcel& parcel);
  // When to look again: the first packet is through then, unless its turn is more than a second away.
  Time next_event();

  double peak_bytes() const { return peak_; }
  double cross_traffic_bytes() const { return cross_traffic_bytes_; }
  void reset_counters() {
    peak_ = backlog_;
    cross_traffic_bytes_ = 0;
  }

 private:
  struct Waiting {
    Parcel parcel;
    double through_at = 0;  // of `served_`
  };

  double service(const Rates& rates) const { return direction_ == Direction::uplink ? rates.uplink : rates.downlink; }
  double arrival(const Rates& rates) const { return direction_ == Direction::uplink ? 0 : rates.cross_traffic; }
  void flow(double duration, double service, double arrival, double limit);

  PortRates& rates_;
  const Direction direction_;
  Time now_;
  Ring<Waiting> waiting_;
  double backlog_ = 0;  // bytes
  double served_ = 0;   // bytes, ever
  double peak_ = 0;
  double cross_traffic_bytes_ = 0;
};

}  // namespace holdfast::lab
