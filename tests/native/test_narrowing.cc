// Narrowing for the wire: stochastic rounding and rounding with a residual, against slow oracles in double arithmetic.
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "float_formats.h"
#include "kernels/kernels.h"
#include "testing/check.h"

namespace {

using holdfast::Format;
namespace kernels = holdfast::kernels;
using holdfast::testing::decoded;
using holdfast::testing::on_each_set;
using holdfast::testing::shape;
using kernels::InstructionSet;
using Halves = std::vector<std::uint16_t>;
using Floats = std::vector<float>;

constexpr Format narrow_formats[] = {Format::bf16, Format::f16};
constexpr std::uint64_t seed = 20250917;

// The distance between neighbours of the format around `value`.
double step_at(Format format, double value) {
  const int exponent =
      value == 0 ? shape(format).smallest_exponent : std::max(std::ilogb(value), shape(format).smallest_exponent);
  return std::ldexp(1.0, exponent - shape(format).mantissa_bits);
}

double clipped(Format format, double value) {
  return std::isfinite(value) ? std::min(std::max(value, -shape(format).largest), shape(format).largest) : value;
}

double nearest(Format format, double value) {
  if (!std::isfinite(value)) return value;
  const double step = step_at(format, value);
  return std::nearbyint(value / step) * step;
}

struct Narrowed {
  Halves sent;
  Floats residual;
  std::size_t num_clipped;
  bool operator==(const Narrowed& other) const {
    return sent == other.sent && num_clipped == other.num_clipped && residual.size() == other.residual.size() &&
           (residual.empty() || std::memcmp(residual.data(), other.residual.data(), residual.size() * 4) == 0);
  }
};

Narrowed stochastic(Format format, const Floats& values, std::uint64_t operation_seed) {
  Narrowed result{Halves(values.size()), {}, 0};
  result.num_clipped =
      kernels::narrow_stochastic(format, result.sent.data(), values.data(), values.size(), operation_seed);
  return result;
}

Narrowed with_residual(Format format, const Floats& values, const Floats& residual) {
  Narrowed result{Halves(values.size()), residual, 0};
  result.num_clipped =
      kernels::narrow_with_residual(format, result.sent.data(), values.data(), result.residual.data(), values.size());
  return result;
}

void expect_same(const std::function<Narrowed()>& body) {
  kernels::use_instruction_set(InstructionSet::portable);
  const Narrowed portable = body();
  kernels::use_instruction_set(kernels::best_instruction_set());
  HF_CHECK(portable == body());
}

// Any bit pattern, and often those where something is special: zeros, ties, the ends of both formats, NaN, Inf.
Floats any_floats(std::size_t count, std::mt19937_64& random) {
  constexpr std::uint32_t specials[] = {
      0x00000000, 0x7f800000, 0x7f800001, 0x7fc00123, 0x00000001, 0x007fffff, 0x00800000, 0x00008000, 0x3f808000,
      0x3f818000, 0x3f801000, 0x3f803000, 0x33000000, 0x33800000, 0x33c00000, 0x38800000, 0x387fffff, 0x477fe000,
      0x477fe001, 0x477fefff, 0x477ff000, 0x47800000, 0x7f7f0000, 0x7f7f0001, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff};
  Floats values(count);
  for (float& value : values) {
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if (random() % 3 == 0) bits = specials[random() % std::size(specials)] | (bits & 0x80000000u);
    if (random() % 3 == 0) bits = (bits & 0x80ffffffu) | 0x3c000000u;  // ordinary gradients
    value = std::bit_cast<float>(bits);
  }
  return values;
}

// What earlier rounding may have left over: at most half a step of something within the format.
Floats any_residuals(Format format, std::size_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<double> part(-0.5, 0.5);
  Floats residuals(count);
  for (float& residual : residuals) {
    const double origin = std::ldexp(1.0, static_cast<int>(random() % 40) - 30);
    residual = static_cast<float>(part(random) * step_at(format, origin));
  }
  return residuals;
}

// Element by element: NaN and Inf stay what they are and leave nothing over, what lies beyond the format is clipped and
// counted, and `is_right(i, got, within)` judges the rest.
void expect_each(Format format, const Floats& values, const Narrowed& result,
                 const std::function<float(std::size_t)>& wanted,
                 const std::function<bool(std::size_t, double, double)>& is_right) {
  int wrong = 0;
  std::size_t beyond = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double got = decoded(format, result.sent[i]);
    if (!std::isfinite(values[i])) {
      wrong += std::isnan(values[i]) ? !std::isnan(got) : got != values[i];
      wrong += !result.residual.empty() && result.residual[i] != 0;
      continue;
    }
    const float sum = wanted(i);
    beyond += std::fabs(sum) > shape(format).largest;
    wrong += !is_right(i, got, clipped(format, std::isinf(sum) ? std::copysign(1e39, sum) : sum));
  }
  HF_EQUAL(wrong, 0);
  HF_EQUAL(result.num_clipped, beyond);
  HF_CHECK(beyond > 0);
}

}  // namespace

HF_CASE(stochastic_rounding_gives_one_of_the_two_neighbours_and_exact_values_stay) {
  std::mt19937_64 random(seed);
  for (const Format format : narrow_formats) {
    const Floats values = any_floats(200'000, random);
    on_each_set([&] {
      const Narrowed result = stochastic(format, values, 5);
      expect_each(
          format, values, result, [&](std::size_t at) { return values[at]; },
          [&](std::size_t at, double got, double within) {
            const double step = step_at(format, within);
            return (got == std::floor(within / step) * step || got == std::ceil(within / step) * step) &&
                   std::signbit(values[at]) == ((result.sent[at] & 0x8000) != 0);
          });
    });
  }
}

HF_CASE(stochastic_rounding_is_unbiased) {
  constexpr std::size_t num_draws = 1 << 16;
  for (const Format format : narrow_formats) {
    // Normal, near a power of two, denormal in f16, below half of f16's smallest step, denormal in both.
    for (const float value : {1.0f + 0x1p-9f, -0.3333333f, 1.99999988f, 3.1e-5f, -2.0e-8f, 7.3e-10f, 3.0e-39f}) {
      on_each_set([&] {
        const Narrowed result = stochastic(format, Floats(num_draws, value), seed);
        const double step = step_at(format, value);
        const double share = std::fabs(value) / step - std::floor(std::fabs(value) / step);
        double sum = 0;
        for (const std::uint16_t bits : result.sent) sum += decoded(format, bits);
        // Binomial with `share`; f16's denormals know a step to 2^-16 of it.
        const double sigma = step * std::sqrt(share * (1 - share) / num_draws);
        HF_CHECK(std::fabs(sum / num_draws - value) <= 3 * sigma + step * 0x1p-16);
      });
    }
  }
}

HF_CASE(random_bits_are_alike_for_no_two_neighbours_seeds_or_bit_positions) {
  constexpr std::size_t count = 1 << 16;
  const Floats halfway(count, 1.0f + 0x1p-8f);  // goes up or down like a coin in bf16
  const auto coins = [&](std::uint64_t operation_seed) {
    std::vector<int> up(count);
    const Narrowed result = stochastic(Format::bf16, halfway, operation_seed);
    for (std::size_t i = 0; i < count; ++i) up[i] = result.sent[i] == 0x3f80 ? -1 : 1;
    return up;
  };
  const std::vector<int> first = coins(1);
  HF_CHECK(first == coins(1));
  const double limit = 4 * std::sqrt(static_cast<double>(count));
  for (const std::uint64_t other_seed : {0ull, 2ull, 3ull, 1ull << 32, (1ull << 40) + 1}) {
    const std::vector<int> other = coins(other_seed);
    for (const std::size_t shift : {0, 1, 2, 8, 16, 64}) {
      double agreement = 0;
      for (std::size_t i = 0; i + shift < count; ++i) agreement += first[i + shift] * other[i];
      HF_CHECK(std::fabs(agreement) < limit);
    }
  }
  for (const std::size_t shift : {1, 2, 3, 4, 7, 8, 16, 256, 4096}) {
    double agreement = 0;
    for (std::size_t i = 0; i + shift < count; ++i) agreement += first[i + shift] * first[i];
    HF_CHECK(std::fabs(agreement) < limit);
  }
}

HF_CASE(a_residual_is_added_rounded_to_nearest_even_and_what_is_left_over_is_kept) {
  std::mt19937_64 random(seed);
  for (const Format format : narrow_formats) {
    const Floats values = any_floats(200'000, random), before = any_residuals(format, values.size(), random);
    on_each_set([&] {
      const Narrowed result = with_residual(format, values, before);
      expect_each(
          format, values, result, [&](std::size_t at) { return values[at] + before[at]; },
          [&](std::size_t at, double got, double within) {
            // Nothing is lost, and no rounding in saying so.
            return got == nearest(format, within) && got + result.residual[at] == within;
          });
    });
  }
}

HF_CASE(a_value_too_small_for_the_format_arrives_in_the_end) {
  for (const Format format : narrow_formats) {
    on_each_set([&] {
      const Floats gradient(9, 1.0f), tiny(9, std::ldexp(1.0f, -shape(format).mantissa_bits - 3));
      Narrowed result = with_residual(format, gradient, Floats(9));
      double arrived = 0;
      for (int step = 0; step < 64; ++step) {
        const Floats values(9, 1.0f + tiny[0]);
        result = with_residual(format, values, result.residual);
        arrived += decoded(format, result.sent[8]) - 1.0;
      }
      HF_CHECK(std::fabs(arrived - 64.0 * tiny[0]) <= std::ldexp(0.5, -shape(format).mantissa_bits));
    });
  }
}

HF_CASE(finite_values_never_become_infinite_even_with_a_residual_on_top) {
  const Floats values(17, std::numeric_limits<float>::max());
  const Floats residual(17, 0x1p118f);
  for (const Format format : narrow_formats) {
    on_each_set([&] {
      const Narrowed result = with_residual(format, values, residual);
      HF_EQUAL(result.num_clipped, 17u);
      for (std::size_t i = 0; i < 17; ++i) {
        HF_EQUAL(decoded(format, result.sent[i]), shape(format).largest);
        HF_EQUAL(result.residual[i], 0.0f);
      }
    });
  }
}

HF_CASE(both_sets_agree_bit_for_bit_at_every_short_length_and_alignment) {
  std::mt19937_64 random(seed);
  for (const Format format : narrow_formats) {
    for (std::size_t count = 0; count <= 70; ++count) {
      const Floats values = any_floats(count, random), residual = any_residuals(format, count, random);
      const std::uint64_t operation_seed = random();
      expect_same([&] { return stochastic(format, values, operation_seed); });
      expect_same([&] { return with_residual(format, values, residual); });

      // One byte off and in exact-size memory, so that a sanitizer sees any byte read or written outside.
      const auto shifted = [](const void* bytes, std::size_t size) {
        std::vector<std::uint8_t> moved(size + 1);
        if (size != 0) std::memcpy(moved.data() + 1, bytes, size);
        return moved;
      };
      auto from = shifted(values.data(), count * 4), left_over = shifted(residual.data(), count * 4);
      std::vector<std::uint8_t> to(count * 2 + 1);
      kernels::narrow_stochastic(format, to.data() + 1, from.data() + 1, count, operation_seed);
      HF_CHECK(to == shifted(stochastic(format, values, operation_seed).sent.data(), count * 2));
      kernels::narrow_with_residual(format, to.data() + 1, from.data() + 1, left_over.data() + 1, count);
      const Narrowed aligned = with_residual(format, values, residual);
      HF_CHECK(to == shifted(aligned.sent.data(), count * 2));
      HF_CHECK(left_over == shifted(aligned.residual.data(), count * 4));
    }
    const Floats values = any_floats(100'003, random), residual = any_residuals(format, 100'003, random);
    expect_same([&] { return stochastic(format, values, 3); });
    expect_same([&] { return with_residual(format, values, residual); });
  }
}

HF_CASE(parts_are_rounded_as_the_whole_is) {
  std::mt19937_64 random(11);
  const Floats values = any_floats(1000, random);
  on_each_set([&] {
    const auto whole = stochastic(Format::bf16, values, seed).sent;
    Halves parts(whole.size());
    for (std::size_t begin = 0; begin < values.size(); begin += 272) {
      const std::size_t count = std::min<std::size_t>(272, values.size() - begin);
      kernels::narrow_stochastic(Format::bf16, parts.data() + begin, values.data() + begin, count, seed, begin);
    }
    HF_CHECK(parts == whole);
  });
}

// Not a check: HOLDFAST_KERNEL_SPEED=1 prints GB/s of memory traffic (bytes read plus written).
HF_CASE(throughput) {
  if (std::getenv("HOLDFAST_KERNEL_SPEED") == nullptr) return;
  on_each_set([] {
    for (const std::size_t count : {std::size_t{4096}, std::size_t{1} << 18, std::size_t{6'553'600}}) {
      const Floats source(count, 0.1f);
      Floats residual(count), copy(count);
      Halves target(count);
      const auto measure = [&](const char* what, std::size_t bytes_per_element, const auto& body) {
        const std::size_t rounds = (std::size_t{1} << 27) / count;
        double best_s = 1e9;
        for (int repeat = 0; repeat < 5; ++repeat) {
          const auto start = std::chrono::steady_clock::now();
          for (std::size_t i = 0; i < rounds; ++i) body();
          best_s = std::min(best_s,
                            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / rounds);
        }
        std::printf("%-8s %-16s %8zu elements %8.1f us %7.1f GB/s\n", kernels::name(kernels::instruction_set()), what,
                    count, best_s * 1e6, static_cast<double>(count * bytes_per_element) / best_s * 1e-9);
      };
      measure("memcpy", 8, [&] { std::memcpy(copy.data(), source.data(), count * 4); });
      for (const Format format : narrow_formats) {
        const bool is_bf16 = format == Format::bf16;
        measure(is_bf16 ? "nearest bf16" : "nearest f16", 6,
                [&] { kernels::cast(format, target.data(), Format::f32, source.data(), count); });
        measure(is_bf16 ? "stochastic bf16" : "stochastic f16", 6,
                [&] { kernels::narrow_stochastic(format, target.data(), source.data(), count, 1); });
        measure(is_bf16 ? "residual bf16" : "residual f16", 14,
                [&] { kernels::narrow_with_residual(format, target.data(), source.data(), residual.data(), count); });
        measure(is_bf16 ? "widen bf16" : "widen f16", 6,
                [&] { kernels::cast(Format::f32, copy.data(), format, target.data(), count); });
      }
    }
  });
}

HF_TEST_MAIN
