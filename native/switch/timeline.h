// One on/off process over time, the same for the same seed: is it on at t, when does that change, for how much of [a,
// b] was it on. Nothing but the clock moves it.
#pragma once

#include <cstddef>

#include "core/time.h"
#include "sim/random.h"
#include "switch/conditions.h"
#include "switch/ring.h"

namespace holdfast::lab {

class Timeline {
 public:
  // Begins as if it had run for ever: in a state drawn with the probability each has in the long run, and for as long
  // as the stretch in progress has left. However often a timeline is begun anew, its shares stay those of its episodes.
  Timeline(const Episodes& episodes, sim::Random random, Time start);

  bool on(Time at) { return stretch_at(at).on; }
  Time next_change(Time at) { return stretch_at(at).end; }  // later than `at`
  Duration time_on(Time from, Time to);
  // There will be no question about the time before.
  void forget_before(Time at);

 private:
  struct Stretch {
    Time begin = 0;
    Time end = never;
    bool on = false;
  };

  const Stretch& stretch_at(Time at);
  void extend_to(Time at);
  double mean_ns(bool on) const { return (on ? episodes_.on_ms : episodes_.off_ms) * static_cast<double>(millisecond); }
  Duration draw(bool on);
  Duration draw_rest(bool on);

  const Episodes episodes_;
  sim::Random random_;
  Ring<Stretch> stretches_;  // without gaps, the oldest first
  std::size_t last_found_ = 0;
};

}  // namespace holdfast::lab
