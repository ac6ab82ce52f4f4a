// Every kernel against slow oracles in double arithmetic, and the AVX2 path against the portable one bit for bit.
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "float_formats.h"
#include "kernels/kernels.h"
#include "testing/check.h"

namespace {

using holdfast::accumulator_bytes;
using holdfast::element_bytes;
using holdfast::Format;
namespace kernels = holdfast::kernels;
using holdfast::testing::decoded;
using holdfast::testing::on_each_set;
using holdfast::testing::Shape;
using holdfast::testing::shape;
using kernels::InstructionSet;
using Bytes = std::vector<std::uint8_t>;

constexpr Format float_formats[] = {Format::f32, Format::f64, Format::bf16, Format::f16};
constexpr std::uint64_t seed = 20240611;

// The value of the format nearest to `value`, ties to even, as a double.
double rounded(Format format, double value) {
  if (format == Format::f64 || value == 0 || !std::isfinite(value)) return value;
  const Shape s = shape(format);
  const int exponent = std::max(std::ilogb(value), s.smallest_exponent);
  const double quantum = std::ldexp(1.0, exponent - s.mantissa_bits);
  const double nearest = std::nearbyint(value / quantum) * quantum;
  return std::fabs(nearest) > s.largest ? std::copysign(INFINITY, value) : nearest;
}

bool same_value(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  return left == right && std::signbit(left) == std::signbit(right);
}

template <class Value>
Value element(const Bytes& bytes, std::size_t i) {
  Value value;
  std::memcpy(&value, bytes.data() + i * sizeof(Value), sizeof(Value));
  return value;
}

double element_value(Format format, const Bytes& bytes, std::size_t i) {
  if (format == Format::f32) return element<float>(bytes, i);
  if (format == Format::f64) return element<double>(bytes, i);
  return decoded(format, element<std::uint16_t>(bytes, i));
}

template <class Value>
Bytes to_bytes(const std::vector<Value>& values) {
  Bytes bytes(values.size() * sizeof(Value));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

Bytes all_patterns() {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  return to_bytes(patterns);
}

// Uniformly random bit patterns: for every format that is a fair share of NaN, Inf, denormals and both zeros, which
// are also forced in so that short runs meet them, NaN on both sides of a sum included.
Bytes random_bytes(Format format, std::size_t count, std::mt19937_64& random) {
  const std::size_t width = element_bytes(format);
  const Shape s = shape(format);
  const std::uint64_t sign = 1ull << (width * 8 - 1);
  const std::uint64_t infinity = (sign - 1) >> s.mantissa_bits << s.mantissa_bits;
  const std::uint64_t quiet = 1ull << (s.mantissa_bits - 1);
  const std::uint64_t specials[] = {0,
                                    sign,
                                    infinity,
                                    infinity | sign,
                                    infinity | 1,
                                    infinity | quiet | 5,
                                    sign | infinity | quiet,
                                    1,
                                    sign | (quiet - 1)};
  Bytes bytes(count * width);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random() % 4 == 0 ? specials[random() % std::size(specials)] : random();
    std::memcpy(bytes.data() + i * width, &bits, width);
  }
  return bytes;
}

// Floats around every place where bf16 and f16 round: each representable value and each midpoint, a step either side.
std::vector<float> floats_near_rounding_points(Format format) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const double value = decoded(format, static_cast<std::uint16_t>(bits));
    if (!std::isfinite(value)) continue;
    const double next = decoded(format, static_cast<std::uint16_t>(bits + 1));
    const double step = std::isfinite(next) ? next - value : std::ldexp(value, -shape(format).mantissa_bits);
    for (const double centre : {value, value + step / 2}) {
      const auto exact = static_cast<float>(centre);
      values.insert(values.end(), {std::nextafter(exact, -INFINITY), exact, std::nextafter(exact, INFINITY)});
    }
  }
  return values;
}

Bytes cast(Format target, Format source, const Bytes& from) {
  const std::size_t count = from.size() / element_bytes(source);
  Bytes to(count * element_bytes(target));
  kernels::cast(target, to.data(), source, from.data(), count);
  return to;
}

// The answers of `body` on both sets, which must be the same bytes.
void expect_same_bytes(const char* what, Format format, std::size_t count, const std::function<Bytes()>& body) {
  kernels::use_instruction_set(InstructionSet::portable);
  const Bytes portable = body();
  kernels::use_instruction_set(kernels::best_instruction_set());
  const Bytes best = body();
  if (portable == best) return;
  std::size_t i = 0;
  while (portable[i] == best[i]) ++i;
  std::fprintf(stderr, "%s, format %d, count %zu, seed %llu: byte %zu differs\n", what, static_cast<int>(format), count,
               static_cast<unsigned long long>(seed), i);
  HF_CHECK(portable == best);
}

// A copy of `bytes` that starts `offset` bytes into its own exact-size allocation, so that a sanitizer sees any byte
// read or written outside it.
class Unaligned {
 public:
  Unaligned(const Bytes& bytes, std::size_t offset) : offset_(offset), storage_(bytes.size() + offset) {
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
  }
  std::uint8_t* data() { return storage_.data() + offset_; }
  Bytes bytes() const { return {storage_.begin() + static_cast<std::ptrdiff_t>(offset_), storage_.end()}; }

 private:
  std::size_t offset_;
  Bytes storage_;
};

}  // namespace

HF_CASE(instruction_set_can_be_chosen_and_never_exceeds_the_cpu) {
  HF_CHECK(kernels::instruction_set() == kernels::best_instruction_set());
  kernels::use_instruction_set(InstructionSet::portable);
  HF_EQUAL(std::string(kernels::name(kernels::instruction_set())), "portable");
  kernels::use_instruction_set(InstructionSet::avx2);
  HF_CHECK(kernels::instruction_set() == kernels::best_instruction_set());
}

HF_CASE(widening_every_16_bit_pattern_is_exact) {
  const Bytes patterns = all_patterns();
  on_each_set([&] {
    for (const Format format : {Format::bf16, Format::f16}) {
      for (const Format wide : {Format::f32, Format::f64}) {
        const Bytes widened = cast(wide, format, patterns);
        int wrong = 0;
        for (std::size_t i = 0; i < 65536; ++i) {
          wrong += !same_value(element_value(wide, widened, i), decoded(format, static_cast<std::uint16_t>(i)));
        }
        HF_EQUAL(wrong, 0);
      }
    }
  });
}

HF_CASE(widened_patterns_narrow_back_to_themselves_with_nans_quiet) {
  const Bytes patterns = all_patterns();
  on_each_set([&] {
    for (const Format format : {Format::bf16, Format::f16}) {
      const std::uint16_t quiet_bit = format == Format::bf16 ? 0x40 : 0x200;
      for (const Format wide : {Format::f32, Format::f64}) {
        const Bytes back = cast(format, wide, cast(wide, format, patterns));
        int wrong = 0;
        for (std::size_t i = 0; i < 65536; ++i) {
          const auto bits = static_cast<std::uint16_t>(i);
          const bool nan = std::isnan(decoded(format, bits));
          wrong += element<std::uint16_t>(back, i) != (nan ? bits | quiet_bit : bits);
        }
        HF_EQUAL(wrong, 0);
      }
    }
  });
}

HF_CASE(narrowing_rounds_to_nearest_even_at_every_boundary) {
  for (const Format format : {Format::bf16, Format::f16}) {
    const std::vector<float> values = floats_near_rounding_points(format);
    on_each_set([&] {
      const Bytes narrow = cast(format, Format::f32, to_bytes(values));
      int wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        wrong += !same_value(element_value(format, narrow, i), rounded(format, values[i]));
      }
      HF_EQUAL(wrong, 0);
    });
  }
}

HF_CASE(doubles_narrow_with_one_rounding) {
  std::vector<double> values;
  for (const Format format : {Format::bf16, Format::f16}) {
    for (const float near : floats_near_rounding_points(format)) {
      // Closer to the boundary than a float can say: two roundings to nearest would lose the side.
      values.insert(values.end(), {std::nextafter(static_cast<double>(near), -INFINITY), near,
                                   std::nextafter(static_cast<double>(near), INFINITY)});
    }
  }
  values.insert(values.end(), {1e300, -1e300, 1e-300, -1e-300, 5e-324, INFINITY, -INFINITY, 0.0, -0.0, NAN});
  on_each_set([&] {
    for (const Format format : float_formats) {
      const Bytes narrow = cast(format, Format::f64, to_bytes(values));
      int wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        wrong += !same_value(element_value(format, narrow, i), rounded(format, values[i]));
      }
      HF_EQUAL(wrong, 0);
    }
  });
}

HF_CASE(random_floats_narrow_as_the_oracle_says) {
  std::mt19937_64 random(seed);
  for (const Format source : {Format::f32, Format::f64}) {
    const Bytes values = random_bytes(source, 300'000, random);
    on_each_set([&] {
      for (const Format target : float_formats) {
        const Bytes narrow = cast(target, source, values);
        int wrong = 0;
        for (std::size_t i = 0; i < 300'000; ++i) {
          wrong += !same_value(element_value(target, narrow, i), rounded(target, element_value(source, values, i)));
        }
        HF_EQUAL(wrong, 0);
      }
    });
  }
}

HF_CASE(sums_and_combinations_are_rounded_once) {
  std::mt19937_64 random(seed);
  constexpr std::size_t count = 4099;
  constexpr double own_scale = 0.3, accumulator_scale = -1.7;
  on_each_set([&] {
    for (const Format format : float_formats) {
      const Format wide = format == Format::f64 ? Format::f64 : Format::f32;
      const Bytes source = random_bytes(format, count, random);
      const Bytes start = random_bytes(wide, count, random);
      Bytes sum = start, out(source.size());
      kernels::add(format, sum.data(), source.data(), count);
      kernels::combine(format, out.data(), source.data(), own_scale, start.data(), accumulator_scale, count);
      int wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const double x = element_value(format, source, i), a = element_value(wide, start, i);
        // Products and sums of floats rounded from double are the float operations (53 >= 2 * 24 + 2 bits).
        const double scaled_x = rounded(wide, x * rounded(wide, own_scale));
        const double scaled_a = rounded(wide, a * rounded(wide, accumulator_scale));
        wrong += !same_value(element_value(wide, sum, i), rounded(wide, a + x));
        wrong += !same_value(element_value(format, out, i), rounded(format, rounded(wide, scaled_x + scaled_a)));
      }
      HF_EQUAL(wrong, 0);
    }
  });
}

HF_CASE(both_sets_agree_bit_for_bit_on_casts) {
  std::mt19937_64 random(seed);
  for (const Format source : float_formats) {
    const Bytes values = element_bytes(source) == 2 ? all_patterns() : random_bytes(source, 65536, random);
    for (const Format target : float_formats) {
      expect_same_bytes("cast", target, 65536, [&] { return cast(target, source, values); });
    }
  }
}

HF_CASE(both_sets_agree_bit_for_bit_at_every_short_length_and_alignment) {
  std::mt19937_64 random(seed);
  for (const Format format : float_formats) {
    const Format wide = format == Format::f64 ? Format::f64 : Format::f32;
    for (std::size_t count = 0; count <= 67; ++count) {
      const std::size_t offset = random() % 16;
      const Bytes source = random_bytes(format, count, random), start = random_bytes(wide, count, random);
      expect_same_bytes("store", format, count, [&] {
        Unaligned from(source, offset), to(start, offset + 1);
        kernels::store(format, to.data(), from.data(), count);
        return to.bytes();
      });
      expect_same_bytes("add", format, count, [&] {
        Unaligned from(source, offset), to(start, offset + 1);
        kernels::add(format, to.data(), from.data(), count);
        return to.bytes();
      });
      expect_same_bytes("scale", format, count, [&] {
        Unaligned values(source, offset);
        kernels::scale(format, values.data(), 1.0 / 3, count);
        return values.bytes();
      });
      for (const auto& [has_own, has_accumulator] : {std::pair{true, true}, {true, false}, {false, true}}) {
        expect_same_bytes("combine", format, count, [&, own = has_own, accumulator = has_accumulator] {
          Unaligned mine(source, offset), sum(start, offset + 1), out(source, offset + 3);
          kernels::combine(format, out.data(), own ? mine.data() : nullptr, 1.0 / 3, accumulator ? sum.data() : nullptr,
                           0.1, count);
          return out.bytes();
        });
      }
      for (const Format target : float_formats) {
        expect_same_bytes("cast", target, count, [&] {
          Unaligned from(source, offset), to(Bytes(count * element_bytes(target)), offset + 1);
          kernels::cast(target, to.data(), format, from.data(), count);
          return to.bytes();
        });
      }
    }
  }
}

HF_CASE(a_sum_of_nans_is_the_one_canonical_quiet_nan) {
  on_each_set([] {
    const std::vector<std::uint32_t> left(11, 0xffc00123), right(11, 0x7fa00001);
    Bytes sum = to_bytes(left);
    const Bytes source = to_bytes(right);
    kernels::add(Format::f32, sum.data(), source.data(), 11);
    for (std::size_t i = 0; i < 11; ++i) HF_EQUAL(element<std::uint32_t>(sum, i), 0x7fc00000u);
  });
}

HF_CASE(combine_counts_a_missing_operand_as_zeros) {
  on_each_set([] {
    const std::vector<float> own(13, 3.0f), accumulator(13, 5.0f);
    std::vector<float> out(13, -1.0f);
    kernels::combine(Format::f32, out.data(), own.data(), 2.0, nullptr, 7.0, 13);
    HF_CHECK(out == std::vector<float>(13, 6.0f));
    kernels::combine(Format::f32, out.data(), nullptr, 2.0, accumulator.data(), 7.0, 13);
    HF_CHECK(out == std::vector<float>(13, 35.0f));
    kernels::combine(Format::f32, out.data(), nullptr, 2.0, nullptr, 7.0, 13);
    HF_CHECK(out == std::vector<float>(13, 0.0f));
    kernels::combine(Format::f32, nullptr, nullptr, 2.0, nullptr, 7.0, 0);
    kernels::store(Format::f32, nullptr, nullptr, 0);
  });
}

HF_CASE(combine_may_write_over_either_operand) {
  std::mt19937_64 random(seed);
  constexpr std::size_t count = 1003;
  on_each_set([&] {
    for (const Format format : float_formats) {
      const Bytes own = random_bytes(format, count, random);
      const Bytes sum = random_bytes(format == Format::f64 ? Format::f64 : Format::f32, count, random);
      Bytes apart(own.size()), over_own = own, over_sum = sum;
      kernels::combine(format, apart.data(), own.data(), 0.25, sum.data(), 0.75, count);
      kernels::combine(format, over_own.data(), over_own.data(), 0.25, sum.data(), 0.75, count);
      kernels::combine(format, over_sum.data(), own.data(), 0.25, over_sum.data(), 0.75, count);
      over_sum.resize(apart.size());
      HF_CHECK(over_own == apart);
      HF_CHECK(over_sum == apart);
    }
  });
}

// Not a check: HOLDFAST_KERNEL_SPEED=1 prints GB/s of memory traffic (bytes read plus written).
HF_CASE(throughput) {
  if (std::getenv("HOLDFAST_KERNEL_SPEED") == nullptr) return;
  on_each_set([] {
    for (const std::size_t count : {std::size_t{4096}, std::size_t{1} << 24}) {
      std::vector<float> accumulator(count, 1.0f), out(count);
      const auto measure = [&](const char* what, Format format, std::size_t bytes_per_element, const auto& body) {
        const Bytes source(count * element_bytes(format), 0x11);
        const std::size_t rounds = (std::size_t{1} << 27) / count;
        body(format, source.data());
        const auto start = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < rounds; ++i) body(format, source.data());
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
        std::printf("%-8s %-12s %9zu elements %7.1f GB/s\n", kernels::name(kernels::instruction_set()), what, count,
                    static_cast<double>(rounds * count * bytes_per_element) / spent.count() * 1e-9);
      };
      const auto add = [&](Format format, const void* source) {
        kernels::add(format, accumulator.data(), source, count);
      };
      const auto combine = [&](Format format, const void* source) {
        kernels::combine(format, out.data(), source, 0.5, accumulator.data(), 0.5, count);
      };
      const auto copy = [&](Format, const void* source) { std::memcpy(out.data(), source, count * 4); };
      measure("memcpy", Format::f32, 8, copy);
      measure("add f32", Format::f32, 12, add);
      measure("combine f32", Format::f32, 12, combine);
      measure("add bf16", Format::bf16, 10, add);
      measure("combine bf16", Format::bf16, 8, combine);
      measure("add f16", Format::f16, 10, add);
      measure("combine f16", Format::f16, 8, combine);
    }
  });
}

HF_TEST_MAIN
