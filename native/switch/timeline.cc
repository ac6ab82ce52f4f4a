#include "switch/timeline.h"

#include <algorithm>
#include <cmath>

namespace holdfast::lab {

Timeline::Timeline(const Episodes& episodes, sim::Random random, Time start) : episodes_(episodes), random_(random) {
  if (episodes.always() || episodes.on_ms == 0) {
    stretches_.push_back({start, never, episodes.always()});
    return;
  }
  const bool on = random_.chance(episodes.on_ms / (episodes.on_ms + episodes.off_ms));
  stretches_.push_back({start, start + draw_rest(on), on});
}

Duration Timeline::draw(bool on) {
  const double length = episodes_.lengths == Lengths::exponential
                            ? random_.exponential(mean_ns(on))
                            : mean_ns(on) * random_.uniform(1 - episodes_.spread_ratio, 1 + episodes_.spread_ratio);
  return std::max<Duration>(1, std::llround(length));
}

// Of the stretch that some moment falls into. An exponential length has no memory. Of uniform ones a moment falls into
// long ones more often, in proportion to their length: their density then rises as x, their distribution as x squared.
// Any part of it may be over.
Duration Timeline::draw_rest(bool on) {
  if (episodes_.lengths == Lengths::exponential) return draw(on);
  const double least = 1 - episodes_.spread_ratio, most = 1 + episodes_.spread_ratio;
  const double length = mean_ns(on) * std::sqrt(random_.uniform(least * least, most * most));
  return std::max<Duration>(1, static_cast<Duration>(std::ceil(length * (1 - random_.uniform()))));
}

void Timeline::extend_to(Time at) {
  while (stretches_.back().end <= at) {
    const Stretch last = stretches_.back();
    stretches_.push_back({last.end, last.end + draw(!last.on), !last.on});
  }
  last_found_ = stretches_.size() - 1;
}

const Timeline::Stretch& Timeline::stretch_at(Time at) {
  if (at >= stretches_.back().end) extend_to(at);
  const auto holds = [&](std::size_t index) { return stretches_[index].begin <= at && at < stretches_[index].end; };
  if (last_found_ < stretches_.size() && holds(last_found_)) return stretches_[last_found_];
  std::size_t low = 0, high = stretches_.size() - 1;  // the last one that begins by `at`, or the oldest
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (stretches_[middle].begin <= at) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  last_found_ = low;
  return stretches_[low];
}

void Timeline::forget_before(Time at) {
  while (stretches_.size() > 1 && stretches_.front().end <= at) stretches_.pop_front();
  last_found_ = 0;
}

Duration Timeline::time_on(Time from, Time to) {
  Duration total = 0;
  while (from < to) {
    const Stretch stretch = stretch_at(from);
    const Time end = std::min(stretch.end, to);
    if (stretch.on) total += end - from;
    from = end;
  }
  return total;
}

}  // namespace holdfast::lab
