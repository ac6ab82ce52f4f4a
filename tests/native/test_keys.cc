// Who can read and forge what: keys per process, direction, epoch and phase, and nonces that never repeat.
#include <algorithm>
#include <set>
#include <string>

#include "core/keys.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

using Bytes = std::vector<std::uint8_t>;

JobKey job_key(std::uint8_t first = 1) {
  JobKey key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(first + i);
  return key;
}

ProcessId process(std::uint8_t value) {
  ProcessId id{};
  id.fill(value);
  return id;
}

Direction direction() { return {7, 0, 1, process(0xaa), process(0xcc)}; }

std::string hex(std::span<const std::uint8_t> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text.push_back(digits[byte >> 4]);
    text.push_back(digits[byte & 15]);
  }
  return text;
}

struct Datagram {
  Header header;
  Bytes octets;
  Bytes payload;
  std::array<std::uint8_t, tag_bytes> tag{};
};

const Bytes message{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};

Datagram sealed(Sealer& sealer, std::uint64_t transmission, Protection protection = Protection::encrypted,
                const Bytes& payload = message) {
  Datagram datagram;
  datagram.header.transmission = transmission;
  datagram.header.key_phase = sealer.next_phase();
  datagram.octets.resize(header_bytes);
  encode(datagram.header, std::span<std::uint8_t, header_bytes>(datagram.octets.data(), header_bytes));
  datagram.payload.resize(payload.size());
  sealer.seal(transmission, datagram.octets, payload, datagram.payload.data(), datagram.tag);
  if (protection == Protection::authenticated) datagram.payload = payload;
  return datagram;
}

std::string opened(Opener& opener, Datagram datagram) {
  const auto drop = opener.open(datagram.header, datagram.octets, datagram.payload, datagram.tag);
  if (drop) return name(*drop);
  return datagram.payload == message ? "opened" : "opened to something else";
}

}  // namespace

HF_CASE(derived_keys_are_what_every_release_derived) {
  // Computed with Python's hmac after RFC 5869, not with this code:
  // salt "holdfast wire 1", info "traffic" | u32 epoch | u16 sender | u16 receiver | process | process | u32 phase.
  HF_EQUAL(hex(derive_key(job_key(), direction(), 0)), "176a93adf616913b890d81451177e492");
  HF_EQUAL(hex(derive_key(job_key(), direction(), 1)), "4c683b9b5e2814656402d3923c8cad33");
  HF_EQUAL(hex(key_fingerprint(job_key())), "88b40289ccffdabf4103eaec162164d2");
}

HF_CASE(sealing_is_aes_128_gcm_with_the_number_as_nonce) {
  // Computed with Python's cryptography, not with this code, from the key above, nonce 0..0 | u64 5, and the header as
  // extra data: version 10, a ping, and the number 5 in six bytes.
  Sealer sealer(job_key(), direction(), Protection::encrypted, 100);
  const Datagram datagram = sealed(sealer, 5);
  HF_EQUAL(hex(datagram.payload), "0d6591f20eb5c6397d5f22a85f8359c25f");
  HF_EQUAL(hex(datagram.tag), "71987443c57eca6d8ff833d6ae4709c4");
}

HF_CASE(every_part_of_the_direction_and_the_phase_changes_the_key) {
  std::set<TrafficKey> keys;
  keys.insert(derive_key(job_key(), direction(), 0));
  keys.insert(derive_key(job_key(2), direction(), 0));
  keys.insert(derive_key(job_key(), direction(), 1));
  Direction other = direction();
  other.epoch = 8;
  keys.insert(derive_key(job_key(), other, 0));
  other = direction();
  other.sender = 2;
  keys.insert(derive_key(job_key(), other, 0));
  other = direction();
  other.receiver = 2;
  keys.insert(derive_key(job_key(), other, 0));
  other = direction();
  std::swap(other.sender, other.receiver);
  keys.insert(derive_key(job_key(), other, 0));
  other = direction();
  other.sending_process[15] ^= 1;
  keys.insert(derive_key(job_key(), other, 0));
  other = direction();
  other.receiving_process[0] ^= 1;
  keys.insert(derive_key(job_key(), other, 0));
  HF_EQUAL(keys.size(), 9u);
}

HF_CASE(fingerprints_tell_job_keys_apart_and_are_no_traffic_key) {
  HF_CHECK(key_fingerprint(job_key()) == key_fingerprint(job_key()));
  HF_CHECK(key_fingerprint(job_key()) != key_fingerprint(job_key(2)));
  HF_CHECK(key_fingerprint(job_key()) != derive_key(job_key(), Direction{}, 0));
}

HF_CASE(random_bytes_differ) {
  ProcessId left{}, right{};
  fill_random(left);
  fill_random(right);
  HF_CHECK(left != right);
  HF_CHECK(left != ProcessId{});
}

HF_CASE(what_is_sealed_opens_and_is_not_readable_before) {
  Sealer sealer(job_key(), direction(), Protection::encrypted, 100);
  Opener opener(job_key(), direction(), Protection::encrypted);
  const Datagram datagram = sealed(sealer, 3);
  HF_CHECK(datagram.payload != message);
  HF_EQUAL(opened(opener, datagram), "opened");
}

HF_CASE(an_empty_payload_is_authenticated_too) {
  Sealer sealer(job_key(), direction(), Protection::encrypted, 100);
  Opener opener(job_key(), direction(), Protection::encrypted);
  Datagram datagram = sealed(sealer, 3, Protection::encrypted, {});
  HF_CHECK(!opener.open(datagram.header, datagram.octets, datagram.payload, datagram.tag));
  datagram.octets[24] ^= 1;
  HF_CHECK(opener.open(datagram.header, datagram.octets, datagram.payload, datagram.tag) == Drop::authentication);
}

HF_CASE(any_flipped_bit_is_detected) {
  for (const Protection protection : {Protection::encrypted, Protection::authenticated}) {
    Sealer sealer(job_key(), direction(), protection, 100);
    Opener opener(job_key(), direction(), protection);
    const Datagram good = sealed(sealer, 3, protection);
    for (std::size_t bit = 0; bit < 8 * tag_bytes; ++bit) {
      Datagram bad = good;
      bad.tag[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
      HF_EQUAL(opened(opener, bad), "authentication");
    }
    for (std::size_t bit = 0; bit < 8 * message.size(); ++bit) {
      Datagram bad = good;
      bad.payload[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
      HF_EQUAL(opened(opener, bad), "authentication");
    }
    for (std::size_t bit = 0; bit < 8 * header_bytes; ++bit) {
      Datagram bad = good;
      bad.octets[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
      HF_EQUAL(opened(opener, bad), "authentication");
    }
    HF_EQUAL(opened(opener, good), "opened");
  }
}

HF_CASE(authenticated_only_leaves_the_payload_readable) {
  Sealer sealer(job_key(), direction(), Protection::authenticated, 100);
  Opener opener(job_key(), direction(), Protection::authenticated);
  const Datagram datagram = sealed(sealer, 9, Protection::authenticated);
  HF_CHECK(datagram.payload == message);
  HF_EQUAL(opened(opener, datagram), "opened");
}

HF_CASE(the_modes_do_not_open_each_other) {
  Sealer authenticated(job_key(), direction(), Protection::authenticated, 100);
  Opener encrypted(job_key(), direction(), Protection::encrypted);
  HF_EQUAL(opened(encrypted, sealed(authenticated, 1, Protection::authenticated)), "authentication");
}

HF_CASE(another_process_epoch_direction_number_or_job_key_does_not_open) {
  Sealer sealer(job_key(), direction(), Protection::encrypted, 100);
  const Datagram datagram = sealed(sealer, 3);
  const auto opened_by = [&](const JobKey& key, const Direction& other) {
    Opener opener(key, other, Protection::encrypted);
    return opened(opener, datagram);
  };
  HF_EQUAL(opened_by(job_key(), direction()), "opened");
  HF_EQUAL(opened_by(job_key(2), direction()), "authentication");
  Direction other = direction();
  other.sending_process = process(0xab);
  HF_EQUAL(opened_by(job_key(), other), "authentication");
  other = direction();
  other.receiving_process = process(0xab);  // the receiver has restarted: what it was sent before is not played back
  HF_EQUAL(opened_by(job_key(), other), "authentication");
  other = direction();
  other.epoch = 6;
  HF_EQUAL(opened_by(job_key(), other), "authentication");
  other = direction();
  std::swap(other.sender, other.receiver);
  HF_EQUAL(opened_by(job_key(), other), "authentication");
  Opener opener(job_key(), direction(), Protection::encrypted);
  Datagram renumbered = datagram;
  renumbered.header.transmission = 4;
  HF_EQUAL(opened(opener, renumbered), "authentication");
}

HF_CASE(a_key_seals_its_share_and_then_the_next_one_takes_over_in_flight) {
  Sealer sealer(job_key(), direction(), Protection::encrypted, 3);
  Opener opener(job_key(), direction(), Protection::encrypted);
  std::vector<int> phases;
  for (std::uint64_t number = 0; number < 10; ++number) {
    const Datagram datagram = sealed(sealer, number);
    phases.push_back(datagram.header.key_phase);
    HF_EQUAL(opened(opener, datagram), "opened");
  }
  HF_CHECK((phases == std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3}));
  HF_EQUAL(sealer.phase(), 3u);
  HF_EQUAL(opener.phase(), 3u);
}

HF_CASE(the_previous_phase_still_opens_and_the_one_before_does_not) {
  Sealer sealer(job_key(), direction(), Protection::encrypted, 1);
  Opener opener(job_key(), direction(), Protection::encrypted);
  std::vector<Datagram> by_phase;
  for (std::uint64_t number = 0; number < 5; ++number) by_phase.push_back(sealed(sealer, number));
  HF_EQUAL(opened(opener, by_phase[2]), "key_phase");  // two ahead: not yet
  HF_EQUAL(opened(opener, by_phase[1]), "opened");
  HF_EQUAL(opened(opener, by_phase[2]), "opened");
  HF_EQUAL(opened(opener, by_phase[1]), "opened");  // overtaken in flight
  HF_EQUAL(opener.phase(), 2u);
  HF_EQUAL(opened(opener, by_phase[0]), "key_phase");
  HF_EQUAL(opened(opener, by_phase[4]), "key_phase");
  HF_EQUAL(opened(opener, by_phase[3]), "opened");
  HF_EQUAL(opened(opener, by_phase[1]), "key_phase");
}

HF_CASE(phase_zero_has_no_predecessor) {
  Sealer sealer(job_key(), direction(), Protection::encrypted, 100);
  Opener opener(job_key(), direction(), Protection::encrypted);
  Datagram datagram = sealed(sealer, 1);
  datagram.header.key_phase = 0xff;
  HF_EQUAL(opened(opener, datagram), "key_phase");
}

HF_CASE(a_forged_next_phase_does_not_advance_the_key) {
  Sealer sealer(job_key(), direction(), Protection::encrypted, 5000);
  Opener opener(job_key(), direction(), Protection::encrypted);
  for (std::uint64_t number = 0; number < 1000; ++number) {
    Datagram forged = sealed(sealer, number);
    forged.header.key_phase = static_cast<std::uint8_t>(number % 99 == 0 ? 1 : number);
    if (forged.header.key_phase == 0) continue;
    HF_CHECK(opened(opener, forged) != "opened");
  }
  HF_EQUAL(opener.phase(), 0u);
}

HF_CASE(phases_go_round_past_255) {
  Sealer sealer(job_key(), direction(), Protection::encrypted, 1);
  Opener opener(job_key(), direction(), Protection::encrypted);
  Datagram first = sealed(sealer, 0);
  HF_EQUAL(opened(opener, first), "opened");
  for (std::uint64_t number = 1; number < 600; ++number) HF_EQUAL(opened(opener, sealed(sealer, number)), "opened");
  HF_EQUAL(opener.phase(), 599u);
  // 599 = 2 * 256 + 87: an old datagram whose eight bits fit again has another key behind them.
  first.header.key_phase = 87;
  HF_EQUAL(opened(opener, first), "authentication");
}

HF_CASE(insecure_links_never_change_phase) {
  Sealer sealer(job_key(), direction(), Protection::insecure, 1);
  for (int i = 0; i < 5; ++i) HF_EQUAL(int{sealer.next_phase()}, 0);
  HF_EQUAL(tag_bytes_of(Protection::insecure), 0u);
  HF_EQUAL(tag_bytes_of(Protection::authenticated), 16u);
}

// A restarted rank begins again at transmission 0 in the same job, epoch and rank: only its random id is new.
HF_CASE(a_restarted_process_never_repeats_a_key_and_nonce_pair) {
  std::set<std::pair<TrafficKey, std::uint64_t>> used;
  std::size_t num_sealed = 0;
  for (int restart = 0; restart < 5; ++restart) {
    ProcessId fresh{};
    fill_random(fresh);
    for (const auto& [sender, receiver] : {std::pair{0, 1}, std::pair{0, 2}}) {
      const Direction path{7, static_cast<std::uint16_t>(sender), static_cast<std::uint16_t>(receiver), fresh};
      Sealer sealer(job_key(), path, Protection::encrypted, 10);
      for (std::uint64_t number = 0; number < 100; ++number) {
        const std::uint8_t wire_phase = sealer.next_phase();
        HF_EQUAL(std::uint32_t{wire_phase}, sealer.phase());
        Datagram datagram = sealed(sealer, number);
        // The pair is what the sealer really used: the key of its phase opens what it sealed.
        used.insert({derive_key(job_key(), path, sealer.phase()), datagram.header.transmission});
        ++num_sealed;
      }
      HF_EQUAL(sealer.phase(), 9u);
    }
  }
  HF_EQUAL(num_sealed, 1000u);
  HF_EQUAL(used.size(), 1000u);
}

HF_CASE(the_same_bytes_sealed_by_a_restarted_process_look_unrelated) {
  Direction after = direction();
  after.sending_process = process(0xbb);
  Sealer before_restart(job_key(), direction(), Protection::encrypted, 100);
  Sealer after_restart(job_key(), after, Protection::encrypted, 100);
  const Datagram left = sealed(before_restart, 0);
  const Datagram right = sealed(after_restart, 0);
  HF_CHECK(left.payload != right.payload);
  HF_CHECK(left.tag != right.tag);
}

HF_CASE(a_moved_sealer_goes_on_where_it_was) {
  Sealer first(job_key(), direction(), Protection::encrypted, 2);
  Opener opener(job_key(), direction(), Protection::encrypted);
  HF_EQUAL(opened(opener, sealed(first, 0)), "opened");
  Sealer second(std::move(first));
  Opener moved(std::move(opener));
  HF_EQUAL(opened(moved, sealed(second, 1)), "opened");
  HF_EQUAL(opened(moved, sealed(second, 2)), "opened");
  HF_EQUAL(moved.phase(), 1u);
}

HF_TEST_MAIN
