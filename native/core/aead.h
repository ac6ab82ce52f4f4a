// AES-128-GCM under one key: by the vector instructions where the CPU has them, else by OpenSSL.
#pragma once

#include <openssl/types.h>

#include <array>
#include <cstdint>
#include <span>
#include <variant>

#include "core/gcm_vaes.h"
#include "core/wire.h"

namespace holdfast {

using TrafficKey = std::array<std::uint8_t, 16>;

class Aead {
 public:
  enum class Purpose : std::uint8_t { sealing, opening };

  Aead(const TrafficKey& key, Purpose purpose);
  ~Aead();
  Aead(const Aead&) = delete;
  Aead& operator=(const Aead&) = delete;

  // Encrypts `payload` to `sealed`; a null `sealed` authenticates it without encrypting.
  void seal(std::uint64_t transmission, std::span<const std::uint8_t> header, std::span<const std::uint8_t> payload,
            std::uint8_t* sealed, std::span<std::uint8_t, tag_bytes> tag);
  // False: not authentic. Decrypts in place, unless `authenticate_only`.
  bool open(std::uint64_t transmission, std::span<const std::uint8_t> header, std::span<std::uint8_t> payload,
            std::span<const std::uint8_t, tag_bytes> tag, bool authenticate_only);

  // For tests and comparisons: keys made from now on use OpenSSL even where the vector instructions are there.
  static void prefer_openssl(bool prefer);
  static bool uses_vector_instructions();

 private:
  std::variant<gcm_vaes::Key, EVP_CIPHER_CTX*> key_;
};

}  // namespace holdfast
