// Sealing and opening datagrams: AES-128-GCM, or GMAC where the user wants authentication without secrecy.
//
// Keys come by HKDF-SHA256 from the job key per (epoch, sender, receiver, random ids of both processes, phase), so no
// two processes, directions or restarts share one, and what was sealed for an earlier process opens for no later one.
// The nonce is the transmission number, which never repeats within a key. A sender moves to the next phase by itself;
// the receiver follows when a datagram of that phase opens.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/aead.h"
#include "core/wire.h"

namespace holdfast {

using JobKey = std::array<std::uint8_t, 32>;
using ProcessId = std::array<std::uint8_t, 16>;

enum class Protection : std::uint8_t {
  encrypted,      // default: nobody reads or forges
  authenticated,  // payload in the clear, nothing forged
  insecure,       // neither; loopback only
};

constexpr std::size_t tag_bytes_of(Protection protection) { return protection == Protection::insecure ? 0 : tag_bytes; }

// NIST SP 800-38D and RFC 9001 6.6: a GCM key seals at most 2^23 packets here.
constexpr std::uint64_t default_packets_per_key = 1ull << 23;

// One direction of one path.
struct Direction {
  std::uint32_t epoch = 0;
  std::uint16_t sender = 0;
  std::uint16_t receiver = 0;
  ProcessId sending_process{};
  ProcessId receiving_process{};
};

constexpr Direction reversed(const Direction& direction) {
  return {direction.epoch, direction.receiver, direction.sender, direction.receiving_process,
          direction.sending_process};
}

TrafficKey derive_key(const JobKey& job_key, const Direction& direction, std::uint32_t phase);
// A value that two ranks can compare to learn whether they hold the same job key, without revealing it.
std::array<std::uint8_t, 16> key_fingerprint(const JobKey& job_key);
// Unpredictable bytes for process ids and job keys.
void fill_random(std::span<std::uint8_t> out);

class Sealer {
 public:
  Sealer(const JobKey& job_key, const Direction& direction, Protection protection, std::uint64_t packets_per_key);

  // The phase the next datagram will be sealed with; moves on when the current key has sealed its share.
  std::uint8_t next_phase();
  std::uint32_t phase() const { return phase_; }
  // Encrypts `payload` to `sealed` (same length) and writes the tag. With `authenticated` the payload is only read.
  void seal(std::uint64_t transmission, std::span<const std::uint8_t> header, std::span<const std::uint8_t> payload,
            std::uint8_t* sealed, std::span<std::uint8_t, tag_bytes> tag);

 private:
  JobKey job_key_;
  Direction direction_;
  Protection protection_;
  std::uint64_t packets_per_key_;
  std::uint64_t sealed_in_phase_ = 0;
  std::uint32_t phase_ = 0;
  std::unique_ptr<Aead> key_;
};

class Opener {
 public:
  Opener(const JobKey& job_key, const Direction& direction, Protection protection);

  // Decrypts in place. Nothing about the opener changes unless the datagram authenticates.
  std::optional<Drop> open(const Header& header, std::span<const std::uint8_t> header_octets,
                           std::span<std::uint8_t> payload, std::span<const std::uint8_t, tag_bytes> tag);
  std::uint32_t phase() const { return phase_; }

 private:
  std::unique_ptr<Aead> key_of_phase(std::uint32_t phase) const;
  void advance();

  JobKey job_key_;
  Direction direction_;
  Protection protection_;
  std::uint32_t phase_ = 0;
  // Previous, current and next key. The next one is derived ahead, so that forged phases cost no derivation.
  std::array<std::unique_ptr<Aead>, 3> keys_;
};

}  // namespace holdfast
