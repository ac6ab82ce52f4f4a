// Arithmetic on gradient elements: widen, sum, scale, narrow.
//
// An accumulator is float for f32, bf16 and f16 and double for f64, so a sum is rounded to the wire format once.
// Every function accepts unaligned pointers (payloads sit behind a header) and any length, including zero.
// The AVX2 path is chosen at run time and gives bit for bit what the portable one gives, which is why neither
// uses fused multiply-add, and why a sum or product that is NaN is always the one canonical quiet NaN. Conversions
// keep a NaN's payload; narrowing makes it quiet.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast {

// How the elements of a message are laid out on the wire. The values are part of the wire format.
enum class Format : std::uint8_t { bytes = 0, f32 = 1, f64 = 2, bf16 = 3, f16 = 4 };

constexpr bool is_known(Format format) { return static_cast<std::uint8_t>(format) <= 4; }

constexpr std::size_t element_bytes(Format format) {
  switch (format) {
    case Format::f32: return 4;
    case Format::f64: return 8;
    case Format::bf16:
    case Format::f16: return 2;
    case Format::bytes: break;
  }
  return 1;
}

// Bytes of one accumulator element; `bytes` messages are never summed.
constexpr std::size_t accumulator_bytes(Format format) { return format == Format::f64 ? 8 : 4; }

namespace kernels {

enum class InstructionSet : std::uint8_t { portable, avx2 };

InstructionSet best_instruction_set();         // what this CPU can run
InstructionSet instruction_set();              // what is in use
void use_instruction_set(InstructionSet set);  // for tests; asking for more than the CPU has keeps the best one
const char* name(InstructionSet set);

// accumulator[i] = source[i], widened.
void store(Format format, void* accumulator, const void* source, std::size_t count);
// accumulator[i] += source[i], widened.
void add(Format format, void* accumulator, const void* source, std::size_t count);
// out[i] = round(own[i] * own_scale + accumulator[i] * accumulator_scale), in the wire format.
// A null `own` or a null `accumulator` counts as zeros and is not read. `out` may be `own` or `accumulator`.
void combine(Format format, void* out, const void* own, double own_scale, const void* accumulator,
             double accumulator_scale, std::size_t count);
// target[i] = source[i] converted; any pair of float formats. Same format copies.
void cast(Format target_format, void* target, Format source_format, const void* source, std::size_t count);
// values[i] *= factor in place, rounded to the format.
void scale(Format format, void* values, double factor, std::size_t count);

// float to bf16 or f16 for the wire. Both clip what is finite and beyond the format's largest finite value to that
// value and return how many elements that befell; NaN and Inf stay NaN and Inf.

// target[i] = source[i] rounded up or down at random, so that the mean over seeds is source[i]. The same seed repeats.
// `first`: where `source` lies in what the seed stands for, in elements, a multiple of 16: parts come out as the whole.
std::size_t narrow_stochastic(Format format, void* target, const void* source, std::size_t count, std::uint64_t seed,
                              std::size_t first = 0);
// target[i] = source[i] + residual[i] rounded to nearest even; residual[i] = what the rounding left over, which is zero
// for what was clipped or is not finite. `residual` is float.
std::size_t narrow_with_residual(Format format, void* target, const void* source, void* residual, std::size_t count);

}  // namespace kernels
}  // namespace holdfast
