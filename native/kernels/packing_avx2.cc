// One block packed and unpacked, its sixteen exponents in one vector.
#include "kernels/packing_block.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define HF_AVX2 __attribute__((target("avx2")))
#define HF_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

namespace holdfast::kernels {
namespace {

HF_AVX2_INLINE __m128i load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
HF_AVX2_INLINE __m256i load_wide(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
HF_AVX2_INLINE void save(void* to, __m128i value) { _mm_storeu_si128(static_cast<__m128i*>(to), value); }

// A block: f32 in two vectors, bf16 in one.
template <Format F>
struct Elements;
template <>
struct Elements<Format::f32> {
  __m256i low, high;
};
template <>
struct Elements<Format::bf16> {
  __m256i all;
};

template <Format F>
HF_AVX2_INLINE Elements<F> elements_at(const void* at) {
  if constexpr (F == Format::f32) {
    return {load_wide(at), load_wide(static_cast<const std::uint8_t*>(at) + 32)};
  } else {
    return {load_wide(at)};
  }
}

HF_AVX2_INLINE bool all_zero(const Elements<Format::f32>& block) {
  const __m256i any = _mm256_or_si256(block.low, block.high);
  return _mm256_testz_si256(any, any) != 0;
}
HF_AVX2_INLINE bool all_zero(const Elements<Format::bf16>& block) {
  return _mm256_testz_si256(block.all, block.all) != 0;
}

// Of sixteen 16-bit lanes that hold a byte each.
HF_AVX2_INLINE __m128i bytes_of(__m256i lanes) {
  return _mm_packus_epi16(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
}

HF_AVX2_INLINE __m128i exponents_of(const Elements<Format::f32>& block) {
  const __m256i byte = _mm256_set1_epi32(0xff);
  const __m256i low = _mm256_and_si256(_mm256_srli_epi32(block.low, 23), byte);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi32(block.high, 23), byte);
  // Packing works within halves of vectors: put the quarters back in order.
  return bytes_of(_mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0b11011000));
}
HF_AVX2_INLINE __m128i exponents_of(const Elements<Format::bf16>& block) {
  return bytes_of(_mm256_and_si256(_mm256_srli_epi16(block.all, 7), _mm256_set1_epi16(0xff)));
}

// The instruction finds the least of eight 16-bit lanes, so of sixteen bytes those of pairs come first.
HF_AVX2_INLINE unsigned least_of(__m128i bytes) {
  const __m128i pairs = _mm_min_epu8(bytes, _mm_srli_epi16(bytes, 8));
  return static_cast<unsigned>(_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_and_si128(pairs, _mm_set1_epi16(0xff))))) & 0xff;
}

// Three bytes of every 32-bit lane, and the sign moved down to the place above the fraction.
HF_AVX2_INLINE void save_rests(std::uint8_t* target, const Elements<Format::f32>& block) {
  const __m256i fraction = _mm256_set1_epi32(0x007fffff);
  const __m256i sign = _mm256_set1_epi32(0x00800000);
  const __m256i order = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6, 8, 9,
                                         10, 12, 13, 14, -1, -1, -1, -1);
  const auto closed = [&](__m256i words) __attribute__((target("avx2"), always_inline)) {
    const __m256i rests =
        _mm256_or_si256(_mm256_and_si256(words, fraction), _mm256_and_si256(_mm256_srli_epi32(words, 8), sign));
    return _mm256_shuffle_epi8(rests, order);
  };
  const __m256i low = closed(block.low), high = closed(block.high);
  // Twelve bytes each; what the first three write too much the next one writes over.
  save(target, _mm256_castsi256_si128(low));
  save(target + 12, _mm256_extracti128_si256(low, 1));
  save(target + 24, _mm256_castsi256_si128(high));
  const __m128i last = _mm256_extracti128_si256(high, 1);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(target + 36), last);
  const int end = _mm_extract_epi32(last, 2);
  std::memcpy(target + 44, &end, sizeof end);
}
HF_AVX2_INLINE void save_rests(std::uint8_t* target, const Elements<Format::bf16>& block) {
  const __m256i fraction = _mm256_and_si256(block.all, _mm256_set1_epi16(0x007f));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi16(block.all, 8), _mm256_set1_epi16(0x0080));
  save(target, bytes_of(_mm256_or_si256(fraction, sign)));
}

// Four elements of twelve bytes, which begin at byte `skipped` of what is read.
template <int skipped>
HF_AVX2_INLINE __m128i four_words(const std::uint8_t* rests, __m128i exponents) {
  constexpr int s = skipped;
  const __m128i order =
      _mm_setr_epi8(s, s + 1, s + 2, -1, s + 3, s + 4, s + 5, -1, s + 6, s + 7, s + 8, -1, s + 9, s + 10, s + 11, -1);
  const __m128i rest = _mm_shuffle_epi8(load(rests), order);
  const __m128i fraction = _mm_and_si128(rest, _mm_set1_epi32(0x007fffff));
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(rest, _mm_set1_epi32(0x00800000)), 8);
  const __m128i exponent = _mm_slli_epi32(_mm_cvtepu8_epi32(exponents), 23);
  return _mm_or_si128(_mm_or_si128(fraction, sign), exponent);
}

template <Format F>
HF_AVX2_INLINE void save_elements(std::uint8_t* target, const std::uint8_t* rests, __m128i exponents) {
  if constexpr (F == Format::f32) {
    save(target, four_words<0>(rests, exponents));
    save(target + 16, four_words<0>(rests + 12, _mm_srli_si128(exponents, 4)));
    save(target + 32, four_words<0>(rests + 24, _mm_srli_si128(exponents, 8)));
    // Nothing beyond the block is read: the last twelve bytes are the end of the last sixteen.
    save(target + 48, four_words<4>(rests + 32, _mm_srli_si128(exponents, 12)));
  } else {
    const __m256i rest = _mm256_cvtepu8_epi16(load(rests));
    const __m256i fraction = _mm256_and_si256(rest, _mm256_set1_epi16(0x007f));
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(rest, _mm256_set1_epi16(0x0080)), 8);
    const __m256i exponent = _mm256_slli_epi16(_mm256_cvtepu8_epi16(exponents), 7);
    const __m256i words = _mm256_or_si256(_mm256_or_si256(fraction, sign), exponent);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), words);
  }
}

template <Format F>
HF_AVX2 BlockShape shape_of_block(const void* elements) {
  const Elements<F> block = elements_at<F>(elements);
  if (all_zero(block)) return {};
  const __m128i exponents = exponents_of(block);
  const __m128i ones = _mm_set1_epi8(-1);
  const __m128i is_zero = _mm_cmpeq_epi8(exponents, _mm_setzero_si128());
  const unsigned highest = 255 - least_of(_mm_xor_si128(exponents, ones));
  const unsigned lowest = least_of(_mm_or_si128(exponents, is_zero));
  return {Width::of_block(highest, lowest, _mm_movemask_epi8(is_zero) != 0), static_cast<std::uint8_t>(highest)};
}

template <Format F>
HF_AVX2 void pack_block(std::uint8_t* target, const void* elements, BlockShape shape) {
  const Elements<F> block = elements_at<F>(elements);
  const __m128i exponents = exponents_of(block);
  *target++ = shape.highest;
  const unsigned bits = Width::bits(shape.nibble);
  __m128i codes = _mm_sub_epi8(_mm_set1_epi8(static_cast<char>(shape.highest)), exponents);
  if (Width::is_escaped(shape.nibble)) {
    const __m128i escape = _mm_set1_epi8(static_cast<char>((1u << bits) - 1));
    codes = _mm_blendv_epi8(codes, escape, _mm_cmpeq_epi8(exponents, _mm_setzero_si128()));
  }
  store_codes(target, static_cast<std::uint64_t>(_mm_cvtsi128_si64(codes)),
              static_cast<std::uint64_t>(_mm_extract_epi64(codes, 1)), bits);
  save_rests(target + 2 * bits, block);
}

template <Format F>
HF_AVX2 bool unpack_block(void* elements, const std::uint8_t* packed, std::uint8_t nibble) {
  const __m128i highest = _mm_set1_epi8(static_cast<char>(*packed++));
  const unsigned bits = Width::bits(nibble);
  const CodeHalves halves = load_codes(packed, bits);
  const __m128i codes = _mm_set_epi64x(static_cast<long long>(halves.high), static_cast<long long>(halves.low));
  const __m128i is_escape = Width::is_escaped(nibble)
                                ? _mm_cmpeq_epi8(codes, _mm_set1_epi8(static_cast<char>((1u << bits) - 1)))
                                : _mm_setzero_si128();
  const __m128i not_above = _mm_cmpeq_epi8(_mm_max_epu8(codes, highest), highest);
  if (_mm_movemask_epi8(_mm_or_si128(not_above, is_escape)) != 0xffff) return false;
  const __m128i exponents = _mm_andnot_si128(is_escape, _mm_sub_epi8(highest, codes));
  save_elements<F>(static_cast<std::uint8_t*>(elements), packed + 2 * bits, exponents);
  return true;
}

template <Format F>
constexpr BlockKernels kernels_of{shape_of_block<F>, pack_block<F>, unpack_block<F>};

}  // namespace

constinit const BlockKernels f32_blocks_avx2 = kernels_of<Format::f32>;
constinit const BlockKernels bf16_blocks_avx2 = kernels_of<Format::bf16>;

}  // namespace holdfast::kernels

#endif
