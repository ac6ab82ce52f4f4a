// Decisions out of bytes. An input that has run out decides 0 for ever, so every prefix of an input is an input, and a
// target ends when `empty`.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace holdfast::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  std::span<const std::uint8_t> rest() const { return rest_; }

  template <std::integral Integer>
  Integer take() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Integer); ++i) value = value << 8 | next();
    return static_cast<Integer>(value);
  }
  // In [0, limit), from one byte where that is enough: one decision, one byte, so that mutations stay local.
  std::uint32_t below(std::uint32_t limit) {
    if (limit <= 1) return 0;
    if (limit <= 256) return next() % limit;
    return limit <= 65536 ? take<std::uint16_t>() % limit : take<std::uint32_t>() % limit;
  }
  std::uint32_t between(std::uint32_t least, std::uint32_t most) { return least + below(most - least + 1); }
  bool flag() { return (next() & 1) != 0; }
  // True for a few bytes only: the rare thing must not hide the usual one.
  bool rarely() { return next() >= 240; }
  std::vector<std::uint8_t> bytes(std::size_t count) {
    count = std::min(count, rest_.size());
    const std::vector<std::uint8_t> taken(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(count));
    rest_ = rest_.subspan(count);
    return taken;
  }

 private:
  std::uint8_t next() {
    if (rest_.empty()) return 0;
    const std::uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }

  std::span<const std::uint8_t> rest_;
};

}  // namespace holdfast::fuzz
