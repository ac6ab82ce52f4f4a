// Big-endian loads and stores on unaligned bytes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace holdfast {

template <std::unsigned_integral Integer>
void store_big_endian(std::uint8_t* to, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    to[i] = static_cast<std::uint8_t>(value >> (8 * (sizeof(Integer) - 1 - i)));
  }
}

template <std::unsigned_integral Integer>
Integer load_big_endian(const std::uint8_t* from) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) value = static_cast<Integer>((value << 8) | from[i]);
  return value;
}

}  // namespace holdfast
