// One block packed and unpacked, its sixteen exponents in one vector.
#include "kernels/packing_group.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define HF_AVX2 __attribute__((target("avx2,bmi2")))
#define HF_AVX2_INLINE __attribute__((target("avx2,bmi2"), always_inline)) inline

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

// Three bytes of every 32-bit lane, and the sign moved down to the place above the fraction.
HF_AVX2_INLINE void save_rests(std::uint8_t* target, const Elements<Format::f32>& block) {
  const __m256i fraction = _mm256_set1_epi32(0x007fffff);
  const __m256i sign = _mm256_set1_epi32(0x00800000);
  const __m256i order = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6, 8, 9,
                                         10, 12, 13, 14, -1, -1, -1, -1);
  const auto closed = [&](__m256i words) __attribute__((target("avx2,bmi2"), always_inline)) {
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

HF_AVX2_INLINE __m128i lookup_table(const Ladder::Table& entries) { return load(entries.data()); }

HF_AVX2_INLINE __m128i distances_of(__m128i exponents, std::uint8_t base) {
  const __m128i lowest = _mm_set1_epi8(static_cast<char>(base - Ladder::below_base));
  return _mm_min_epu8(_mm_sub_epi8(exponents, lowest), _mm_set1_epi8(Ladder::num_known));
}

HF_AVX2_INLINE std::uint64_t low_half(__m128i bytes) { return static_cast<std::uint64_t>(_mm_cvtsi128_si64(bytes)); }
HF_AVX2_INLINE std::uint64_t high_half(__m128i bytes) {
  return static_cast<std::uint64_t>(_mm_extract_epi64(bytes, 1));
}

constexpr std::uint64_t two_bits_per_byte = 0x0303030303030303;

// Sixteen codes of a byte each to pairs of bits, and back.
HF_AVX2_INLINE std::uint32_t pairs_of(__m128i codes) {
  return static_cast<std::uint32_t>(_pext_u64(low_half(codes), two_bits_per_byte) |
                                    _pext_u64(high_half(codes), two_bits_per_byte) << 16);
}
HF_AVX2_INLINE __m128i codes_of(std::uint32_t pairs) {
  return _mm_set_epi64x(static_cast<long long>(_pdep_u64(pairs >> 16, two_bits_per_byte)),
                        static_cast<long long>(_pdep_u64(pairs, two_bits_per_byte)));
}

HF_AVX2_INLINE unsigned num_bits_of(std::uint32_t mask) { return static_cast<unsigned>(std::popcount(mask)); }

template <Format F>
HF_AVX2 BlockSums exponents_of_block(Exponents& exponents, const void* elements) {
  const Elements<F> block = elements_at<F>(elements);
  const __m128i all = exponents_of(block);
  save(exponents.data(), all);
  const __m128i zero = _mm_setzero_si128();
  const __m128i sums = _mm_sad_epu8(all, zero);
  const auto is_zero = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(all, zero)));
  return {!all_zero(block), static_cast<std::uint32_t>(low_half(sums) + high_half(sums)),
          static_cast<std::uint32_t>(packing_block) - num_bits_of(is_zero)};
}

// Two blocks at a time. No byte of a sum overflows: eight blocks of at most twelve bits per element, four to a byte.
HF_AVX2 std::array<std::uint32_t, 3> further_bits_of(std::span<const Exponents> blocks, std::uint8_t middle) {
  static_assert(group_blocks / 2 * (4 + Ladder::bare_bits) < 256);
  const __m256i bits = _mm256_broadcastsi128_si256(lookup_table(Ladder::further_bits));
  const __m256i beyond = _mm256_set1_epi8(Ladder::num_known);
  const __m256i lowest = _mm256_set1_epi8(static_cast<char>(middle - 1 - Ladder::below_base));
  const __m256i one = _mm256_set1_epi8(1);
  __m256i sums[3] = {};
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    const bool has_second = i + 1 < blocks.size();
    const __m128i second = has_second ? load(blocks[i + 1].data()) : _mm_setzero_si128();
    // In place of a block that is not there nothing is counted.
    const __m256i counted = has_second ? bits : _mm256_zextsi128_si256(_mm256_castsi256_si128(bits));
    __m256i distances = _mm256_sub_epi8(_mm256_set_m128i(second, load(blocks[i].data())), lowest);
    for (__m256i& sum : sums) {
      sum = _mm256_add_epi8(sum, _mm256_shuffle_epi8(counted, _mm256_min_epu8(distances, beyond)));
      distances = _mm256_sub_epi8(distances, one);
    }
  }
  std::array<std::uint32_t, 3> totals;
  for (std::size_t i = 0; i < totals.size(); ++i) {
    const __m256i quarters = _mm256_sad_epu8(sums[i], _mm256_setzero_si256());
    const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
    totals[i] = static_cast<std::uint32_t>(low_half(halves) + high_half(halves));
  }
  return totals;
}

HF_AVX2 std::uint32_t write_block(BitWriter& further, const Exponents& exponents, std::uint8_t base) {
  const __m128i distances = distances_of(load(exponents.data()), base);
  const auto pairs_on = [&](std::size_t rung) __attribute__((target("avx2,bmi2"), always_inline)) {
    return pairs_of(_mm_shuffle_epi8(lookup_table(Ladder::codes[rung]), distances));
  };
  const std::uint32_t first = pairs_on(0), second = pairs_on(1), third = pairs_on(2);
  const std::uint32_t in_second = pairs_of_three(first);
  const std::uint32_t in_third = in_second & pairs_of_three(second);
  const unsigned second_bits = num_bits_of(in_second), third_bits = num_bits_of(in_third);
  const std::uint64_t told = _pext_u32(second, in_second) | std::uint64_t{_pext_u32(third, in_third)} << second_bits;
  if (second_bits + third_bits <= BitWriter::most_bits) {
    further.put(told, second_bits + third_bits);
  } else {
    further.put(told & 0xffffffff, 32);
    further.put(told >> 32, second_bits + third_bits - 32);
  }
  for (std::uint32_t bare = in_third & pairs_of_three(third) & 0x55555555; bare != 0; bare &= bare - 1) {
    further.put(exponents[static_cast<std::size_t>(std::countr_zero(bare)) / 2], Ladder::bare_bits);
  }
  return first;
}

HF_AVX2 void read_block(Exponents& exponents, BitReader& further, std::uint32_t first, std::uint8_t base) {
  const __m128i three = _mm_set1_epi8(Ladder::further);
  __m128i codes = codes_of(first);
  __m128i distances = _mm_shuffle_epi8(lookup_table(Ladder::distances[0]), codes);
  std::uint32_t open = pairs_of_three(first);
  for (std::size_t rung = 1; rung < Ladder::num_rungs && open != 0; ++rung) {
    const __m128i is_open = _mm_cmpeq_epi8(codes, three);
    const std::uint32_t told = _pdep_u32(further.take(num_bits_of(open)), open);
    // Where a rung before has told: not 3, so that it stays as it is.
    codes = _mm_and_si128(codes_of(told), is_open);
    distances = _mm_blendv_epi8(distances, _mm_shuffle_epi8(lookup_table(Ladder::distances[rung]), codes), is_open);
    open = pairs_of_three(told);
  }
  const __m128i lowest = _mm_set1_epi8(static_cast<char>(base - Ladder::below_base));
  save(exponents.data(), _mm_add_epi8(distances, lowest));
  for (std::uint32_t bare = open & 0x55555555; bare != 0; bare &= bare - 1) {
    exponents[static_cast<std::size_t>(std::countr_zero(bare)) / 2] =
        static_cast<std::uint8_t>(further.take(Ladder::bare_bits));
  }
}

template <Format F>
HF_AVX2 void save_rests_of_block(std::uint8_t* rests, const void* elements) {
  save_rests(rests, elements_at<F>(elements));
}

template <Format F>
HF_AVX2 void join_block(void* elements, const Exponents& exponents, const std::uint8_t* rests) {
  save_elements<F>(static_cast<std::uint8_t*>(elements), rests, load(exponents.data()));
}

template <Format F>
constexpr BlockKernels kernels_of{exponents_of_block<F>,  further_bits_of, write_block, read_block,
                                  save_rests_of_block<F>, join_block<F>};

}  // namespace

constinit const BlockKernels f32_blocks_avx2 = kernels_of<Format::f32>;
constinit const BlockKernels bf16_blocks_avx2 = kernels_of<Format::bf16>;

}  // namespace holdfast::kernels

#endif
