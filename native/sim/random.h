// A seeded generator that gives the same numbers everywhere; the standard library's distributions do not.
#pragma once

#include <cmath>
#include <cstdint>

namespace holdfast::sim {

// xoshiro256** by Blackman and Vigna, seeded through splitmix64.
class Random {
 public:
  // `stream` separates the uses of one seed, so that a change to one does not shift the others.
  Random(std::uint64_t seed, std::uint64_t stream) {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + stream * 0xd1342543de82ef95ull;
    for (std::uint64_t& word : state_) {
      state += 0x9e3779b97f4a7c15ull;
      std::uint64_t mixed = state;
      mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
      mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
      word = mixed ^ (mixed >> 31);
    }
  }

  std::uint64_t bits() {
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  // In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // In [0, limit); the bias of the multiplication is below 2^-32 for the limits used here.
  std::uint64_t below(std::uint64_t limit) {
    return static_cast<std::uint64_t>(uniform() * static_cast<double>(limit));
  }
  bool chance(double probability) { return probability > 0 && uniform() < probability; }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  double pareto(double scale, double shape) { return scale / std::pow(1 - uniform(), 1 / shape); }

 private:
  static std::uint64_t rotate(std::uint64_t word, int by) { return word << by | word >> (64 - by); }

  std::uint64_t state_[4];
};

}  // namespace holdfast::sim
