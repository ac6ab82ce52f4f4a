#include "core/gcm_vaes.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#define HF_VAES __attribute__((target("avx2,aes,pclmul,vaes,vpclmulqdq")))

namespace holdfast::gcm_vaes {
namespace {

constexpr std::size_t block_bytes = 16;
constexpr std::size_t group_bytes = 8 * block_bytes;  // hashed with one reduction

HF_VAES inline __m128i load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
HF_VAES inline __m256i load_pair(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
HF_VAES inline void store(void* to, __m128i value) { _mm_storeu_si128(static_cast<__m128i*>(to), value); }
HF_VAES inline void store_pair(void* to, __m256i value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }

HF_VAES inline __m128i reversed(__m128i block) {
  return _mm_shuffle_epi8(block, _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
HF_VAES inline __m256i reversed(__m256i blocks) {
  const __m128i order = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm256_shuffle_epi8(blocks, _mm256_broadcastsi128_si256(order));
}

// ------------------------------------------------------------------------------------------------ POLYVAL arithmetic

// Montgomery reduction of a 256-bit product modulo x^128 + x^127 + x^126 + x^121 + 1 (RFC 8452, section 3).
HF_VAES inline __m128i reduce(__m128i low, __m128i high) {
  const __m128i polynomial = _mm_set_epi64x(static_cast<long long>(0xC200000000000000ull), 1);
  for (int fold = 0; fold < 2; ++fold) {
    const __m128i product = _mm_clmulepi64_si128(low, polynomial, 0x10);
    low = _mm_xor_si128(_mm_shuffle_epi32(low, 0x4E), product);
  }
  return _mm_xor_si128(low, high);
}

HF_VAES inline __m128i multiply(__m128i left, __m128i right) {
  const __m128i middle =
      _mm_xor_si128(_mm_clmulepi64_si128(left, right, 0x01), _mm_clmulepi64_si128(left, right, 0x10));
  const __m128i low = _mm_xor_si128(_mm_clmulepi64_si128(left, right, 0x00), _mm_slli_si128(middle, 8));
  const __m128i high = _mm_xor_si128(_mm_clmulepi64_si128(left, right, 0x11), _mm_srli_si128(middle, 8));
  return reduce(low, high);
}

// x times the hash key: GHASH's key as POLYVAL needs it (RFC 8452, appendix A).
HF_VAES inline __m128i times_x(__m128i value) {
  const __m128i carries = _mm_srli_epi64(value, 63);
  const __m128i shifted = _mm_or_si128(_mm_slli_epi64(value, 1), _mm_slli_si128(carries, 8));
  const __m128i top = _mm_shuffle_epi32(carries, 0xAA);  // the bit that left at the top, in all words
  const __m128i mask = _mm_sub_epi32(_mm_setzero_si128(), top);
  const __m128i polynomial = _mm_set_epi64x(static_cast<long long>(0xC200000000000000ull), 1);
  return _mm_xor_si128(shifted, _mm_and_si128(mask, polynomial));
}

class Hash {
 public:
  HF_VAES explicit Hash(const Key& key) : key_(key) {}

  HF_VAES void add_block(__m128i block) {
    const __m128i power_one = load(key_.powers.data() + 7 * block_bytes);
    state_ = multiply(_mm_xor_si128(state_, reversed(block)), power_one);
  }

  // Eight blocks with one reduction.
  HF_VAES void add_group(__m256i first, __m256i second, __m256i third, __m256i fourth) {
    __m256i blocks[4] = {reversed(first), reversed(second), reversed(third), reversed(fourth)};
    blocks[0] = _mm256_xor_si256(blocks[0], _mm256_zextsi128_si256(state_));
    __m256i low = _mm256_setzero_si256(), middle = low, high = low;
    for (int i = 0; i < 4; ++i) {
      const __m256i power = load_pair(key_.powers.data() + i * 2 * block_bytes);
      low = _mm256_xor_si256(low, _mm256_clmulepi64_epi128(blocks[i], power, 0x00));
      middle = _mm256_xor_si256(middle, _mm256_clmulepi64_epi128(blocks[i], power, 0x01));
      middle = _mm256_xor_si256(middle, _mm256_clmulepi64_epi128(blocks[i], power, 0x10));
      high = _mm256_xor_si256(high, _mm256_clmulepi64_epi128(blocks[i], power, 0x11));
    }
    const __m128i middle_sum = fold(middle);
    state_ = reduce(_mm_xor_si128(fold(low), _mm_slli_si128(middle_sum, 8)),
                    _mm_xor_si128(fold(high), _mm_srli_si128(middle_sum, 8)));
  }

  HF_VAES void add_groups(const std::uint8_t* from, std::size_t groups) {
    for (; groups > 0; --groups, from += group_bytes) {
      add_group(load_pair(from), load_pair(from + 32), load_pair(from + 64), load_pair(from + 96));
    }
  }

  // Any length; the last block is padded with zeros, as GCM wants at the end of a section.
  HF_VAES void add_section(const std::uint8_t* from, std::size_t bytes) {
    const std::size_t groups = bytes / group_bytes;
    add_groups(from, groups);
    from += groups * group_bytes;
    bytes -= groups * group_bytes;
    for (; bytes >= block_bytes; bytes -= block_bytes, from += block_bytes) add_block(load(from));
    if (bytes != 0) {
      std::uint8_t padded[block_bytes] = {};
      std::memcpy(padded, from, bytes);
      add_block(load(padded));
    }
  }

  HF_VAES void add_lengths(std::uint64_t authenticated_bytes, std::uint64_t encrypted_bytes) {
    // Big-endian bit counts, already in the reversed order of `state_`.
    const __m128i lengths =
        _mm_set_epi64x(static_cast<long long>(authenticated_bytes * 8), static_cast<long long>(encrypted_bytes * 8));
    state_ = multiply(_mm_xor_si128(state_, lengths), load(key_.powers.data() + 7 * block_bytes));
  }

  HF_VAES __m128i value() const { return reversed(state_); }

 private:
  HF_VAES static __m128i fold(__m256i pair) {
    return _mm_xor_si128(_mm256_castsi256_si128(pair), _mm256_extracti128_si256(pair, 1));
  }

  const Key& key_;
  __m128i state_ = _mm_setzero_si128();
};

// ------------------------------------------------------------------------------------------------ AES in counter mode

class Counter {
 public:
  HF_VAES Counter(const Key& key, const Nonce& nonce) {
    for (int round = 0; round < 11; ++round) {
      rounds_[round] = _mm256_broadcastsi128_si256(load(key.rounds.data() + round * block_bytes));
    }
    std::uint8_t first[block_bytes] = {};
    std::memcpy(first, nonce.data(), nonce.size());
    first[15] = 1;
    // Little-endian lanes, so that the counter can be added to; `next_pair` turns them back.
    const __m128i counter = reversed(load(first));
    next_ = _mm256_add_epi32(_mm256_broadcastsi128_si256(counter), _mm256_set_epi32(0, 0, 0, 1, 0, 0, 0, 0));
  }

  // The first block's stream hides the tag, the second begins the payload's.
  HF_VAES __m128i tag_mask() {
    const __m256i pair = keystream(reversed(next_));
    next_ = _mm256_add_epi32(next_, _mm256_set_epi32(0, 0, 0, 1, 0, 0, 0, 1));
    return _mm256_castsi256_si128(pair);
  }

  HF_VAES void next_group(__m256i (&stream)[4]) {
    const __m256i two = _mm256_set_epi32(0, 0, 0, 2, 0, 0, 0, 2);
    for (__m256i& pair : stream) {
      pair = _mm256_xor_si256(reversed(next_), rounds_[0]);
      next_ = _mm256_add_epi32(next_, two);
    }
    for (int round = 1; round < 10; ++round) {
      for (__m256i& pair : stream) pair = _mm256_aesenc_epi128(pair, rounds_[round]);
    }
    for (__m256i& pair : stream) pair = _mm256_aesenclast_epi128(pair, rounds_[10]);
  }

 private:
  HF_VAES __m256i keystream(__m256i pair) const {
    pair = _mm256_xor_si256(pair, rounds_[0]);
    for (int round = 1; round < 10; ++round) pair = _mm256_aesenc_epi128(pair, rounds_[round]);
    return _mm256_aesenclast_epi128(pair, rounds_[10]);
  }

  __m256i rounds_[11];
  __m256i next_;
};

template <int constant>
HF_VAES __m128i next_round_key(__m128i key) {
  const __m128i assist = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, constant), 0xFF);
  key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
  return _mm_xor_si128(key, assist);
}

HF_VAES Tag finish(const Hash& hash, __m128i mask) {
  Tag tag;
  store(tag.data(), _mm_xor_si128(hash.value(), mask));
  return tag;
}

// What is left of a payload after the whole groups: fewer than eight blocks, through a padded copy of the stream.
HF_VAES void crypt_rest(Counter& counter, const std::uint8_t* from, std::uint8_t* to, std::size_t bytes) {
  if (bytes == 0) return;
  __m256i stream[4];
  counter.next_group(stream);
  std::uint8_t mask[group_bytes];
  for (int i = 0; i < 4; ++i) store_pair(mask + i * 32, stream[i]);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i] ^ mask[i];
}

}  // namespace

bool is_supported() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("vaes") && __builtin_cpu_supports("vpclmulqdq");
}

HF_VAES Key expand(std::span<const std::uint8_t, 16> key) {
  Key expanded;
  __m128i rounds[11];
  rounds[0] = load(key.data());
  rounds[1] = next_round_key<0x01>(rounds[0]);
  rounds[2] = next_round_key<0x02>(rounds[1]);
  rounds[3] = next_round_key<0x04>(rounds[2]);
  rounds[4] = next_round_key<0x08>(rounds[3]);
  rounds[5] = next_round_key<0x10>(rounds[4]);
  rounds[6] = next_round_key<0x20>(rounds[5]);
  rounds[7] = next_round_key<0x40>(rounds[6]);
  rounds[8] = next_round_key<0x80>(rounds[7]);
  rounds[9] = next_round_key<0x1B>(rounds[8]);
  rounds[10] = next_round_key<0x36>(rounds[9]);
  for (int round = 0; round < 11; ++round) store(expanded.rounds.data() + round * block_bytes, rounds[round]);

  __m128i hash_key = _mm_xor_si128(_mm_setzero_si128(), rounds[0]);
  for (int round = 1; round < 10; ++round) hash_key = _mm_aesenc_si128(hash_key, rounds[round]);
  hash_key = times_x(reversed(_mm_aesenclast_si128(hash_key, rounds[10])));
  __m128i power = hash_key;
  for (int i = 7; i >= 0; --i) {
    store(expanded.powers.data() + i * block_bytes, power);
    power = multiply(power, hash_key);
  }
  return expanded;
}

HF_VAES Tag seal(const Key& key, const Nonce& nonce, std::span<const std::uint8_t> header,
                 std::span<const std::uint8_t> payload, std::uint8_t* sealed) {
  Hash hash(key);
  Counter counter(key, nonce);
  const __m128i mask = counter.tag_mask();
  hash.add_section(header.data(), header.size());
  if (sealed == nullptr) {
    hash.add_section(payload.data(), payload.size());
    hash.add_lengths(header.size() + payload.size(), 0);
    return finish(hash, mask);
  }
  const std::uint8_t* from = payload.data();
  std::uint8_t* to = sealed;
  std::size_t left = payload.size();
  for (; left >= group_bytes; left -= group_bytes, from += group_bytes, to += group_bytes) {
    __m256i stream[4];
    counter.next_group(stream);
    for (int i = 0; i < 4; ++i) {
      stream[i] = _mm256_xor_si256(stream[i], load_pair(from + i * 32));
      store_pair(to + i * 32, stream[i]);
    }
    hash.add_group(stream[0], stream[1], stream[2], stream[3]);
  }
  crypt_rest(counter, from, to, left);
  hash.add_section(to, left);
  hash.add_lengths(header.size(), payload.size());
  return finish(hash, mask);
}

HF_VAES Tag open(const Key& key, const Nonce& nonce, std::span<const std::uint8_t> header,
                 std::span<std::uint8_t> payload, bool authenticate_only) {
  if (authenticate_only) return seal(key, nonce, header, payload, nullptr);
  Hash hash(key);
  Counter counter(key, nonce);
  const __m128i mask = counter.tag_mask();
  hash.add_section(header.data(), header.size());
  std::uint8_t* at = payload.data();
  std::size_t left = payload.size();
  for (; left >= group_bytes; left -= group_bytes, at += group_bytes) {
    __m256i stream[4], blocks[4];
    counter.next_group(stream);
    for (int i = 0; i < 4; ++i) blocks[i] = load_pair(at + i * 32);
    hash.add_group(blocks[0], blocks[1], blocks[2], blocks[3]);
    for (int i = 0; i < 4; ++i) store_pair(at + i * 32, _mm256_xor_si256(stream[i], blocks[i]));
  }
  hash.add_section(at, left);
  crypt_rest(counter, at, at, left);
  hash.add_lengths(header.size(), payload.size());
  return finish(hash, mask);
}

}  // namespace holdfast::gcm_vaes

#else

#include <cstdlib>

namespace holdfast::gcm_vaes {

bool is_supported() { return false; }

// Never reached: keys are made for OpenSSL when the instructions are not there.
Key expand(std::span<const std::uint8_t, 16>) { std::abort(); }
Tag seal(const Key&, const Nonce&, std::span<const std::uint8_t>, std::span<const std::uint8_t>, std::uint8_t*) {
  std::abort();
}
Tag open(const Key&, const Nonce&, std::span<const std::uint8_t>, std::span<std::uint8_t>, bool) { std::abort(); }

}  // namespace holdfast::gcm_vaes

#endif
