// A 64-bit fingerprint of a sequence of bytes, for telling whether two runs did the same. Not a cryptographic one.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace holdfast {

// FNV-1a over 64-bit words, with a shift so that high bits reach low ones.
class Digest {
 public:
  void add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3ull;
    value_ ^= value_ >> 29;
  }

  void add(std::span<const std::uint8_t> bytes) {
    add(std::uint64_t{bytes.size()});
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + at, 8);
      add(word);
    }
    std::uint64_t rest = 0;
    if (at < bytes.size()) std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
    add(rest);
  }

  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ull;
};

}  // namespace holdfast
