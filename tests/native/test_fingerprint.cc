// Fingerprints: equal for equal memory, different after any change, however it is aligned.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "kernels/fingerprint.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

using Bytes = std::vector<unsigned char>;

Bytes noise(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

std::uint64_t of(const Bytes& bytes) { return kernels::fingerprint(bytes.data(), bytes.size(), 0); }

}  // namespace

HF_CASE(every_flipped_bit_shows) {
  for (const std::size_t count : {1, 7, 8, 9, 63, 64, 65, 200}) {
    for (const bool zeros : {false, true}) {
      Bytes bytes = zeros ? Bytes(count, 0) : noise(count, 3);
      std::set<std::uint64_t> seen{of(bytes)};
      for (std::size_t bit = 0; bit < 8 * count; ++bit) {
        bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
        HF_CHECK(seen.insert(of(bytes)).second);
        bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
      }
    }
  }
}

HF_CASE(length_order_and_what_came_before_show) {
  std::set<std::uint64_t> seen;
  for (std::size_t count = 0; count < 300; ++count) HF_CHECK(seen.insert(of(Bytes(count, 0))).second);
  Bytes words = noise(256, 5);
  const std::uint64_t before = of(words);
  for (const std::size_t other : {8, 64, 128}) {
    Bytes swapped = words;
    std::swap_ranges(swapped.begin(), swapped.begin() + 8, swapped.begin() + static_cast<long>(other));
    HF_CHECK(of(swapped) != before);
  }
  HF_CHECK(kernels::fingerprint(words.data(), words.size(), 1) != before);
  HF_CHECK(kernels::fingerprint(nullptr, 0, 1) != kernels::fingerprint(nullptr, 0, 2));
}

HF_CASE(alignment_does_not_matter) {
  const Bytes bytes = noise(1000, 7);
  Bytes shifted(1001);
  std::memcpy(shifted.data() + 1, bytes.data(), bytes.size());
  HF_EQUAL(kernels::fingerprint(shifted.data() + 1, 1000, 0), of(bytes));
}

HF_CASE(speed_beside_memcpy_when_asked) {
  if (std::getenv("HOLDFAST_KERNEL_SPEED") == nullptr) return;
  const Bytes bytes = noise(64u << 20, 1);
  Bytes copy(bytes.size());
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t value = of(bytes);
    const auto middle = std::chrono::steady_clock::now();
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    const auto end = std::chrono::steady_clock::now();
    const auto ms = [](auto span) { return std::chrono::duration<double, std::milli>(span).count(); };
    std::printf("64 MiB: fingerprint %.1f ms, memcpy %.1f ms (%llx)\n", ms(middle - start), ms(end - middle),
                static_cast<unsigned long long>(value));
  }
}

HF_TEST_MAIN
