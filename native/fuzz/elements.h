// Gradients and results whose every element can be told from its neighbours, and the same element of another rank.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace holdfast::fuzz {

// Small integers are exact in every format.
inline double gradient_at(std::uint32_t rank, std::uint32_t element) { return 1 + (rank * 37 + element * 11) % 61; }
inline double result_at(std::uint32_t owner, std::uint32_t element) { return 1 + (owner * 23 + element * 7) % 59; }
constexpr double max_gradient = 61;

template <class ValueAt>
std::vector<std::uint8_t> elements_of(Format format, std::uint32_t begin, std::uint32_t count, ValueAt value_at) {
  std::vector<double> values(count);
  for (std::uint32_t i = 0; i < count; ++i) values[i] = value_at(begin + i);
  std::vector<std::uint8_t> bytes(count * element_bytes(format));
  kernels::cast(format, bytes.data(), Format::f64, values.data(), count);
  return bytes;
}

inline double value_of(Format format, const std::uint8_t* at) {
  double value = 0;
  kernels::cast(Format::f64, &value, format, at, 1);
  return value;
}

}  // namespace holdfast::fuzz
