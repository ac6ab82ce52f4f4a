// What this machine brings: the CPU's instructions, the OpenSSL that was loaded, and how fast datagrams are sealed.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/aead.h"
#include "core/wire.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace holdfast;

namespace {

std::vector<std::string> cpu_features() {
  std::vector<std::string> features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) features.emplace_back("avx2");
  if (__builtin_cpu_supports("f16c")) features.emplace_back("f16c");
  if (__builtin_cpu_supports("aes")) features.emplace_back("aes");
  if (__builtin_cpu_supports("pclmul")) features.emplace_back("pclmul");
  if (__builtin_cpu_supports("vaes")) features.emplace_back("vaes");
  if (__builtin_cpu_supports("vpclmulqdq")) features.emplace_back("vpclmulqdq");
#endif
  return features;
}

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

struct Datagram {
  std::vector<std::uint8_t> payload;
  std::array<std::uint8_t, tag_bytes> tag{};
};

// Bytes of UDP payload per second that one core seals, and that it opens. A round is 64 KiB, as much as the reactor
// sends at once, so that the caches are as warm as in a job. The best round counts: what else runs on the machine makes
// rounds slower, never faster.
std::pair<double, double> sealing_rate(std::size_t datagram_bytes, bool authenticate_only, double seconds) {
  constexpr std::size_t round_bytes = 64 << 10;
  if (datagram_bytes <= header_bytes + tag_bytes || datagram_bytes > round_bytes) {
    throw nb::value_error("a datagram has a header, a tag and at most 64 KiB");
  }
  const TrafficKey key{};
  Aead sealing(key, Aead::Purpose::sealing);
  Aead opening(key, Aead::Purpose::opening);
  const std::array<std::uint8_t, header_bytes> header{};
  const std::vector<std::uint8_t> plain(datagram_bytes - header_bytes - tag_bytes);
  std::vector<Datagram> datagrams(round_bytes / datagram_bytes);
  for (Datagram& datagram : datagrams) datagram.payload = plain;

  std::uint64_t transmission = 0;
  double best_sealing_s = std::numeric_limits<double>::infinity();
  double best_opening_s = best_sealing_s;
  double spent_s = 0;
  do {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < datagrams.size(); ++i) {
      std::uint8_t* sealed = authenticate_only ? nullptr : datagrams[i].payload.data();
      sealing.seal(transmission + i, header, plain, sealed, datagrams[i].tag);
    }
    const auto sealed_at = std::chrono::steady_clock::now();
    bool authentic = true;
    for (std::size_t i = 0; i < datagrams.size(); ++i) {
      authentic &= opening.open(transmission + i, header, datagrams[i].payload, datagrams[i].tag, authenticate_only);
    }
    const auto opened_at = std::chrono::steady_clock::now();
    if (!authentic) throw std::runtime_error("a datagram sealed on this machine does not open on it");
    transmission += datagrams.size();
    best_sealing_s = std::min(best_sealing_s, seconds_between(start, sealed_at));
    best_opening_s = std::min(best_opening_s, seconds_between(sealed_at, opened_at));
    spent_s += seconds_between(start, opened_at);
  } while (spent_s < seconds);
  const auto bytes = static_cast<double>(datagrams.size() * datagram_bytes);
  return {bytes / best_sealing_s, bytes / best_opening_s};
}

}  // namespace

void bind_machine(nb::module_& module) {
  module.def("cpu_features", &cpu_features, "Those of the instructions Holdfast can use that this CPU has.");
  module.def(
      "openssl_version", [] { return std::string(OpenSSL_version(OPENSSL_VERSION_STRING)); },
      "The version of the OpenSSL that was loaded.");
  module.def("seals_with_vector_instructions", &Aead::uses_vector_instructions,
             "Whether AES-GCM runs on the CPU's vector instructions; else by OpenSSL.");
  module.def("sealing_rate", &sealing_rate, "datagram_bytes"_a, "authenticate_only"_a, "seconds"_a,
             nb::call_guard<nb::gil_scoped_release>(),
             "(sealed, opened): bytes per second on this core, measured for about so long.");
}
