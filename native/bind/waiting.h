// The GIL rules, in one place: nothing native runs under the GIL for long, and whatever waits can be interrupted.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "core/time.h"

namespace holdfast::bind {

// Waits in slices without the GIL, and looks for Ctrl-C in between. `attempt(patience)` returns an optional.
template <class Attempt>
auto wait_interruptibly(double timeout_seconds, Attempt attempt) -> decltype(attempt(Duration{})) {
  constexpr Duration slice = 50 * millisecond;
  if (std::isnan(timeout_seconds)) throw nanobind::value_error("a time limit is a number of seconds");
  const auto ends = std::chrono::steady_clock::now() +
                    std::chrono::nanoseconds(static_cast<Duration>(std::clamp(timeout_seconds, 0.0, 1e8) * 1e9));
  while (true) {
    // By the clock, not by counting slices: getting the GIL back takes its time too.
    const Duration left = std::chrono::nanoseconds(ends - std::chrono::steady_clock::now()).count();
    const Duration patience = std::clamp<Duration>(left, 0, slice);
    auto answer = [&] {
      const nanobind::gil_scoped_release released;
      return attempt(patience);
    }();
    if (answer || left <= patience) return answer;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }
}

}  // namespace holdfast::bind
