// The three messages of a forming job: any bytes as each of them, and any fields as bytes.
#include "core/join.h"

#include <algorithm>
#include <stdexcept>

#include "fuzz/check.h"
#include "fuzz/input.h"

using namespace holdfast;

namespace {

// What is accepted has one spelling, and is a message of one kind.
void check_bytes(std::span<const std::uint8_t> bytes) {
  int accepted = 0;
  const auto check = [&](const auto& message) {
    if (!message) return;
    ++accepted;
    FUZZ_CHECK(std::ranges::equal(encode(*message), bytes));
  };
  check(decode_introduction(bytes));
  check(decode_whereabouts(bytes));
  check(decode_datagram_limit(bytes));
  FUZZ_CHECK(accepted <= 1);
  if (accepted == 1) FUZZ_CHECK(bytes.size() <= max_join_bytes);
}

// What cannot be announced is refused by the sender; everything else arrives as it was.
template <class Message, class Decode>
void check_message(const Message& message, Decode decode_one) {
  std::vector<std::uint8_t> bytes;
  try {
    bytes = encode(message);
  } catch (const std::invalid_argument&) {
    return;
  }
  FUZZ_CHECK(decode_one(bytes) == message);
  check_bytes(bytes);
}

std::string text_from(fuzz::Input& input) {
  const auto letters = input.bytes(input.below(140));
  return {letters.begin(), letters.end()};
}

template <std::size_t size>
void fill(fuzz::Input& input, std::array<std::uint8_t, size>& out) {
  for (std::uint8_t& octet : out) octet = input.take<std::uint8_t>();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.below(4)) {
    case 0: check_bytes(input.rest()); break;
    case 1: {
      Introduction message;
      message.protection = static_cast<Protection>(input.below(3));
      message.deterministic = input.flag();
      message.measures_deadline = input.flag();
      message.uneven_shards = input.flag();
      message.hadamard = static_cast<HadamardChoice>(input.below(3));
      message.hierarchy = static_cast<std::uint16_t>(input.below(max_ranks + 1));
      message.warmup_operations = input.take<std::uint32_t>();
      fill(input, message.key_fingerprint);
      message.host_identity = text_from(input);
      check_message(message, decode_introduction);
      break;
    }
    case 2: {
      Whereabouts message;
      message.port = input.take<std::uint16_t>();
      fill(input, message.process);
      message.address = text_from(input);
      check_message(message, decode_whereabouts);
      break;
    }
    default: check_message(DatagramLimit{input.take<std::uint32_t>()}, decode_datagram_limit); break;
  }
  return 0;
}
