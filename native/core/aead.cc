#include "core/aead.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "core/byte_order.h"

namespace holdfast {
namespace {

std::atomic<bool> openssl_preferred{false};

static_assert(header_bytes % 16 == 0, "the vector path hashes the header in whole blocks");

// The transmission number never repeats under a key, so it is the nonce.
gcm_vaes::Nonce nonce_of(std::uint64_t transmission) {
  gcm_vaes::Nonce nonce{};
  store_big_endian(nonce.data() + 4, transmission);
  return nonce;
}

void require(bool succeeded, const char* what) {
  if (!succeeded) throw std::runtime_error(std::string("OpenSSL failed to ") + what);
}

EVP_CIPHER_CTX* openssl_context(const TrafficKey& key, bool sealing) {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  const auto init = sealing ? EVP_EncryptInit_ex : EVP_DecryptInit_ex;
  require(context != nullptr && init(context, EVP_aes_128_gcm(), nullptr, key.data(), nullptr) == 1, "set a key");
  return context;
}

int as_int(std::size_t length) { return static_cast<int>(length); }

}  // namespace

void Aead::prefer_openssl(bool prefer) { openssl_preferred = prefer; }

bool Aead::uses_vector_instructions() { return gcm_vaes::is_supported() && !openssl_preferred; }

Aead::Aead(const TrafficKey& key, Purpose purpose) {
  if (uses_vector_instructions()) {
    key_ = gcm_vaes::expand(key);
  } else {
    key_ = openssl_context(key, purpose == Purpose::sealing);
  }
}

Aead::~Aead() {
  if (EVP_CIPHER_CTX** context = std::get_if<EVP_CIPHER_CTX*>(&key_)) EVP_CIPHER_CTX_free(*context);
  if (gcm_vaes::Key* key = std::get_if<gcm_vaes::Key>(&key_)) OPENSSL_cleanse(key, sizeof *key);
}

void Aead::seal(std::uint64_t transmission, std::span<const std::uint8_t> header, std::span<const std::uint8_t> payload,
                std::uint8_t* sealed, std::span<std::uint8_t, tag_bytes> tag) {
  const gcm_vaes::Nonce nonce = nonce_of(transmission);
  if (const gcm_vaes::Key* key = std::get_if<gcm_vaes::Key>(&key_)) {
    const gcm_vaes::Tag computed = gcm_vaes::seal(*key, nonce, header, payload, sealed);
    std::copy(computed.begin(), computed.end(), tag.begin());
    return;
  }
  EVP_CIPHER_CTX* context = std::get<EVP_CIPHER_CTX*>(key_);
  int length = 0;
  bool good = EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
              EVP_EncryptUpdate(context, nullptr, &length, header.data(), as_int(header.size())) == 1;
  if (!payload.empty()) {
    good = good && EVP_EncryptUpdate(context, sealed, &length, payload.data(), as_int(payload.size())) == 1;
  }
  good = good && EVP_EncryptFinal_ex(context, nullptr, &length) == 1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, tag_bytes, tag.data()) == 1;
  require(good, "seal a datagram");
}

bool Aead::open(std::uint64_t transmission, std::span<const std::uint8_t> header, std::span<std::uint8_t> payload,
                std::span<const std::uint8_t, tag_bytes> tag, bool authenticate_only) {
  const gcm_vaes::Nonce nonce = nonce_of(transmission);
  if (const gcm_vaes::Key* key = std::get_if<gcm_vaes::Key>(&key_)) {
    const gcm_vaes::Tag expected = gcm_vaes::open(*key, nonce, header, payload, authenticate_only);
    return CRYPTO_memcmp(expected.data(), tag.data(), tag_bytes) == 0;  // in constant time
  }
  EVP_CIPHER_CTX* context = std::get<EVP_CIPHER_CTX*>(key_);
  int length = 0;
  bool good = EVP_DecryptInit_ex(context, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
              EVP_DecryptUpdate(context, nullptr, &length, header.data(), as_int(header.size())) == 1;
  if (!payload.empty()) {
    std::uint8_t* out = authenticate_only ? nullptr : payload.data();
    good = good && EVP_DecryptUpdate(context, out, &length, payload.data(), as_int(payload.size())) == 1;
  }
  // EVP compares the tag in constant time.
  return good &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, tag_bytes, const_cast<std::uint8_t*>(tag.data())) == 1 &&
         EVP_DecryptFinal_ex(context, nullptr, &length) == 1;
}

}  // namespace holdfast
