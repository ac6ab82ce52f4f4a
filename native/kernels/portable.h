// The kernels in plain C++: the reference the AVX2 path must equal bit for bit, and the tail of its loops.
//
// Conversions are select-shaped rather than branchy so that the compiler vectorises them for whatever it targets.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/hadamard_layout.h"
#include "kernels/kernels.h"
#include "kernels/packing_group.h"
#include "kernels/random_bits.h"

namespace holdfast::kernels::portable {

// Which operand's payload survives NaN + NaN depends on the compiler and on the CPU (x86 keeps the first, and the
// compiler may swap them). Arithmetic therefore always answers this one NaN; conversions keep the payload.
template <class Real>
Real canonical_if_nan(Real value) {
  return std::isnan(value) ? std::numeric_limits<Real>::quiet_NaN() : value;
}

inline float widen_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

inline std::uint16_t narrow_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // nearest, ties to even
  const std::uint32_t quiet = (bits >> 16) | 0x40u;  // a payload in the low half alone would narrow to infinity
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

inline float widen_f16(std::uint16_t bits) {
  constexpr std::uint32_t exponent_shift = (127 - 15) << 23;
  constexpr std::uint32_t smallest_normal = (127 - 14) << 23;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
  const std::uint32_t normal = magnitude + exponent_shift;
  // A denormal's mantissa placed under the smallest normal's exponent, minus that normal: exact, and no flushing.
  const auto denormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + smallest_normal) -
                                                     std::bit_cast<float>(smallest_normal));
  const std::uint32_t quiet_bit = (bits & 0x3ffu) != 0 ? 0x400000u : 0u;  // VCVTPH2PS quiets signalling NaNs
  const std::uint32_t special = magnitude | 0x7f800000u | quiet_bit;
  const std::uint32_t exponent = bits & 0x7c00u;
  const std::uint32_t value = exponent == 0x7c00u ? special : exponent == 0 ? denormal : normal;
  return std::bit_cast<float>(value | static_cast<std::uint32_t>(bits & 0x8000u) << 16);
}

inline std::uint16_t narrow_to_f16(float value) {
  constexpr std::uint32_t first_infinite = (127 + 16) << 23;
  constexpr std::uint32_t smallest_normal = (127 - 14) << 23;
  // One unit in the last place of this number is one f16 denormal step, so adding it makes the FPU do the rounding.
  constexpr std::uint32_t denormal_step = (127 - 15 + 23 - 10 + 1) << 23;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t denormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(denormal_step)) -
      denormal_step;
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const std::uint32_t special = magnitude > 0x7f800000u ? nan : 0x7c00u;
  const std::uint32_t narrowed = magnitude >= first_infinite   ? special
                                 : magnitude < smallest_normal ? denormal
                                                               : normal;
  return static_cast<std::uint16_t>(narrowed | (bits >> 16 & 0x8000u));
}

// f64 to f32 with the inexactness kept in the last bit (round to odd). Rounding the result again, to bf16 or f16,
// then gives the nearest value to the double; two roundings to nearest would not.
inline float narrow_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  bits -= std::fabs(back) > std::fabs(value) ? 1u : 0u;
  bits |= back < value || back > value ? 1u : 0u;
  return std::bit_cast<float>(bits);
}

// Float bit patterns that bound what a 16-bit format can hold.
constexpr std::uint32_t infinite_bits = 0x7f800000;
template <Format F>
constexpr std::uint32_t largest_bits = F == Format::bf16 ? 0x7f7f0000 : 0x477fe000;

// Magnitudes below this are f16 denormals: whole steps of 2^-24. Times 2^40 they are integers with 16 bits of a step,
// as many as there are random bits.
constexpr std::uint32_t smallest_normal_f16 = (127 - 14) << 23;
constexpr float denormal_scale = 0x1p40f;

// `magnitude` is finite and within the format; `random` has 16 bits. Adding random bits below the last place and
// cutting them off goes up as often as the part cut off says.
template <Format F>
std::uint32_t narrow_magnitude_at_random(std::uint32_t magnitude, std::uint32_t random) {
  if constexpr (F == Format::bf16) {
    return (magnitude + random) >> 16;
  } else if (magnitude < smallest_normal_f16) {
    const auto steps = static_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * denormal_scale);
    return (steps + random) >> 16;
  } else {
    return (magnitude - ((127u - 15u) << 23) + (random >> 3)) >> 13;
  }
}

template <Format F>
using Accumulator = std::conditional_t<F == Format::f64, double, float>;

template <class Value>
Value load(const void* base, std::size_t i) {
  Value value;
  std::memcpy(&value, static_cast<const std::byte*>(base) + i * sizeof(Value), sizeof(Value));
  return value;
}

template <class Value>
void save(void* base, std::size_t i, Value value) {
  std::memcpy(static_cast<std::byte*>(base) + i * sizeof(Value), &value, sizeof(Value));
}

template <Format F>
Accumulator<F> load_element(const void* base, std::size_t i) {
  if constexpr (F == Format::bf16) {
    return widen_bf16(load<std::uint16_t>(base, i));
  } else if constexpr (F == Format::f16) {
    return widen_f16(load<std::uint16_t>(base, i));
  } else {
    return load<Accumulator<F>>(base, i);
  }
}

template <Format F>
void save_element(void* base, std::size_t i, Accumulator<F> value) {
  if constexpr (F == Format::bf16) {
    save(base, i, narrow_to_bf16(value));
  } else if constexpr (F == Format::f16) {
    save(base, i, narrow_to_f16(value));
  } else {
    save(base, i, value);
  }
}

// memcpy must not see the null pointers that an empty message may carry.
inline void copy(void* target, const void* source, std::size_t num_bytes) {
  if (num_bytes != 0) std::memcpy(target, source, num_bytes);
}

template <Format F, bool has_own, bool has_accumulator>
void combine_present(void* out, const void* own, Accumulator<F> own_scale, const void* accumulator,
                     Accumulator<F> accumulator_scale, std::size_t count) {
  using Real = Accumulator<F>;
  for (std::size_t i = 0; i < count; ++i) {
    Real value = 0;
    if constexpr (has_own) value = load_element<F>(own, i) * own_scale;
    if constexpr (has_accumulator) {
      const Real scaled = load<Real>(accumulator, i) * accumulator_scale;
      value = has_own ? value + scaled : scaled;
    }
    save_element<F>(out, i, canonical_if_nan(value));
  }
}

// Elements from `begin` to before `end`: the AVX2 path leaves what is special and its tail to this.
template <Format F>
std::size_t narrow_stochastic_range(void* target, const void* source, std::size_t begin, std::size_t end,
                                    RandomKey key) {
  std::size_t num_clipped = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const auto value = load<float>(source, i);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= infinite_bits) {
      save_element<F>(target, i, value);
      continue;
    }
    num_clipped += magnitude > largest_bits<F>;
    const std::uint32_t narrowed =
        narrow_magnitude_at_random<F>(std::min(magnitude, largest_bits<F>), random_half(key, i));
    save(target, i, static_cast<std::uint16_t>(narrowed | (bits >> 16 & 0x8000u)));
  }
  return num_clipped;
}

struct Family {
  static constexpr auto transform_tile = transform_tile_portable;
  static constexpr const BlockKernels& f32_blocks = f32_blocks_portable;
  static constexpr const BlockKernels& bf16_blocks = bf16_blocks_portable;

  template <Format F>
  static void store(void* accumulator, const void* source, std::size_t count) {
    if constexpr (element_bytes(F) == sizeof(Accumulator<F>)) {
      copy(accumulator, source, count * element_bytes(F));
    } else {
      for (std::size_t i = 0; i < count; ++i) save(accumulator, i, load_element<F>(source, i));
    }
  }

  template <Format F>
  static void add(void* accumulator, const void* source, std::size_t count) {
    using Real = Accumulator<F>;
    for (std::size_t i = 0; i < count; ++i) {
      save(accumulator, i, canonical_if_nan(load<Real>(accumulator, i) + load_element<F>(source, i)));
    }
  }

  template <Format F>
  static void combine(void* out, const void* own, double own_scale, const void* accumulator, double accumulator_scale,
                      std::size_t count) {
    const auto own_factor = static_cast<Accumulator<F>>(own_scale);
    const auto accumulator_factor = static_cast<Accumulator<F>>(accumulator_scale);
    const auto body =
        own != nullptr ? (accumulator != nullptr ? combine_present<F, true, true> : combine_present<F, true, false>)
                       : (accumulator != nullptr ? combine_present<F, false, true> : combine_present<F, false, false>);
    body(out, own, own_factor, accumulator, accumulator_factor, count);
  }

  template <Format Target, Format Source>
  static void cast(void* target, const void* source, std::size_t count) {
    constexpr bool narrows_twice = Source == Format::f64 && element_bytes(Target) == 2;
    if constexpr (Target == Source) {
      copy(target, source, count * element_bytes(Source));
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        const Accumulator<Source> value = load_element<Source>(source, i);
        if constexpr (narrows_twice) {
          save_element<Target>(target, i, narrow_to_odd(value));
        } else {
          save_element<Target>(target, i, static_cast<Accumulator<Target>>(value));
        }
      }
    }
  }

  template <Format F>
  static std::size_t narrow_stochastic(void* target, const void* source, std::size_t count, RandomKey key) {
    return narrow_stochastic_range<F>(target, source, 0, count, key);
  }

  template <Format F>
  static std::size_t narrow_with_residual(void* target, const void* source, void* residual, std::size_t count) {
    constexpr auto largest = std::bit_cast<float>(largest_bits<F>);
    std::size_t num_clipped = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = load<float>(source, i);
      if (!std::isfinite(value)) {
        save_element<F>(target, i, value);
        save(residual, i, 0.0f);
        continue;
      }
      const float wanted = value + load<float>(residual, i);  // may overflow, and is clipped then
      num_clipped += std::fabs(wanted) > largest;
      const float clipped = std::clamp(wanted, -largest, largest);
      save_element<F>(target, i, clipped);
      save(residual, i, clipped - load_element<F>(target, i));
    }
    return num_clipped;
  }
};

}  // namespace holdfast::kernels::portable
