// The one place that asks the kernel what time it is.
#pragma once

#include <ctime>

#include "core/time.h"

namespace holdfast::io {

inline Time monotonic_now() {
  timespec value{};
  clock_gettime(CLOCK_MONOTONIC, &value);
  return value.tv_sec * second + value.tv_nsec;
}

// The clock by which the kernel stamps what it receives. It may be set: good for differences of moments only.
inline Time wall_clock_now() {
  timespec value{};
  clock_gettime(CLOCK_REALTIME, &value);
  return value.tv_sec * second + value.tv_nsec;
}

}  // namespace holdfast::io
