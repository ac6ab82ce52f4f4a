// Python's bytes and the core's octets.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

namespace holdfast::bind {

inline std::span<const std::uint8_t> octets_of(const nanobind::bytes& value) {
  return {reinterpret_cast<const std::uint8_t*>(value.c_str()), value.size()};
}

inline nanobind::bytes bytes_of(std::span<const std::uint8_t> octets) {
  return nanobind::bytes(octets.data(), octets.size());
}

template <std::size_t size>
std::array<std::uint8_t, size> array_of(const nanobind::bytes& value, const char* what) {
  if (value.size() != size) throw nanobind::value_error(what);
  std::array<std::uint8_t, size> out;
  std::memcpy(out.data(), value.c_str(), size);
  return out;
}

}  // namespace holdfast::bind
