// What a fuzz target asserts: says where and what, and aborts, so that libFuzzer keeps the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace holdfast::fuzz {

[[noreturn]] inline void fail(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
  std::abort();
}

}  // namespace holdfast::fuzz

#define FUZZ_CHECK(condition) ((condition) ? void() : ::holdfast::fuzz::fail(#condition, __FILE__, __LINE__))
