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

}  // namespace holdfast::io
