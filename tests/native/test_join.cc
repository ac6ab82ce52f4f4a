// What ranks tell each other when a job forms: read back as written, and nothing else accepted.
#include <stdexcept>

#include "core/join.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

using Bytes = std::vector<std::uint8_t>;

Introduction introduction() {
  Introduction made;
  made.protection = Protection::authenticated;
  made.deterministic = true;
  made.hadamard = HadamardChoice::automatic;
  made.hierarchy = 16;
  made.warmup_operations = 20;
  made.key_fingerprint.fill(7);
  made.host_identity = "4c5e/4026531840";
  return made;
}

Whereabouts whereabouts() { return {"fe80::1%eth0", 29'500, ProcessId{1, 2, 3}}; }

// Every shorter message, one that is longer, and another version or kind.
template <class Decode>
void only_the_whole_message_is_read(const Bytes& message, Decode decode) {
  HF_CHECK(decode(message).has_value());
  for (std::size_t size = 0; size < message.size(); ++size) {
    HF_CHECK(!decode(std::span(message).first(size)).has_value());
  }
  Bytes changed = message;
  changed.push_back(0);
  HF_CHECK(!decode(changed).has_value());
  for (const std::size_t at : {0u, 1u}) {
    changed = message;
    ++changed[at];
    HF_CHECK(!decode(changed).has_value());
  }
}

}  // namespace

HF_CASE(messages_are_read_back_as_written) {
  HF_CHECK(decode_introduction(encode(introduction())) == introduction());
  HF_CHECK(decode_whereabouts(encode(whereabouts())) == whereabouts());
  HF_CHECK(decode_datagram_limit(encode(DatagramLimit{1472})) == DatagramLimit{1472});
}

HF_CASE(the_bytes_are_those_of_every_release) {
  HF_CHECK(encode(DatagramLimit{0x5c0}) == (Bytes{4, 3, 0, 0, 5, 0xc0}));
  const Bytes message = encode(Whereabouts{"::1", 0x1234, ProcessId{9}});
  HF_CHECK((Bytes(message.begin(), message.begin() + 9) == Bytes{4, 2, 3, ':', ':', '1', 0x12, 0x34, 9}));
  HF_EQUAL(message.size(), 24u);
  HF_EQUAL(encode(introduction()).size(), 2u + 5 + 2 + 4 + 16 + 1 + 15);
}

HF_CASE(anything_but_the_whole_message_is_refused) {
  only_the_whole_message_is_read(encode(introduction()), decode_introduction);
  only_the_whole_message_is_read(encode(whereabouts()), decode_whereabouts);
  only_the_whole_message_is_read(encode(DatagramLimit{1472}), decode_datagram_limit);
}

HF_CASE(values_no_rank_can_have_are_refused) {
  Bytes message = encode(introduction());
  message[2] = 3;  // a protection that does not exist
  HF_CHECK(!decode_introduction(message));
  message = encode(introduction());
  message[3] = 2;  // a flag that is neither
  HF_CHECK(!decode_introduction(message));
  message = encode(introduction());
  message[6] = 3;  // a choice that does not exist
  HF_CHECK(!decode_introduction(message));
  message = encode(introduction());
  message[7] = 0x20;  // more groups than a job has ranks
  HF_CHECK(!decode_introduction(message));
  message = encode(introduction());
  message.back() = '\n';  // would forge a line in a log
  HF_CHECK(!decode_introduction(message));
  message = encode(whereabouts());
  const std::size_t port = 3 + whereabouts().address.size();
  message[port] = message[port + 1] = 0;
  HF_CHECK(!decode_whereabouts(message));
}

HF_CASE(texts_are_capped_to_the_byte) {
  Introduction longest = introduction();
  longest.host_identity.assign(max_host_identity_bytes, 'h');
  HF_CHECK(decode_introduction(encode(longest)) == longest);
  longest.host_identity.push_back('h');
  HF_THROWS(encode(longest), std::invalid_argument);
  Bytes message = encode(introduction());
  message[message.size() - 16] = max_host_identity_bytes + 1;
  message.resize(message.size() - 15 + max_host_identity_bytes + 1, 'h');
  HF_CHECK(!decode_introduction(message));
  Whereabouts far = whereabouts();
  far.address.assign(max_address_bytes, '1');
  HF_CHECK(decode_whereabouts(encode(far)) == far);
  far.address.push_back('1');
  HF_THROWS(encode(far), std::invalid_argument);
  far.address.clear();
  HF_THROWS(encode(far), std::invalid_argument);
}

HF_CASE(datagram_sizes_are_those_an_endpoint_takes) {
  HF_CHECK(decode_datagram_limit(encode(DatagramLimit{256})).has_value());
  HF_CHECK(decode_datagram_limit(encode(DatagramLimit{65'280})).has_value());
  HF_THROWS(encode(DatagramLimit{255}), std::invalid_argument);
  HF_THROWS(encode(DatagramLimit{65'281}), std::invalid_argument);
  HF_CHECK(!decode_datagram_limit(Bytes{1, 3, 0, 0, 0, 255}));
  HF_CHECK(!decode_datagram_limit(Bytes{1, 3, 0, 0, 0xff, 1}));
}

HF_CASE(a_rank_listens_on_a_port) {
  Whereabouts nowhere = whereabouts();
  nowhere.port = 0;
  HF_THROWS(encode(nowhere), std::invalid_argument);
}

HF_TEST_MAIN
