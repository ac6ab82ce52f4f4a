// Floating-point formats as their definition has them, for oracles, and every instruction set in turn.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "kernels/kernels.h"

namespace holdfast::testing {

// The widths that define a binary format, for the oracle.
struct Shape {
  int mantissa_bits;
  int smallest_exponent;
  double largest;
};

inline Shape shape(Format format) {
  switch (format) {
    case Format::f32: return {23, -126, std::numeric_limits<float>::max()};
    case Format::bf16: return {7, -126, std::ldexp(255.0, 120)};
    case Format::f16: return {10, -14, 65504.0};
    default: return {52, -1022, std::numeric_limits<double>::max()};
  }
}

// What a 16-bit pattern means, from the definition of the format.
inline double decoded(Format format, std::uint16_t bits) {
  const Shape s = shape(format);
  const int exponent_bits = 15 - s.mantissa_bits;
  const int exponent = bits >> s.mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << s.mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? std::copysign(NAN, sign) : sign * INFINITY;
  const int implicit = exponent != 0 ? 1 << s.mantissa_bits : 0;
  return sign * std::ldexp(mantissa + implicit, std::max(exponent, 1) - 1 + s.smallest_exponent - s.mantissa_bits);
}

// Runs `body` on every instruction set the CPU has; leaves the best one in use.
inline void on_each_set(const std::function<void()>& body) {
  for (const auto set : {kernels::InstructionSet::portable, kernels::InstructionSet::avx2}) {
    if (set > kernels::best_instruction_set()) continue;
    kernels::use_instruction_set(set);
    body();
  }
  kernels::use_instruction_set(kernels::best_instruction_set());
}

}  // namespace holdfast::testing
