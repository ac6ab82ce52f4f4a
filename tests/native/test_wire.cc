// The wire format: what a header says survives the trip, and what contradicts itself is refused by name.
#include <algorithm>
#include <random>
#include <string>

#include "core/byte_order.h"
#include "core/wire.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

using Bytes = std::vector<std::uint8_t>;

std::string verdict(std::optional<Drop> drop) { return drop ? name(*drop) : "accepted"; }

Bytes encoded(const Header& header) {
  Bytes bytes(header_bytes);
  encode(header, std::span<std::uint8_t, header_bytes>(bytes.data(), header_bytes));
  return bytes;
}

std::string decoded(const Bytes& bytes, std::size_t payload_bytes) {
  Header header;
  return verdict(decode(bytes, payload_bytes, header));
}

std::string decoded(const Header& header, std::size_t payload_bytes) { return decoded(encoded(header), payload_bytes); }

Header contribution() {
  Header header;
  header.type = PacketType::data;
  header.stage = Stage::contribution;
  header.format = Format::f32;
  header.total = 1000;
  header.offset = 640;
  return header;
}

Header of_type(PacketType type, Stage stage, Format format) {
  Header header = contribution();
  header.type = type;
  header.stage = stage;
  header.format = format;
  return header;
}

Ack ack_of(std::vector<AckRange> ranges) {
  Ack ack;
  ack.delay = 250 * microsecond;
  ack.arrived_at = 4'000'000'070;
  ack.receive_window = 123'456;
  ack.ranges = std::move(ranges);
  return ack;
}

// `count` single numbers, each with one missing number below it.
std::vector<AckRange> every_second_number(std::size_t count) {
  std::vector<AckRange> ranges;
  for (std::size_t i = 0; i < count; ++i) ranges.push_back({1000 - 2 * i, 1000 - 2 * i});
  return ranges;
}

}  // namespace

HF_CASE(every_field_survives_the_trip) {
  Header sent;
  sent.type = PacketType::data;
  sent.flags = flag::last_percentile | flag::ack_now | flag::sum;
  sent.division = 6;
  sent.encoded = true;
  sent.key_phase = 0xfe;
  sent.job = 0x01020304;
  sent.epoch = 0x05060708;
  sent.sender = 0x090a;
  sent.credit = 11;
  sent.stage = Stage::result;
  sent.format = Format::bf16;
  sent.transmission = 0x010203040506;
  sent.operation = 0xfffffffe;
  sent.layout = 0x21222324;
  sent.total = 0xffffffff;
  sent.offset = 0xfffffff0;
  sent.completion_us = 0x31323334;
  sent.missing = 0x41424344;
  Header got;
  HF_EQUAL(verdict(decode(encoded(sent), 30, got)), "accepted");
  HF_CHECK(got.type == sent.type && got.stage == sent.stage && got.format == sent.format);
  HF_EQUAL(int{got.flags}, 13);
  HF_EQUAL(int{got.division}, 6);
  HF_CHECK(got.encoded);
  HF_EQUAL(int{got.key_phase}, 0xfe);
  HF_EQUAL(got.job, sent.job);
  HF_EQUAL(got.epoch, sent.epoch);
  HF_EQUAL(got.sender, sent.sender);
  HF_EQUAL(int{got.credit}, 11);
  HF_EQUAL(got.transmission, sent.transmission);
  HF_EQUAL(got.operation, sent.operation);
  HF_EQUAL(got.layout, sent.layout);
  HF_EQUAL(got.total, sent.total);
  HF_EQUAL(got.offset, sent.offset);
  HF_EQUAL(got.completion_us, sent.completion_us);
  HF_EQUAL(got.missing, sent.missing);
}

HF_CASE(the_bytes_stand_where_the_format_says) {
  Header header = contribution();
  header.flags = flag::exact;
  header.key_phase = 7;
  header.job = 0xa1a2a3a4;
  header.epoch = 0xb1b2b3b4;
  header.sender = 0xc1c2;
  header.credit = 9;
  header.transmission = 0xd1d2d3d4d5d6;
  const Bytes bytes = encoded(header);
  const Bytes start{wire_version, 1,    2,    7,    0xa1, 0xa2, 0xa3, 0xa4, 0xb1,
                    0xb2,         0xb3, 0xb4, 0xc1, 0xc2, 9,    0x11, 0xd1, 0xd2};
  HF_CHECK(Bytes(bytes.begin(), bytes.begin() + 18) == start);
  HF_EQUAL(load_big_endian<std::uint32_t>(bytes.data() + 32), 1000u);
  HF_EQUAL(load_big_endian<std::uint32_t>(bytes.data() + 36), 640u);
}

HF_CASE(truncated_headers_are_refused_at_every_length) {
  const Bytes whole = encoded(contribution());
  for (std::size_t length = 0; length < header_bytes; ++length) {
    HF_EQUAL(decoded(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)), 0), "truncated");
  }
  HF_EQUAL(decoded(whole, 64), "accepted");
}

HF_CASE(unknown_version_type_stage_format_and_flag_are_refused) {
  const Bytes good = encoded(contribution());
  const auto with = [&](std::size_t at, std::uint8_t value) {
    Bytes changed = good;
    changed[at] = value;
    return decoded(changed, 64);
  };
  HF_EQUAL(with(0, 0), "version");
  HF_EQUAL(with(0, 1), "version");
  HF_EQUAL(with(0, wire_version - 1), "version");
  HF_EQUAL(with(0, wire_version + 1), "version");
  HF_EQUAL(with(1, 0), "malformed");
  HF_EQUAL(with(1, 7), "malformed");  // packed, and nothing that says how many
  HF_EQUAL(with(1, 8), "malformed");
  HF_EQUAL(with(2, 31), "accepted");
  HF_EQUAL(with(15, 0x91), "accepted");   // coefficients
  HF_EQUAL(with(15, 0x51), "malformed");  // a contribution without its receiver's
  HF_EQUAL(with(15, 0x19), "malformed");  // without its owner's
  HF_EQUAL(with(15, 0x15), "malformed");  // format 5
}

HF_CASE(only_what_belongs_to_a_bounded_operation_has_a_division) {
  Header header = contribution();
  header.division = 7;
  HF_EQUAL(decoded(header, 64), "accepted");
  header.stage = Stage::result;
  HF_EQUAL(decoded(header, 64), "accepted");
  header.flags = flag::exact;
  HF_EQUAL(decoded(header, 64), "malformed");
  header.flags = 0;
  header.stage = Stage::note;
  header.format = Format::bytes;
  HF_EQUAL(decoded(header, 64), "malformed");
  Header ping;
  HF_EQUAL(decoded(ping, 0), "accepted");
  ping.division = 1;
  HF_EQUAL(decoded(ping, 0), "malformed");
}

HF_CASE(only_what_belongs_to_a_bounded_operation_is_encoded) {
  Header header = contribution();
  header.encoded = true;
  HF_EQUAL(int{encoded(header)[15]}, 0x91);
  HF_EQUAL(decoded(header, 64), "accepted");
  header.stage = Stage::result;
  HF_EQUAL(decoded(header, 64), "accepted");
  header.flags = flag::exact;
  HF_EQUAL(decoded(header, 64), "malformed");
  header.flags = 0;
  header.stage = Stage::note;
  header.format = Format::bytes;
  HF_EQUAL(decoded(header, 64), "malformed");
  Header ping;
  ping.encoded = true;
  HF_EQUAL(decoded(ping, 0), "malformed");
}

HF_CASE(only_bounded_results_that_lack_something_say_whose_part_is_not_in_them) {
  for (const bool receiver : {true, false}) {
    Header header = contribution();
    header.stage = Stage::result;
    header.missing = 16;
    (receiver ? header.without_receiver : header.without_owner) = true;
    HF_EQUAL(int{encoded(header)[15]}, receiver ? 0x61 : 0x29);
    HF_EQUAL(decoded(header, 64), "accepted");
    header.missing = 0;
    HF_EQUAL(decoded(header, 64), "malformed");
    header.missing = 16;
    header.flags = flag::exact;
    HF_EQUAL(decoded(header, 64), "malformed");
    header.flags = 0;
    header.stage = Stage::contribution;
    HF_EQUAL(decoded(header, 64), "malformed");
    header.stage = Stage::result;
    header.type = PacketType::hole;
    HF_EQUAL(decoded(header, 0), "malformed");
  }
}

HF_CASE(numbers_have_48_bits_and_what_follows_them_is_not_theirs) {
  Header header = contribution();
  header.type = PacketType::packed;
  header.transmission = max_transmission;
  header.packed_elements = 0x0102;
  header.total = 10'000;
  Header got;
  HF_EQUAL(verdict(decode(encoded(header), 64, got)), "accepted");
  HF_EQUAL(got.transmission, max_transmission);
  HF_EQUAL(got.packed_elements, 0x0102);
}

HF_CASE(packed_elements_say_how_many_they_are_and_lie_inside_the_total) {
  Header header = contribution();
  header.type = PacketType::packed;
  header.packed_elements = 360;
  HF_EQUAL(decoded(header, 1), "accepted");
  HF_EQUAL(covered_elements(header, 1), 360u);
  HF_EQUAL(decoded(header, 0), "malformed");
  header.packed_elements = 361;
  HF_EQUAL(decoded(header, 64), "malformed");
  header.packed_elements = 0;
  HF_EQUAL(decoded(header, 64), "malformed");
  header.packed_elements = 16;
  for (const Format format : {Format::f64, Format::f16}) {
    header.format = format;
    HF_EQUAL(decoded(header, 64), "malformed");  // nothing would be gained
  }
  header.format = Format::bf16;
  HF_EQUAL(decoded(header, 63), "accepted");
  header.stage = Stage::result;
  header.missing = 16;
  header.without_receiver = true;
  HF_EQUAL(decoded(header, 63), "accepted");
  header = of_type(PacketType::packed, Stage::note, Format::bytes);
  header.packed_elements = 16;
  HF_EQUAL(decoded(header, 64), "malformed");
}

HF_CASE(only_packed_elements_are_counted_in_the_header) {
  for (const PacketType type : {PacketType::data, PacketType::hole, PacketType::end, PacketType::ping}) {
    Header header = type == PacketType::ping ? Header{} : of_type(type, Stage::result, Format::f32);
    header.missing = type == PacketType::hole ? 16 : 0;
    HF_EQUAL(decoded(header, type == PacketType::data ? 64 : 0), "accepted");
    header.packed_elements = 16;
    HF_EQUAL(decoded(header, type == PacketType::data ? 64 : 0), "malformed");
  }
}

HF_CASE(a_payload_is_whole_elements_inside_the_total) {
  Header header = contribution();
  HF_EQUAL(decoded(header, 4 * 360), "accepted");
  HF_EQUAL(decoded(header, 4 * 361), "malformed");
  HF_EQUAL(decoded(header, 4 * 360 - 1), "truncated");
  HF_EQUAL(decoded(header, 0), "malformed");
  header.offset = 1000;
  HF_EQUAL(decoded(header, 4), "malformed");
  header.offset = 1001;
  HF_EQUAL(decoded(header, 4), "malformed");
  header.offset = 0;
  header.total = 0;
  HF_EQUAL(decoded(header, 0), "malformed");
}

HF_CASE(element_sizes_count_for_every_format) {
  const Format formats[] = {Format::f32, Format::f64, Format::bf16, Format::f16};
  for (const Format format : formats) {
    const std::size_t size = element_bytes(format);
    const Header header = of_type(PacketType::data, Stage::result, format);
    HF_EQUAL(decoded(header, size * 360), "accepted");
    HF_EQUAL(decoded(header, size * 361), "malformed");
    HF_EQUAL(decoded(header, size * 3 - 1), "truncated");
    HF_EQUAL(covered_elements(header, size * 3), 3u);
  }
}

HF_CASE(notes_are_bytes_and_operations_are_not) {
  HF_EQUAL(decoded(of_type(PacketType::data, Stage::note, Format::bytes), 10), "accepted");
  HF_EQUAL(decoded(of_type(PacketType::data, Stage::note, Format::f32), 8), "malformed");
  HF_EQUAL(decoded(of_type(PacketType::data, Stage::contribution, Format::bytes), 8), "malformed");
  HF_EQUAL(decoded(of_type(PacketType::data, Stage::none, Format::f32), 8), "malformed");
  HF_EQUAL(decoded(of_type(PacketType::end, Stage::note, Format::bytes), 0), "malformed");
}

HF_CASE(only_an_empty_note_has_an_empty_packet) {
  Header header = of_type(PacketType::data, Stage::note, Format::bytes);
  HF_EQUAL(decoded(header, 0), "malformed");
  header.total = header.offset = 0;
  HF_EQUAL(decoded(header, 0), "accepted");
  HF_EQUAL(decoded(header, 1), "malformed");
}

HF_CASE(holes_belong_to_results_and_stay_inside_them) {
  Header header = of_type(PacketType::hole, Stage::result, Format::f32);
  header.missing = 360;
  HF_EQUAL(decoded(header, 0), "accepted");
  HF_EQUAL(covered_elements(header, 0), 360u);
  HF_EQUAL(decoded(header, 4), "malformed");
  header.missing = 361;
  HF_EQUAL(decoded(header, 0), "malformed");
  header.missing = 0;
  HF_EQUAL(decoded(header, 0), "malformed");
  header.missing = 1;
  header.stage = Stage::contribution;
  HF_EQUAL(decoded(header, 0), "malformed");
  header.stage = Stage::note;
  header.format = Format::bytes;
  HF_EQUAL(decoded(header, 0), "malformed");
}

HF_CASE(ends_carry_nothing) {
  HF_EQUAL(decoded(of_type(PacketType::end, Stage::contribution, Format::f32), 0), "accepted");
  HF_EQUAL(decoded(of_type(PacketType::end, Stage::result, Format::f64), 0), "accepted");
  HF_EQUAL(decoded(of_type(PacketType::end, Stage::result, Format::f32), 4), "malformed");
}

HF_CASE(acks_have_a_payload_and_pings_and_byes_have_none) {
  Header header;
  header.type = PacketType::ack;
  HF_EQUAL(decoded(header, min_ack_bytes), "accepted");
  HF_EQUAL(decoded(header, 0), "malformed");
  header.type = PacketType::ping;
  HF_EQUAL(decoded(header, 0), "accepted");
  HF_EQUAL(decoded(header, 1), "malformed");
  header.type = PacketType::bye;
  HF_EQUAL(decoded(header, 0), "accepted");
  HF_EQUAL(decoded(header, 1), "malformed");
  header.stage = Stage::note;
  HF_EQUAL(decoded(header, 0), "malformed");
}

HF_CASE(every_drop_has_its_own_name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < num_drops; ++i) names.emplace_back(name(static_cast<Drop>(i)));
  std::sort(names.begin(), names.end());
  HF_CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  HF_CHECK(std::find(names.begin(), names.end(), "unknown") == names.end());
}

HF_CASE(acks_survive_the_trip) {
  const Ack sent = ack_of({{90, 100}, {50, 88}, {7, 7}, {0, 5}});
  const Bytes bytes = encode(sent);
  HF_EQUAL(bytes.size(), 30u + 3 * 8);
  const auto got = decode_ack(bytes);
  HF_CHECK(got.has_value());
  HF_CHECK(got->ranges == sent.ranges);
  HF_EQUAL(got->delay, 250 * microsecond);
  HF_EQUAL(got->arrived_at, 4'000'000'070u);
  HF_EQUAL(got->receive_window, 123'456u);
}

HF_CASE(ack_of_one_long_range_is_one_entry) {
  const auto got = decode_ack(encode(ack_of({{3, 3 + (1ull << 40)}})));
  HF_CHECK(got.has_value());
  HF_EQUAL(got->ranges.size(), 1u);
  HF_EQUAL(got->ranges[0].first, 3u);
  HF_EQUAL(got->ranges[0].last, 3 + (1ull << 40));
}

HF_CASE(ack_delay_is_clamped_to_what_fits) {
  Ack ack = ack_of({{1, 2}});
  ack.delay = -5;
  HF_EQUAL(decode_ack(encode(ack))->delay, 0);
  ack.delay = 5'000'000 * second;
  HF_EQUAL(decode_ack(encode(ack))->delay, Duration{UINT32_MAX} * microsecond);
}

HF_CASE(ack_of_64_ranges_is_read_and_of_65_refused) {
  const Bytes at_cap = encode(ack_of(every_second_number(64)));
  HF_EQUAL(at_cap.size(), max_ack_bytes);
  HF_EQUAL(at_cap.size(), 534u);
  const auto got = decode_ack(at_cap);
  HF_CHECK(got.has_value());
  HF_EQUAL(got->ranges.size(), 64u);
  HF_CHECK(!decode_ack(encode(ack_of(every_second_number(65)))).has_value());
}

HF_CASE(ack_with_wrong_length_is_refused) {
  Bytes bytes = encode(ack_of({{9, 10}, {1, 7}}));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    HF_CHECK(!decode_ack(std::span(bytes).first(length)).has_value());
  }
  bytes.push_back(0);
  HF_CHECK(!decode_ack(bytes).has_value());
}

HF_CASE(ack_that_contradicts_itself_is_refused) {
  const Bytes good = encode(ack_of({{9, 10}, {1, 7}}));
  const auto with_u32 = [&](std::size_t at, std::uint32_t value) {
    Bytes changed = good;
    store_big_endian(changed.data() + at, value);
    return decode_ack(changed).has_value();
  };
  HF_CHECK(with_u32(30, 1));   // the gap as it was
  HF_CHECK(!with_u32(30, 0));  // adjacent ranges are one range
  HF_CHECK(with_u32(30, 2));   // {0, 6}
  HF_CHECK(!with_u32(30, 3));  // below zero
  HF_CHECK(!with_u32(30, 9));
  HF_CHECK(!with_u32(30, UINT32_MAX));
  HF_CHECK(with_u32(34, 7));
  HF_CHECK(!with_u32(34, 8));  // the second range would start below zero
  Bytes longer_than_its_end = good;
  store_big_endian(longer_than_its_end.data() + 22, std::uint64_t{11});
  HF_CHECK(!decode_ack(longer_than_its_end).has_value());
  Bytes none = good;
  store_big_endian(none.data() + 20, std::uint16_t{0});
  HF_CHECK(!decode_ack(none).has_value());
}

HF_CASE(random_bytes_are_never_accepted_inconsistent) {
  std::mt19937_64 random(20'261);
  int accepted = 0;
  for (int round = 0; round < 300'000; ++round) {
    Bytes bytes(header_bytes);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    // Near the truth, or nothing would ever get past the first checks.
    bytes[0] = wire_version;
    bytes[1] = static_cast<std::uint8_t>(random() % 8);
    bytes[2] &= random() % 8 == 0 ? 0x1f : 0x0f;
    bytes[15] = static_cast<std::uint8_t>((random() % 5) << 4 | random() % 6);
    if (random() % 8 == 0) bytes[15] |= 0x80;
    if (bytes[1] != 7 || random() % 8 == 0) bytes[22] = bytes[23] = 0;
    if (random() % 2 != 0) std::fill(bytes.begin() + 36, bytes.begin() + 39, 0);
    if (random() % 2 != 0) std::fill(bytes.begin() + 44, bytes.begin() + 47, 0);
    const std::size_t payload = random() % 4 == 0 ? 0 : random() % 1500;
    Header header;
    if (decode(bytes, payload, header)) continue;
    ++accepted;
    const bool message =
        carries_elements(header.type) || header.type == PacketType::hole || header.type == PacketType::end;
    HF_CHECK(message == (header.stage != Stage::none));
    if (!message) continue;
    HF_CHECK(std::uint64_t{header.offset} + covered_elements(header, payload) <= header.total);
    HF_CHECK(header.type == PacketType::packed || payload % element_bytes(header.format) == 0);
    HF_CHECK((header.stage == Stage::note) == (header.format == Format::bytes));
    HF_CHECK(encoded(header) == bytes);
  }
  HF_CHECK(accepted > 5'000);
}

HF_CASE(random_acks_are_never_accepted_out_of_order) {
  std::mt19937_64 random(7);
  int accepted = 0;
  for (int round = 0; round < 100'000; ++round) {
    const std::size_t count = 1 + random() % 4;
    Bytes bytes(min_ack_bytes + 8 * (count - 1));
    for (std::uint8_t& byte : bytes) byte = random() % 3 == 0 ? static_cast<std::uint8_t>(random()) : 0;
    store_big_endian(bytes.data() + 20, static_cast<std::uint16_t>(count));
    const auto ack = decode_ack(bytes);
    if (!ack) continue;
    ++accepted;
    HF_EQUAL(ack->ranges.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      HF_CHECK(ack->ranges[i].first <= ack->ranges[i].last);
      if (i > 0) HF_CHECK(ack->ranges[i].last + 1 < ack->ranges[i - 1].first);
    }
    HF_CHECK(encode(*ack) == bytes);
  }
  HF_CHECK(accepted > 1000);
}

HF_TEST_MAIN
