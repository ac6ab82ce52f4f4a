#include "core/keys.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "core/byte_order.h"

namespace holdfast {
namespace {

void require(bool succeeded, const char* what) {
  if (!succeeded) throw std::runtime_error(std::string("OpenSSL failed to ") + what);
}

void hkdf_sha256(const JobKey& secret, std::span<const std::uint8_t> info, std::span<std::uint8_t> out) {
  static constexpr std::string_view salt = "holdfast wire 1";
  EVP_KDF* kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  require(kdf != nullptr, "provide HKDF");
  EVP_KDF_CTX* context = EVP_KDF_CTX_new(kdf);
  EVP_KDF_free(kdf);
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::uint8_t*>(secret.data()), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, const_cast<char*>(salt.data()), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<std::uint8_t*>(info.data()), info.size()),
      OSSL_PARAM_construct_end(),
  };
  const bool derived = EVP_KDF_derive(context, out.data(), out.size(), parameters) == 1;
  EVP_KDF_CTX_free(context);
  require(derived, "derive a key");
}

EVP_CIPHER_CTX* context_for(const TrafficKey& key, bool sealing) {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  const auto init = sealing ? EVP_EncryptInit_ex : EVP_DecryptInit_ex;
  require(context != nullptr && init(context, EVP_aes_128_gcm(), nullptr, key.data(), nullptr) == 1, "set a key");
  return context;
}

std::array<std::uint8_t, 12> nonce_of(std::uint64_t transmission) {
  std::array<std::uint8_t, 12> nonce{};
  store_big_endian(nonce.data() + 4, transmission);
  return nonce;
}

}  // namespace

TrafficKey derive_key(const JobKey& job_key, const Direction& direction, std::uint32_t phase) {
  static constexpr std::string_view label = "traffic";
  std::array<std::uint8_t, label.size() + 4 + 2 + 2 + 16 + 4> info{};
  std::uint8_t* at = info.data();
  std::memcpy(at, label.data(), label.size());
  at += label.size();
  store_big_endian(at, direction.epoch);
  store_big_endian(at + 4, direction.sender);
  store_big_endian(at + 6, direction.receiver);
  std::memcpy(at + 8, direction.sending_process.data(), direction.sending_process.size());
  store_big_endian(at + 24, phase);
  TrafficKey key{};
  hkdf_sha256(job_key, info, key);
  return key;
}

std::array<std::uint8_t, 16> key_fingerprint(const JobKey& job_key) {
  static constexpr std::array<std::uint8_t, 11> info{'f', 'i', 'n', 'g', 'e', 'r', 'p', 'r', 'i', 'n', 't'};
  std::array<std::uint8_t, 16> fingerprint{};
  hkdf_sha256(job_key, info, fingerprint);
  return fingerprint;
}

void fill_random(std::span<std::uint8_t> out) {
  require(RAND_bytes(out.data(), static_cast<int>(out.size())) == 1, "give random bytes");
}

Sealer::Sealer(const JobKey& job_key, const Direction& direction, Protection protection, std::uint64_t packets_per_key)
    : job_key_(job_key),
      direction_(direction),
      protection_(protection),
      packets_per_key_(packets_per_key),
      context_(context_for(derive_key(job_key, direction, 0), true)) {}

Sealer::~Sealer() { EVP_CIPHER_CTX_free(context_); }

Sealer::Sealer(Sealer&& other) noexcept
    : job_key_(other.job_key_),
      direction_(other.direction_),
      protection_(other.protection_),
      packets_per_key_(other.packets_per_key_),
      sealed_in_phase_(other.sealed_in_phase_),
      phase_(other.phase_),
      context_(std::exchange(other.context_, nullptr)) {}

std::uint8_t Sealer::next_phase() {
  if (protection_ != Protection::insecure && sealed_in_phase_ >= packets_per_key_) {
    ++phase_;
    sealed_in_phase_ = 0;
    EVP_CIPHER_CTX_free(context_);
    context_ = context_for(derive_key(job_key_, direction_, phase_), true);
  }
  return static_cast<std::uint8_t>(phase_);
}

void Sealer::seal(std::uint64_t transmission, std::span<const std::uint8_t> header,
                  std::span<const std::uint8_t> payload, std::uint8_t* sealed, std::span<std::uint8_t, tag_bytes> tag) {
  const auto nonce = nonce_of(transmission);
  int length = 0;
  const int payload_length = static_cast<int>(payload.size());
  bool good = EVP_EncryptInit_ex(context_, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
              EVP_EncryptUpdate(context_, nullptr, &length, header.data(), static_cast<int>(header.size())) == 1;
  if (!payload.empty()) {
    std::uint8_t* out = protection_ == Protection::encrypted ? sealed : nullptr;
    good = good && EVP_EncryptUpdate(context_, out, &length, payload.data(), payload_length) == 1;
  }
  good = good && EVP_EncryptFinal_ex(context_, nullptr, &length) == 1 &&
         EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_GCM_GET_TAG, tag_bytes, tag.data()) == 1;
  require(good, "seal a datagram");
  ++sealed_in_phase_;
}

Opener::Opener(const JobKey& job_key, const Direction& direction, Protection protection)
    : job_key_(job_key), direction_(direction), protection_(protection) {
  contexts_[1] = context_for(derive_key(job_key_, direction_, 0), false);
  contexts_[2] = context_for(derive_key(job_key_, direction_, 1), false);
}

Opener::~Opener() {
  for (EVP_CIPHER_CTX* context : contexts_) EVP_CIPHER_CTX_free(context);
}

Opener::Opener(Opener&& other) noexcept
    : job_key_(other.job_key_),
      direction_(other.direction_),
      protection_(other.protection_),
      phase_(other.phase_),
      contexts_(std::exchange(other.contexts_, {})) {}

void Opener::advance() {
  EVP_CIPHER_CTX_free(contexts_[0]);
  ++phase_;
  contexts_ = {contexts_[1], contexts_[2], context_for(derive_key(job_key_, direction_, phase_ + 1), false)};
}

std::optional<Drop> Opener::open(const Header& header, std::span<const std::uint8_t> header_octets,
                                 std::span<std::uint8_t> payload, std::span<const std::uint8_t, tag_bytes> tag) {
  const int step = static_cast<std::int8_t>(header.key_phase - static_cast<std::uint8_t>(phase_));
  if (step < -1 || step > 1) return Drop::key_phase;
  EVP_CIPHER_CTX* context = contexts_[static_cast<std::size_t>(step + 1)];
  if (context == nullptr) return Drop::key_phase;
  const auto nonce = nonce_of(header.transmission);
  int length = 0;
  bool good = EVP_DecryptInit_ex(context, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
              EVP_DecryptUpdate(context, nullptr, &length, header_octets.data(), header_bytes) == 1;
  if (!payload.empty()) {
    std::uint8_t* out = protection_ == Protection::encrypted ? payload.data() : nullptr;
    good = good && EVP_DecryptUpdate(context, out, &length, payload.data(), static_cast<int>(payload.size())) == 1;
  }
  // EVP compares the tag in constant time.
  good = good && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, tag_bytes, const_cast<std::uint8_t*>(tag.data())) == 1 &&
         EVP_DecryptFinal_ex(context, nullptr, &length) == 1;
  if (!good) return Drop::authentication;
  if (step == 1) advance();
  return std::nullopt;
}

}  // namespace holdfast
