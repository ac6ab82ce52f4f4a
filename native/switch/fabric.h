// The switch as a pure machine: it is told the time and the packets that hosts send, and says which packet is due at
// which host when. No clock, no thread, no descriptor, no packet contents.
//
// Each packet: uplink -> loss -> delay, first in first out on its path -> the receiver's finite queue -> downlink.
// Everything happens at its own time, however late the fabric is told that this time has passed.
#pragma once

#include <cstdint>
#include <memory>
#include <queue>
#include <vector>

#include "core/time.h"
#include "switch/conditions.h"
#include "switch/link_queue.h"
#include "switch/port_rates.h"
#include "switch/report.h"

namespace holdfast::lab {

struct Delivery {
  Time due = 0;
  Parcel parcel;
};

class Fabric {
 public:
  Fabric(std::size_t num_ports, std::uint64_t seed, Time now);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // All of these first let everything happen that is due by `now`; `now` never goes back.
  void configure(Time now, const Conditions& conditions);
  // All that is random is drawn anew from this seed, whatever was before: episodes begin as if they had run for ever,
  // and losses are those of this seed. Conditions stay, and so do packets that are under way.
  void draw_anew(Time now, std::uint64_t seed);
  void admit(Time now, const Parcel& parcel);
  void advance(Time now);
  // When something happens next; never: nothing is under way.
  Time next_event();

  // Whether a packet of this path is still to come out.
  bool has_more(std::size_t from, std::size_t to) { return path(from, to).num_inside > 0; }

  // What came out, and the packets that were lost, since they were last cleared.
  std::vector<Delivery>& deliveries() { return deliveries_; }
  std::vector<std::uint32_t>& lost_packets() { return lost_packets_; }

  std::size_t num_ports() const { return ports_.size(); }
  PortRates& rates(std::size_t port) { return ports_[port]->rates; }
  // A loss of something that never got in.
  void count_loss(std::size_t port, Loss cause) { ++ports_[port]->report.losses[static_cast<std::size_t>(cause)]; }
  PortReport port_report(std::size_t port);
  void reset_counters();

 private:
  struct Port {
    Port(std::uint64_t seed, std::size_t index, Time now);
    PortRates rates;
    LinkQueue uplink;
    LinkQueue downlink;
    PortReport report;
  };
  struct Path {
    Path(std::uint64_t seed, std::size_t index, Time now);
    void follow(Time now, const PathConditions& conditions);
    void draw_anew(Time now, std::uint64_t seed);
    const std::size_t subject;  // of its random numbers
    PathConditions conditions;
    EpisodeSource burst_source, tail_source;
    std::shared_ptr<Timeline> bursts, tails;
    sim::Random random;
    Ring<Delivery> under_way;
    Time last_arrival = 0;
    std::uint32_t num_inside = 0;  // from the uplink to the end of the downlink
  };
  // A place where things happen: uplinks, then paths, then downlinks, by number.
  struct Event {
    Time at;
    std::size_t station;
    bool operator<(const Event& other) const {  // the earliest on top
      return at != other.at ? at > other.at : station > other.station;
    }
  };

  template <class Change>
  void change_rates(Time now, std::size_t index, Change change);
  void happen(const Event& event);
  void run_uplink(Time at, Port& port);
  void run_path(Time at, Path& path);
  void run_downlink(Time at, Port& port);
  void enter_path(Time at, const Parcel& parcel);
  void forget();
  void lose(const Parcel& parcel, std::size_t port, Loss cause);
  void schedule(std::size_t station, Time at);
  Path& path(std::size_t from, std::size_t to) { return *paths_[from * ports_.size() + to]; }
  std::size_t path_station(std::size_t from, std::size_t to) const { return ports_.size() * (1 + from) + to; }
  std::size_t downlink_station(std::size_t port) const { return ports_.size() * (1 + ports_.size()) + port; }

  Time now_;
  Time forget_at_;
  std::vector<std::unique_ptr<Port>> ports_;  // the queues refer to their port's rates
  std::vector<std::unique_ptr<Path>> paths_;
  std::priority_queue<Event> events_;
  std::vector<Time> scheduled_;  // by station; an event at any other time is stale
  std::vector<Delivery> deliveries_;
  std::vector<std::uint32_t> lost_packets_;
};

}  // namespace holdfast::lab
