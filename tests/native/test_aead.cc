// The vector path of AES-GCM against a published vector and, for every length and mode, against OpenSSL.
#include <random>
#include <string>
#include <vector>

#include "core/aead.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

std::vector<std::uint8_t> from_hex(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<std::uint8_t> random_bytes(std::mt19937_64& random, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

struct Sealed {
  std::vector<std::uint8_t> payload;
  std::array<std::uint8_t, tag_bytes> tag{};
  bool operator==(const Sealed&) const = default;
};

// Keys remember how they were made, so both implementations can be used side by side.
struct BothWays {
  Aead vector;
  Aead openssl;

  static Aead make(const TrafficKey& key, Aead::Purpose purpose, bool openssl) {
    Aead::prefer_openssl(openssl);
    struct Restore {
      ~Restore() { Aead::prefer_openssl(false); }
    } restore;
    return Aead(key, purpose);
  }
  BothWays(const TrafficKey& key, Aead::Purpose purpose)
      : vector(make(key, purpose, false)), openssl(make(key, purpose, true)) {}
};

Sealed seal(Aead& key, std::uint64_t transmission, const std::vector<std::uint8_t>& header,
            const std::vector<std::uint8_t>& payload, bool encrypt) {
  Sealed sealed{payload, {}};
  key.seal(transmission, header, payload, encrypt ? sealed.payload.data() : nullptr, sealed.tag);
  return sealed;
}

}  // namespace

HF_CASE(the_published_vector_of_sixty_four_bytes_comes_out) {
  if (!gcm_vaes::is_supported()) return;
  const auto key_bytes = from_hex("feffe9928665731c6d6a8f9467308308");
  const auto plain = from_hex(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255");
  const auto expected = from_hex(
      "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
      "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985");
  const auto expected_tag = from_hex("4d5c2af327cd64a62cf35abd2ba6fab4");
  gcm_vaes::Nonce nonce;
  const auto nonce_bytes = from_hex("cafebabefacedbaddecaf888");
  std::copy(nonce_bytes.begin(), nonce_bytes.end(), nonce.begin());
  const gcm_vaes::Key key = gcm_vaes::expand(std::span<const std::uint8_t, 16>(key_bytes.data(), 16));
  std::vector<std::uint8_t> sealed(plain.size());
  const gcm_vaes::Tag tag = gcm_vaes::seal(key, nonce, {}, plain, sealed.data());
  HF_CHECK(sealed == expected);
  HF_CHECK(std::vector<std::uint8_t>(tag.begin(), tag.end()) == expected_tag);
}

HF_CASE(both_implementations_seal_and_open_alike_at_every_length_up_to_five_groups_and_beyond) {
  std::mt19937_64 random(7);
  std::vector<std::size_t> lengths{1408, 4096, 8908, 16'256};
  for (std::size_t length = 0; length <= 640; ++length) lengths.push_back(length);
  for (const std::size_t length : lengths) {
    TrafficKey key;
    for (std::uint8_t& byte : key) byte = static_cast<std::uint8_t>(random());
    BothWays sealing(key, Aead::Purpose::sealing), opening(key, Aead::Purpose::opening);
    const auto header = random_bytes(random, header_bytes);
    const auto payload = random_bytes(random, length);
    const std::uint64_t transmission = random();
    for (const bool encrypt : {false, true}) {
      const Sealed sealed = seal(sealing.vector, transmission, header, payload, encrypt);
      HF_CHECK(sealed == seal(sealing.openssl, transmission, header, payload, encrypt));
      for (Aead* opener : {&opening.vector, &opening.openssl}) {
        std::vector<std::uint8_t> opened = sealed.payload;
        HF_CHECK(opener->open(transmission, header, opened, sealed.tag, !encrypt));
        HF_CHECK(opened == payload);
      }
    }
  }
}

HF_CASE(a_flipped_bit_anywhere_is_noticed_by_both) {
  std::mt19937_64 random(11);
  const TrafficKey key{1, 2, 3};
  BothWays sealing(key, Aead::Purpose::sealing), opening(key, Aead::Purpose::opening);
  const auto header = random_bytes(random, header_bytes);
  const auto payload = random_bytes(random, 300);
  for (const bool encrypt : {false, true}) {
    const Sealed sealed = seal(sealing.vector, 5, header, payload, encrypt);
    for (std::size_t bit = 0; bit < (header.size() + payload.size() + tag_bytes) * 8; bit += 7) {
      for (Aead* opener : {&opening.vector, &opening.openssl}) {
        auto bad_header = header;
        Sealed bad = sealed;
        const std::size_t at = bit / 8;
        const auto mask = static_cast<std::uint8_t>(1u << bit % 8);
        if (at < header.size()) {
          bad_header[at] ^= mask;
        } else if (at < header.size() + payload.size()) {
          bad.payload[at - header.size()] ^= mask;
        } else {
          bad.tag[at - header.size() - payload.size()] ^= mask;
        }
        HF_CHECK(!opener->open(5, bad_header, bad.payload, bad.tag, !encrypt));
      }
    }
    std::vector<std::uint8_t> other = sealed.payload;
    HF_CHECK(!opening.vector.open(6, header, other, sealed.tag, !encrypt));  // another transmission number
  }
}

HF_TEST_MAIN
