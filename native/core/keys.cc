#include "core/keys.h"

#include <openssl/core_names.h>
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

}  // namespace

TrafficKey derive_key(const JobKey& job_key, const Direction& direction, std::uint32_t phase) {
  static constexpr std::string_view label = "traffic";
  std::array<std::uint8_t, label.size() + 4 + 2 + 2 + 16 + 16 + 4> info{};
  std::uint8_t* at = info.data();
  std::memcpy(at, label.data(), label.size());
  at += label.size();
  store_big_endian(at, direction.epoch);
  store_big_endian(at + 4, direction.sender);
  store_big_endian(at + 6, direction.receiver);
  std::memcpy(at + 8, direction.sending_process.data(), direction.sending_process.size());
  std::memcpy(at + 24, direction.receiving_process.data(), direction.receiving_process.size());
  store_big_endian(at + 40, phase);
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
      key_(std::make_unique<Aead>(derive_key(job_key, direction, 0), Aead::Purpose::sealing)) {}

std::uint8_t Sealer::next_phase() {
  if (protection_ != Protection::insecure && sealed_in_phase_ >= packets_per_key_) {
    ++phase_;
    sealed_in_phase_ = 0;
    key_ = std::make_unique<Aead>(derive_key(job_key_, direction_, phase_), Aead::Purpose::sealing);
  }
  return static_cast<std::uint8_t>(phase_);
}

void Sealer::seal(std::uint64_t transmission, std::span<const std::uint8_t> header,
                  std::span<const std::uint8_t> payload, std::uint8_t* sealed, std::span<std::uint8_t, tag_bytes> tag) {
  key_->seal(transmission, header, payload, protection_ == Protection::encrypted ? sealed : nullptr, tag);
  ++sealed_in_phase_;
}

Opener::Opener(const JobKey& job_key, const Direction& direction, Protection protection)
    : job_key_(job_key), direction_(direction), protection_(protection) {
  keys_[1] = key_of_phase(0);
  keys_[2] = key_of_phase(1);
}

std::unique_ptr<Aead> Opener::key_of_phase(std::uint32_t phase) const {
  return std::make_unique<Aead>(derive_key(job_key_, direction_, phase), Aead::Purpose::opening);
}

void Opener::advance() {
  ++phase_;
  keys_ = {std::move(keys_[1]), std::move(keys_[2]), key_of_phase(phase_ + 1)};
}

std::optional<Drop> Opener::open(const Header& header, std::span<const std::uint8_t> header_octets,
                                 std::span<std::uint8_t> payload, std::span<const std::uint8_t, tag_bytes> tag) {
  const int step = static_cast<std::int8_t>(header.key_phase - static_cast<std::uint8_t>(phase_));
  if (step < -1 || step > 1) return Drop::key_phase;
  const std::unique_ptr<Aead>& key = keys_[static_cast<std::size_t>(step + 1)];
  if (!key) return Drop::key_phase;
  const bool authenticate_only = protection_ != Protection::encrypted;
  if (!key->open(header.transmission, header_octets, payload, tag, authenticate_only)) return Drop::authentication;
  if (step == 1) advance();
  return std::nullopt;
}

}  // namespace holdfast
