// One tile of the Hadamard transform, eight columns at a time.
//
// Ten levels in two passes of five, each on 32 rows at a time: they stay in the first-level cache while five levels are
// done, as three and two, because eight values and what they become fit into sixteen registers. Between the passes the
// tile lies where it is, in the second-level cache. The order of the levels is that of the portable path, and so are
// the bits.
#include "kernels/hadamard_layout.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/random_bits_avx2.h"

#define HF_AVX2 __attribute__((target("avx2")))
#define HF_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline
// An array of vectors lives in registers only if every loop over it is unrolled.
#if defined(__clang__)
#define HF_UNROLL _Pragma("unroll")
#else
#define HF_UNROLL _Pragma("GCC unroll 8")
#endif

namespace holdfast::kernels {
namespace {

constexpr std::size_t num_lanes = 8;
constexpr std::size_t columns = hadamard_columns;
constexpr std::size_t group_rows = 32;
constexpr std::size_t num_groups = hadamard_rows / group_rows;
constexpr std::size_t pieces_per_group = group_rows / piece_rows;
static_assert(num_groups == 32 && pieces_per_group == 4 && piece_rows == 8 && group_rows == rows_per_hash);

using Words = std::uint32_t[num_groups][columns];

HF_AVX2_INLINE void butterfly(__m256& upper, __m256& lower) {
  const __m256 sum = _mm256_add_ps(upper, lower);
  lower = _mm256_sub_ps(upper, lower);
  upper = sum;
}

HF_AVX2_INLINE void two_levels(__m256 (&rows)[4]) {
  butterfly(rows[0], rows[1]);
  butterfly(rows[2], rows[3]);
  butterfly(rows[0], rows[2]);
  butterfly(rows[1], rows[3]);
}

HF_AVX2_INLINE void three_levels(__m256 (&rows)[8]) {
  butterfly(rows[0], rows[1]);
  butterfly(rows[2], rows[3]);
  butterfly(rows[4], rows[5]);
  butterfly(rows[6], rows[7]);
  butterfly(rows[0], rows[2]);
  butterfly(rows[1], rows[3]);
  butterfly(rows[4], rows[6]);
  butterfly(rows[5], rows[7]);
  butterfly(rows[0], rows[4]);
  butterfly(rows[1], rows[5]);
  butterfly(rows[2], rows[6]);
  butterfly(rows[3], rows[7]);
}

// The signs of one row: the highest bits after `row` others.
HF_AVX2_INLINE __m256 signs_of_row(__m256i words, int row) {
  const __m256i shifted = _mm256_slli_epi32(words, row);
  return _mm256_and_ps(_mm256_castsi256_ps(shifted), _mm256_set1_ps(-0.0f));
}

HF_AVX2_INLINE __m256i load_words(const std::uint32_t* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}

// Levels of rows 1, 2, 4, 8 and 16 apart: four pieces, which are a group.
template <Direction direction>
HF_AVX2_INLINE void transform_group(float* const* pieces, const std::uint32_t* words, const float* column_scale) {
  alignas(64) float near[group_rows * columns];
  HF_UNROLL
  for (std::size_t part = 0; part < pieces_per_group; ++part) {
    const float* const piece = pieces[part];
    // The piece of the next tile lies right behind, but for the last place of a round, where this is harmless.
    HF_UNROLL
    for (std::size_t row = 0; row < piece_rows; ++row) {
      _mm_prefetch(reinterpret_cast<const char*>(piece + piece_elements + row * columns), _MM_HINT_T1);
    }
    HF_UNROLL
    for (std::size_t column = 0; column < columns; column += num_lanes) {
      const __m256 scale = _mm256_loadu_ps(column_scale + column);
      const __m256i signs = load_words(words + column);
      __m256 rows[piece_rows];
      HF_UNROLL
      for (std::size_t row = 0; row < piece_rows; ++row) {
        rows[row] = _mm256_mul_ps(_mm256_loadu_ps(piece + row * columns + column), scale);
        if constexpr (direction == Direction::encode) {
          rows[row] = _mm256_xor_ps(rows[row], signs_of_row(signs, static_cast<int>(part * piece_rows + row)));
        }
      }
      three_levels(rows);
      HF_UNROLL
      for (std::size_t row = 0; row < piece_rows; ++row) {
        _mm256_store_ps(near + (part * piece_rows + row) * columns + column, rows[row]);
      }
    }
  }
  for (std::size_t i = 0; i < piece_elements; i += num_lanes) {
    __m256 rows[pieces_per_group];
    HF_UNROLL
    for (std::size_t part = 0; part < 4; ++part) rows[part] = _mm256_load_ps(near + part * piece_elements + i);
    two_levels(rows);
    HF_UNROLL
    for (std::size_t part = 0; part < 4; ++part) _mm256_storeu_ps(pieces[part] + i, rows[part]);
  }
}

// Levels of 32 rows apart and more: the same row of every group, which is `offset` elements into `pieces[group]`.
template <Direction direction>
HF_AVX2_INLINE void transform_across(float* const (&pieces)[num_groups], std::size_t offset, const Words& words,
                                     int row) {
  alignas(64) float near[num_groups * columns];
  for (std::size_t group = 0; group < num_groups; group += 8) {
    HF_UNROLL
    for (std::size_t column = 0; column < columns; column += num_lanes) {
      __m256 rows[8];
      HF_UNROLL
      for (std::size_t i = 0; i < 8; ++i) rows[i] = _mm256_loadu_ps(pieces[group + i] + offset + column);
      three_levels(rows);
      HF_UNROLL
      for (std::size_t i = 0; i < 8; ++i) _mm256_store_ps(near + (group + i) * columns + column, rows[i]);
    }
  }
  for (std::size_t group = 0; group < 8; ++group) {
    HF_UNROLL
    for (std::size_t column = 0; column < columns; column += num_lanes) {
      __m256 rows[4];
      HF_UNROLL
      for (std::size_t i = 0; i < 4; ++i) rows[i] = _mm256_load_ps(near + (i * 8 + group) * columns + column);
      two_levels(rows);
      HF_UNROLL
      for (std::size_t i = 0; i < 4; ++i) {
        if constexpr (direction == Direction::decode) {
          rows[i] = _mm256_xor_ps(rows[i], signs_of_row(load_words(words[i * 8 + group] + column), row));
        }
        _mm256_storeu_ps(pieces[i * 8 + group] + offset + column, rows[i]);
      }
    }
  }
}

template <Direction direction>
HF_AVX2 void transform_tile(const HadamardTile& tile) {
  alignas(32) Words words;
  for (std::size_t group = 0; group < num_groups; ++group) {
    for (std::size_t column = 0; column < columns; column += num_lanes) {
      const std::size_t index = (tile.number * num_groups + group) * columns + column;
      _mm256_store_si256(reinterpret_cast<__m256i*>(words[group] + column),
                         hash_eight(tile.key, static_cast<std::uint32_t>(index)));
    }
  }
  float* pieces[pieces_per_group][num_groups];
  for (std::size_t group = 0; group < num_groups; ++group) {
    float* of_group[pieces_per_group];
    for (std::size_t part = 0; part < pieces_per_group; ++part) {
      const std::size_t place = tile.dealing.place_of(tile.number, group * pieces_per_group + part);
      pieces[part][group] = of_group[part] = tile.values + place * piece_elements;
    }
    transform_group<direction>(of_group, words[group], tile.column_scale);
  }
  for (std::size_t row = 0; row < group_rows; ++row) {
    transform_across<direction>(pieces[row / piece_rows], row % piece_rows * columns, words, static_cast<int>(row));
  }
}

}  // namespace

void transform_tile_avx2(const HadamardTile& tile) {
  if (tile.direction == Direction::encode) {
    transform_tile<Direction::encode>(tile);
  } else {
    transform_tile<Direction::decode>(tile);
  }
}

}  // namespace holdfast::kernels

#endif
