// Random bits for stochastic rounding: a keyed hash of the element's index, so that vectors, tails and repeated runs
// see the same bits without any state to carry along. One hash serves two elements with 16 bits each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast::kernels {

// The multipliers of "lowbias32" (C. Wellons, hash-prospector), found there by a search for the least avalanche bias of
// a two-round hash. Two rounds suffice: what is asked is that neighbouring elements round independently.
constexpr std::uint32_t first_multiplier = 0x7feb352d;
constexpr std::uint32_t second_multiplier = 0x846ca68b;

struct RandomKey {
  std::uint32_t before;   // added to the index
  std::uint32_t between;  // mixed in between the rounds, so that two keys are never one stream at two offsets
};

// splitmix64's finaliser: neighbouring seeds give unrelated keys.
constexpr RandomKey key_of(std::uint64_t seed) {
  std::uint64_t mixed = seed + 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  return {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
}

constexpr std::uint32_t hash(RandomKey key, std::uint32_t index) {
  std::uint32_t bits = index + key.before;
  bits = (bits ^ (bits >> 16)) * first_multiplier;
  bits = (bits ^ (bits >> 15) ^ key.between) * second_multiplier;
  return bits ^ (bits >> 16);
}

// Of 16 elements the first eight have the low halves of eight hashes and the others the high halves: what a vector of
// eight lanes has at hand.
constexpr std::size_t elements_per_hash_vector = 16;

// The key under which `first`, a multiple of that, is element zero.
constexpr RandomKey advanced(RandomKey key, std::size_t first) {
  return {key.before + static_cast<std::uint32_t>(first / 2), key.between};
}

constexpr std::uint32_t random_half(RandomKey key, std::size_t element) {
  const std::uint32_t bits =
      hash(key, static_cast<std::uint32_t>(element / elements_per_hash_vector * 8 + element % 8));
  return element % elements_per_hash_vector < 8 ? bits & 0xffff : bits >> 16;
}

}  // namespace holdfast::kernels
