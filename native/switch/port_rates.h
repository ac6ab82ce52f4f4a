// What one port can carry at any time, from 120 s ago to the future that the present conditions hold.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "core/time.h"
#include "switch/timeline.h"

namespace holdfast::lab {

constexpr Duration remembered = 120 * second;

// One independent stream of random numbers per use, so that a change to one moves no other.
enum class Stream : std::uint64_t { cross_traffic, slow_downs, freezes, bursts, tails, losses };
sim::Random random_for(std::uint64_t seed, Stream stream, std::size_t subject, std::uint32_t revision);

// A timeline that starts anew only when its episodes change, or when it is told to.
class EpisodeSource {
 public:
  EpisodeSource(std::uint64_t seed, Stream stream, std::size_t subject)
      : seed_(seed), stream_(stream), subject_(subject) {}
  std::shared_ptr<Timeline> follow(Time now, const Episodes& episodes);
  // The same episodes, drawn from another seed: what comes depends on nothing that was.
  std::shared_ptr<Timeline> draw_anew(Time now, std::uint64_t seed);

 private:
  std::shared_ptr<Timeline> begin(Time now);

  std::uint64_t seed_;
  Stream stream_;
  std::size_t subject_;
  std::uint32_t revision_ = 0;
  Episodes episodes_;
  std::shared_ptr<Timeline> timeline_;
};

// Rates in bytes per nanosecond. All of it holds until `until`.
struct Rates {
  double uplink = 0;
  double downlink = 0;
  double cross_traffic = 0;  // arriving for the downlink
  double queue_bytes = 0;
  bool frozen = false;
  bool down = false;
  Time from = 0;
  Time until = never;
};

class PortRates {
 public:
  PortRates(std::uint64_t seed, std::size_t port, Time now, const PortConditions& conditions);
  void set(Time now, const PortConditions& conditions);  // `now` never goes back
  void draw_anew(Time now, std::uint64_t seed);
  // Forgets what is longer ago than is remembered.
  void forget(Time now);
  const PortConditions& conditions() const { return eras_.back().conditions; }
  const Rates& at(Time at) {
    if (at < found_.from || at >= found_.until) found_ = look_up(at);
    return found_;
  }

 private:
  // Between two changes of the conditions, or of what was drawn.
  struct Era {
    Time start;
    PortConditions conditions;
    std::shared_ptr<Timeline> cross_traffic, slow_downs, freezes;
  };

  Rates look_up(Time at);

  EpisodeSource cross_traffic_, slow_downs_, freezes_;
  std::deque<Era> eras_;
  Rates found_;
};

}  // namespace holdfast::lab
