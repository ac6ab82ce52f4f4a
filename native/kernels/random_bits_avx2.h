// random_bits.h, eight indices at a time.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include "kernels/random_bits.h"

namespace holdfast::kernels {

// See kernels::hash: of eight consecutive indices.
__attribute__((target("avx2"), always_inline)) inline __m256i hash_eight(RandomKey key, std::uint32_t first_index) {
  const __m256i start = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first_index + key.before)),
                                         _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i first = _mm256_mullo_epi32(_mm256_xor_si256(start, _mm256_srli_epi32(start, 16)),
                                           _mm256_set1_epi32(static_cast<int>(first_multiplier)));
  const __m256i keyed = _mm256_xor_si256(_mm256_xor_si256(first, _mm256_srli_epi32(first, 15)),
                                         _mm256_set1_epi32(static_cast<int>(key.between)));
  const __m256i second = _mm256_mullo_epi32(keyed, _mm256_set1_epi32(static_cast<int>(second_multiplier)));
  return _mm256_xor_si256(second, _mm256_srli_epi32(second, 16));
}

}  // namespace holdfast::kernels

#endif
