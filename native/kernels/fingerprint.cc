#include "kernels/fingerprint.h"

#include <array>
#include <bit>
#include <cstring>

namespace holdfast::kernels {
namespace {

// Odd, with about as many ones as zeros: from the fractional parts of the golden ratio and of two square roots.
constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;
constexpr std::uint64_t root_two = 0x6a09e667f3bcc909;
constexpr std::uint64_t root_three = 0xbb67ae8584caa73b;

std::uint64_t word_at(const unsigned char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// A bijection of `lane` for every word, and of the word for every lane: no single change is ever swallowed. Both are
// multiplied, so that no bit of one word passes for a bit of the next.
std::uint64_t absorb(std::uint64_t lane, std::uint64_t word) { return std::rotl(lane + word * golden, 31) * root_two; }

std::uint64_t scramble(std::uint64_t value) {
  value = (value ^ (value >> 32)) * golden;
  value = (value ^ (value >> 29)) * root_three;
  return value ^ (value >> 32);
}

}  // namespace

// Several lanes, because each step of one waits for the multiplication before it.
std::uint64_t fingerprint(const void* bytes, std::size_t count, std::uint64_t so_far) {
  constexpr std::size_t num_lanes = 8;
  const auto* at = static_cast<const unsigned char*>(bytes);
  const auto* end = at + count;
  std::array<std::uint64_t, num_lanes> lanes;
  for (std::size_t lane = 0; lane < num_lanes; ++lane) lanes[lane] = so_far + lane * root_three;
  for (; static_cast<std::size_t>(end - at) >= 8 * num_lanes; at += 8 * num_lanes) {
    for (std::size_t lane = 0; lane < num_lanes; ++lane) lanes[lane] = absorb(lanes[lane], word_at(at + 8 * lane));
  }
  std::uint64_t mixed = absorb(so_far, count);
  for (; end - at >= 8; at += 8) mixed = absorb(mixed, word_at(at));
  if (at != end) {
    std::uint64_t rest = 0;
    std::memcpy(&rest, at, static_cast<std::size_t>(end - at));
    mixed = absorb(mixed, rest);
  }
  for (const std::uint64_t lane : lanes) mixed = absorb(mixed, scramble(lane));
  return scramble(mixed);
}

}  // namespace holdfast::kernels
