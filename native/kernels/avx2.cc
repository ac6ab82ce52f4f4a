// The kernels eight elements at a time. Each function names its own target, so the library needs no -mavx2 and code
// shared with other files is never compiled for a CPU that may lack it.
#include "kernels/table.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/portable.h"
#include "kernels/random_bits_avx2.h"

#define HF_AVX2 __attribute__((target("avx2,f16c")))
#define HF_AVX2_INLINE __attribute__((target("avx2,f16c"), always_inline)) inline

namespace holdfast::kernels {
namespace {

constexpr std::size_t num_lanes = 8;

struct Floats {
  __m256 all;
};
struct Doubles {
  __m256d low, high;
};
template <Format F>
using Vector = std::conditional_t<F == Format::f64, Doubles, Floats>;

const std::byte* at(const void* base, std::size_t num_bytes) { return static_cast<const std::byte*>(base) + num_bytes; }
std::byte* at(void* base, std::size_t num_bytes) { return static_cast<std::byte*>(base) + num_bytes; }

HF_AVX2_INLINE Floats broadcast(float value) { return {_mm256_set1_ps(value)}; }
HF_AVX2_INLINE Doubles broadcast(double value) { return {_mm256_set1_pd(value), _mm256_set1_pd(value)}; }

HF_AVX2_INLINE Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.all, b.all)}; }
HF_AVX2_INLINE Doubles operator+(Doubles a, Doubles b) {
  return {_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
}
HF_AVX2_INLINE Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.all, b.all)}; }
HF_AVX2_INLINE Doubles operator*(Doubles a, Doubles b) {
  return {_mm256_mul_pd(a.low, b.low), _mm256_mul_pd(a.high, b.high)};
}

HF_AVX2_INLINE Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.all, b.all)}; }

HF_AVX2_INLINE Floats canonical_if_nan(Floats value) {
  const __m256 nan = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
  return {_mm256_blendv_ps(value.all, nan, _mm256_cmp_ps(value.all, value.all, _CMP_UNORD_Q))};
}
HF_AVX2_INLINE Doubles canonical_if_nan(Doubles value) {
  const __m256d nan = _mm256_set1_pd(std::numeric_limits<double>::quiet_NaN());
  return {_mm256_blendv_pd(value.low, nan, _mm256_cmp_pd(value.low, value.low, _CMP_UNORD_Q)),
          _mm256_blendv_pd(value.high, nan, _mm256_cmp_pd(value.high, value.high, _CMP_UNORD_Q))};
}

// The low halves of eight lanes whose high halves are zero.
HF_AVX2_INLINE __m128i pack(__m256i lanes) {
  return _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
}

HF_AVX2_INLINE __m128i narrow_to_bf16(Floats value) {
  const __m256i bits = _mm256_castps_si256(value.all);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value.all, value.all, _CMP_UNORD_Q));
  return pack(_mm256_blendv_epi8(rounded, quiet, is_nan));
}

// See portable::narrow_to_odd.
HF_AVX2_INLINE __m128 narrow_to_odd(__m256d value) {
  const __m128 nearest = _mm256_cvtpd_ps(value);
  const __m256d back = _mm256_cvtps_pd(nearest);
  const __m256d sign = _mm256_set1_pd(-0.0);
  const __m256d too_large = _mm256_cmp_pd(_mm256_andnot_pd(sign, back), _mm256_andnot_pd(sign, value), _CMP_GT_OQ);
  const __m256d inexact = _mm256_cmp_pd(back, value, _CMP_NEQ_OQ);
  const auto low_halves = [](__m256d mask) __attribute__((target("avx2,f16c"), always_inline)) {
    const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(_mm256_castpd_si256(mask), even));
  };
  const __m128i one_less = _mm_add_epi32(_mm_castps_si128(nearest), low_halves(too_large));  // a set mask is -1
  const __m128i sticky = _mm_and_si128(low_halves(inexact), _mm_set1_epi32(1));
  return _mm_castsi128_ps(_mm_or_si128(one_less, sticky));
}

template <Format F>
HF_AVX2_INLINE Vector<F> load(const std::byte* from) {
  if constexpr (F == Format::f64) {
    const auto* values = reinterpret_cast<const double*>(from);
    return {_mm256_loadu_pd(values), _mm256_loadu_pd(values + 4)};
  } else if constexpr (F == Format::f32) {
    return {_mm256_loadu_ps(reinterpret_cast<const float*>(from))};
  } else {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    if constexpr (F == Format::f16) return {_mm256_cvtph_ps(halves)};
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))};
  }
}

template <Format F>
HF_AVX2_INLINE void save(std::byte* to, Vector<F> value) {
  if constexpr (F == Format::f64) {
    auto* values = reinterpret_cast<double*>(to);
    _mm256_storeu_pd(values, value.low);
    _mm256_storeu_pd(values + 4, value.high);
  } else if constexpr (F == Format::f32) {
    _mm256_storeu_ps(reinterpret_cast<float*>(to), value.all);
  } else if constexpr (F == Format::f16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value.all, _MM_FROUND_TO_NEAREST_INT));
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow_to_bf16(value));
  }
}

template <Format Target, Format Source>
HF_AVX2_INLINE Vector<Target> convert(Vector<Source> value) {
  if constexpr (std::is_same_v<Vector<Target>, Vector<Source>>) {
    return value;
  } else if constexpr (Target == Format::f64) {
    return {_mm256_cvtps_pd(_mm256_castps256_ps128(value.all)), _mm256_cvtps_pd(_mm256_extractf128_ps(value.all, 1))};
  } else if constexpr (Target == Format::f32) {
    return {_mm256_set_m128(_mm256_cvtpd_ps(value.high), _mm256_cvtpd_ps(value.low))};
  } else {
    return {_mm256_set_m128(narrow_to_odd(value.high), narrow_to_odd(value.low))};
  }
}

// The format whose load and save move accumulator elements.
template <Format F>
constexpr Format accumulator_format = F == Format::f64 ? Format::f64 : Format::f32;

HF_AVX2_INLINE __m256i magnitude_of(__m256i bits) { return _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)); }

HF_AVX2_INLINE __m256i is_finite(__m256i magnitude) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(portable::infinite_bits), magnitude);
}

HF_AVX2_INLINE std::size_t sum_of_lanes(__m256i counts) {
  alignas(32) std::uint32_t lanes[num_lanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), counts);
  std::size_t sum = 0;
  for (const std::uint32_t lane : lanes) sum += lane;
  return sum;
}

// See portable::narrow_magnitude_at_random; here with the sign, and packed.
template <Format F>
HF_AVX2_INLINE __m128i narrow_at_random(__m256i bits, __m256i magnitude, __m256i random) {
  if constexpr (F == Format::bf16) {
    return pack(_mm256_srli_epi32(_mm256_add_epi32(bits, random), 16));
  } else {
    const __m256 scaled = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(portable::denormal_scale));
    const __m256i denormal = _mm256_srli_epi32(_mm256_add_epi32(_mm256_cvttps_epi32(scaled), random), 16);
    const __m256i rebased = _mm256_sub_epi32(magnitude, _mm256_set1_epi32((127 - 15) << 23));
    const __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(rebased, _mm256_srli_epi32(random, 3)), 13);
    const __m256i is_denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(portable::smallest_normal_f16), magnitude);
    const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(bits, 31), 15);
    return pack(_mm256_or_si256(_mm256_blendv_epi8(normal, denormal, is_denormal), sign));
  }
}

constexpr std::size_t whole_vectors(std::size_t count) { return count - count % num_lanes; }

// `out` may be either input. Elements of `out` are never wider than the input's, and each vector is read before its
// place is written, so walking forward never overwrites what is still to be read.
template <Format F, bool has_own, bool has_accumulator>
HF_AVX2 void combine_present(void* out, const void* own, portable::Accumulator<F> own_scale, const void* accumulator,
                             portable::Accumulator<F> accumulator_scale, std::size_t count) {
  constexpr Format A = accumulator_format<F>;
  const Vector<F> own_factor = broadcast(own_scale);
  const Vector<F> accumulator_factor = broadcast(accumulator_scale);
  const std::size_t end = whole_vectors(count);
  for (std::size_t i = 0; i < end; i += num_lanes) {
    Vector<F> value = broadcast(portable::Accumulator<F>{0});
    if constexpr (has_own) value = load<F>(at(own, i * element_bytes(F))) * own_factor;
    if constexpr (has_accumulator) {
      const Vector<F> scaled = load<A>(at(accumulator, i * element_bytes(A))) * accumulator_factor;
      if constexpr (has_own) {
        value = value + scaled;
      } else {
        value = scaled;
      }
    }
    save<F>(at(out, i * element_bytes(F)), canonical_if_nan(value));
  }
  portable::combine_present<F, has_own, has_accumulator>(
      at(out, end * element_bytes(F)), has_own ? at(own, end * element_bytes(F)) : nullptr, own_scale,
      has_accumulator ? at(accumulator, end * element_bytes(A)) : nullptr, accumulator_scale, count - end);
}

struct Family {
  static constexpr auto transform_tile = transform_tile_avx2;
  static constexpr const BlockKernels& f32_blocks = f32_blocks_avx2;
  static constexpr const BlockKernels& bf16_blocks = bf16_blocks_avx2;

  template <Format F>
  HF_AVX2 static void store(void* accumulator, const void* source, std::size_t count) {
    cast<accumulator_format<F>, F>(accumulator, source, count);
  }

  template <Format F>
  HF_AVX2 static void add(void* accumulator, const void* source, std::size_t count) {
    constexpr Format A = accumulator_format<F>;
    const std::size_t end = whole_vectors(count);
    for (std::size_t i = 0; i < end; i += num_lanes) {
      std::byte* sum = at(accumulator, i * element_bytes(A));
      save<A>(sum, canonical_if_nan(load<A>(sum) + load<F>(at(source, i * element_bytes(F)))));
    }
    portable::Family::add<F>(at(accumulator, end * element_bytes(A)), at(source, end * element_bytes(F)), count - end);
  }

  template <Format F>
  static void combine(void* out, const void* own, double own_scale, const void* accumulator, double accumulator_scale,
                      std::size_t count) {
    using Real = portable::Accumulator<F>;
    const auto body =
        own != nullptr ? (accumulator != nullptr ? combine_present<F, true, true> : combine_present<F, true, false>)
                       : (accumulator != nullptr ? combine_present<F, false, true> : combine_present<F, false, false>);
    body(out, own, static_cast<Real>(own_scale), accumulator, static_cast<Real>(accumulator_scale), count);
  }

  template <Format Target, Format Source>
  HF_AVX2 static void cast(void* target, const void* source, std::size_t count) {
    if constexpr (Target == Source) {
      portable::copy(target, source, count * element_bytes(Source));
    } else {
      const std::size_t end = whole_vectors(count);
      for (std::size_t i = 0; i < end; i += num_lanes) {
        save<Target>(at(target, i * element_bytes(Target)),
                     convert<Target, Source>(load<Source>(at(source, i * element_bytes(Source)))));
      }
      portable::Family::cast<Target, Source>(at(target, end * element_bytes(Target)),
                                             at(source, end * element_bytes(Source)), count - end);
    }
  }

  template <Format F>
  HF_AVX2 static std::size_t narrow_stochastic(void* target, const void* source, std::size_t count, RandomKey key) {
    const __m256i largest = _mm256_set1_epi32(portable::largest_bits<F>);
    const __m256i low_half = _mm256_set1_epi32(0xffff);
    std::size_t num_clipped = 0;
    const std::size_t end = count - count % elements_per_hash_vector;
    for (std::size_t i = 0; i < end; i += elements_per_hash_vector) {
      const std::byte* in = at(source, i * sizeof(float));
      const __m256i first = _mm256_castps_si256(load<Format::f32>(in).all);
      const __m256i second = _mm256_castps_si256(load<Format::f32>(in + num_lanes * sizeof(float)).all);
      const __m256i first_magnitude = magnitude_of(first), second_magnitude = magnitude_of(second);
      const __m256i special =
          _mm256_or_si256(_mm256_cmpgt_epi32(first_magnitude, largest), _mm256_cmpgt_epi32(second_magnitude, largest));
      if (!_mm256_testz_si256(special, special)) [[unlikely]] {  // NaN, Inf, or to be clipped
        num_clipped += portable::narrow_stochastic_range<F>(target, source, i, i + elements_per_hash_vector, key);
        continue;
      }
      const __m256i bits = hash_eight(key, static_cast<std::uint32_t>(i / 2));
      auto* out = reinterpret_cast<__m128i*>(at(target, i * element_bytes(F)));
      _mm_storeu_si128(out, narrow_at_random<F>(first, first_magnitude, _mm256_and_si256(bits, low_half)));
      _mm_storeu_si128(out + 1, narrow_at_random<F>(second, second_magnitude, _mm256_srli_epi32(bits, 16)));
    }
    return num_clipped + portable::narrow_stochastic_range<F>(target, source, end, count, key);
  }

  template <Format F>
  HF_AVX2 static std::size_t narrow_with_residual(void* target, const void* source, void* residual, std::size_t count) {
    const __m256 largest = _mm256_castsi256_ps(_mm256_set1_epi32(portable::largest_bits<F>));
    const __m256 lowest = _mm256_sub_ps(_mm256_setzero_ps(), largest);
    __m256i num_clipped = _mm256_setzero_si256();
    const std::size_t end = whole_vectors(count);
    for (std::size_t i = 0; i < end; i += num_lanes) {
      std::byte* left_over = at(residual, i * sizeof(float));
      std::byte* out = at(target, i * element_bytes(F));
      const Floats value = load<Format::f32>(at(source, i * sizeof(float)));
      const __m256i finite = is_finite(magnitude_of(_mm256_castps_si256(value.all)));
      const Floats wanted = value + load<Format::f32>(left_over);
      const Floats clipped = {_mm256_max_ps(_mm256_min_ps(wanted.all, largest), lowest)};
      const __m256i changed = _mm256_castps_si256(_mm256_cmp_ps(wanted.all, clipped.all, _CMP_NEQ_OQ));
      num_clipped = _mm256_sub_epi32(num_clipped, _mm256_and_si256(finite, changed));
      const __m256 mask = _mm256_castsi256_ps(finite);
      save<F>(out, {_mm256_blendv_ps(value.all, clipped.all, mask)});
      save<Format::f32>(left_over, {_mm256_and_ps((clipped - load<F>(out)).all, mask)});
    }
    return sum_of_lanes(num_clipped) + portable::Family::narrow_with_residual<F>(
                                           at(target, end * element_bytes(F)), at(source, end * sizeof(float)),
                                           at(residual, end * sizeof(float)), count - end);
  }
};

}  // namespace

constinit const Table avx2_table = make_table<Family>();

constinit const Table avx2_table_of_portable_blocks = [] {
  Table table = make_table<Family>();
  table.blocks[index(Format::f32)] = &f32_blocks_portable;
  table.blocks[index(Format::bf16)] = &bf16_blocks_portable;
  return table;
}();

}  // namespace holdfast::kernels

#endif
