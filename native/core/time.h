// The core is told the time, never asks for it.
#pragma once

#include <cstdint>
#include <limits>

namespace holdfast {

using Time = std::int64_t;  // nanoseconds on a monotonic clock whose origin only the caller knows
using Duration = std::int64_t;

constexpr Time never = std::numeric_limits<Time>::max();
constexpr Duration microsecond = 1'000;
constexpr Duration millisecond = 1'000'000;
constexpr Duration second = 1'000'000'000;

constexpr double in_seconds(Duration duration) { return static_cast<double>(duration) / static_cast<double>(second); }

}  // namespace holdfast
