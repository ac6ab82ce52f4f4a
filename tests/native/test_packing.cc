// Packing against a slow oracle that reads the format as its description has it, bit by bit.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "float_formats.h"
#include "kernels/packing.h"
#include "testing/check.h"

namespace {

using namespace holdfast;
using holdfast::testing::on_each_set;
using Bytes = std::vector<std::uint8_t>;

constexpr Format formats[] = {Format::f32, Format::bf16};
constexpr std::uint32_t seed = 20261118;

// Elements of either format in the high bits of a float's.
Bytes elements_of(Format format, const std::vector<std::uint32_t>& float_bits) {
  Bytes bytes;
  for (const std::uint32_t bits : float_bits) {
    for (std::size_t i = 4 - element_bytes(format); i < 4; ++i)
      bytes.push_back(static_cast<std::uint8_t>(bits >> 8 * i));
  }
  return bytes;
}

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

std::vector<std::uint32_t> gradients(std::size_t count, float zero_ratio = 0, float spread = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  std::vector<std::uint32_t> bits;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random) * std::exp2(spread * normal(random));
    bits.push_back(uniform(random) < zero_ratio ? 0 : bits_of(value));
  }
  return bits;
}

std::vector<std::uint32_t> noise(std::size_t count) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> bits(count);
  for (std::uint32_t& word : bits) word = random();
  return bits;
}

Bytes packed(Format format, const Bytes& elements) {
  const std::size_t count = elements.size() / element_bytes(format);
  const kernels::Packed all = kernels::fit_packed(format, elements.data(), count, SIZE_MAX);
  HF_EQUAL(all.num_elements, count);
  Bytes bytes(all.num_bytes);
  HF_EQUAL(kernels::pack(format, bytes.data(), bytes.size(), elements.data(), count), all.num_bytes);
  return bytes;
}

std::optional<Bytes> unpacked(Format format, const Bytes& bytes, std::size_t count) {
  Bytes elements(count * element_bytes(format), 0xee);
  if (!kernels::unpack(format, elements.data(), count, bytes)) return std::nullopt;
  return elements;
}

// packing.h told again: group by group, and of each block one element after the other, bit by bit.
Bytes oracle_unpacked(Format format, const Bytes& bytes, std::size_t count) {
  const std::size_t num_blocks = (count + 15) / 16, num_rest = format == Format::f32 ? 24 : 8;
  std::vector<std::uint32_t> words;
  std::size_t bit_at = 0;
  const auto take = [&](std::size_t num_bits) {
    unsigned value = 0;
    for (std::size_t b = 0; b < num_bits; ++b, ++bit_at) value |= (bytes.at(bit_at / 8) >> bit_at % 8 & 1u) << b;
    return value;
  };
  const int rungs[3][3] = {{0, 1, 2}, {-2, -1, 3}, {-5, -4, -3}};
  for (std::size_t group = 0; group < num_blocks; group += 8) {
    const std::size_t in_group = std::min<std::size_t>(8, num_blocks - group);
    const unsigned zeros = take(8);
    if (zeros == (1u << in_group) - 1) {
      words.insert(words.end(), in_group * 16, 0);
      continue;
    }
    const int base = static_cast<int>(take(8));
    std::vector<std::vector<unsigned>> codes(in_group), exponents(in_group, std::vector<unsigned>(16));
    for (std::size_t block = 0; block < in_group; ++block) {
      if ((zeros >> block & 1) != 0) continue;
      for (int i = 0; i < 16; ++i) codes[block].push_back(take(2));
    }
    for (std::size_t block = 0; block < in_group; ++block) {
      for (int rung = 0; rung < 3; ++rung) {
        for (std::size_t i = 0; i < codes[block].size(); ++i) {
          unsigned& code = codes[block][i];
          if (code == 4) continue;  // told
          if (rung > 0) code = take(2);
          if (code == 3) continue;
          exponents[block][i] = static_cast<std::uint8_t>(base + rungs[rung][code]);
          code = 4;
        }
      }
      for (std::size_t i = 0; i < codes[block].size(); ++i) {
        if (codes[block][i] == 3) exponents[block][i] = take(8);
      }
    }
    bit_at = (bit_at + 7) / 8 * 8;
    for (std::size_t block = 0; block < in_group; ++block) {
      for (std::size_t i = 0; i < 16; ++i) {
        if (codes[block].empty()) {
          words.push_back(0);
          continue;
        }
        const unsigned rest = take(num_rest);
        const unsigned sign = rest >> (num_rest - 1), fraction = rest & ((1u << (num_rest - 1)) - 1);
        words.push_back(sign << 31 | exponents[block][i] << 23 | fraction << (24 - num_rest));
      }
    }
  }
  words.resize(count);
  return elements_of(format, words);
}

}  // namespace

HF_CASE(what_was_packed_comes_back_to_the_bit) {
  on_each_set([] {
    for (const Format format : formats) {
      for (const auto& bits : {gradients(1000), gradients(1000, 0.3f), gradients(1000, 0.95f), gradients(1000, 0, 30),
                               noise(1000), std::vector<std::uint32_t>(100, 0), std::vector<std::uint32_t>(100, ~0u)}) {
        for (const std::size_t count :
             {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{17}, bits.size()}) {
          const Bytes elements = elements_of(format, {bits.begin(), bits.begin() + static_cast<std::ptrdiff_t>(count)});
          const Bytes bytes = packed(format, elements);
          HF_CHECK(unpacked(format, bytes, count) == elements);
          HF_CHECK(oracle_unpacked(format, bytes, count) == elements);
        }
      }
    }
  });
}

HF_CASE(both_paths_write_the_same_bytes) {
  for (const Format format : formats) {
    for (const auto& bits : {gradients(500), gradients(500, 0.5f), gradients(500, 0.1f, 20), noise(500)}) {
      const Bytes elements = elements_of(format, bits);
      std::vector<Bytes> results;
      on_each_set([&] { results.push_back(packed(format, elements)); });
      for (const Bytes& result : results) HF_CHECK(result == results.front());
    }
  }
}

HF_CASE(exponents_may_lie_at_any_distance) {
  on_each_set([] {
    for (const Format format : formats) {
      for (unsigned highest = 0; highest < 256; ++highest) {
        for (unsigned lowest = 0; lowest <= highest; ++lowest) {
          for (const bool with_zero : {false, true}) {
            std::vector<std::uint32_t> bits(16, highest << 23 | 0x00400001);
            bits[3] = 1u << 31 | lowest << 23 | 0x007f0000;
            if (with_zero) bits[11] = 0;
            const Bytes elements = elements_of(format, bits);
            const Bytes bytes = packed(format, elements);
            if (unpacked(format, bytes, 16) != elements) HF_CHECK(false);
          }
        }
      }
    }
  });
}

HF_CASE(special_values_stay_what_they_are) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<std::uint32_t> bits{bits_of(infinity), bits_of(-infinity), 0x7fc00000, 0xffa50000, bits_of(-0.0f)};
  bits.push_back(bits_of(std::numeric_limits<float>::denorm_min()));
  bits.push_back(0x00010000);  // a denormal of bf16, too
  bits.push_back(bits_of(std::numeric_limits<float>::max()));
  bits.push_back(bits_of(1.0f));
  on_each_set([&] {
    for (const Format format : formats) {
      const Bytes elements = elements_of(format, bits);
      HF_CHECK(unpacked(format, packed(format, elements), bits.size()) == elements);
    }
  });
  // Minus zero is no zero: it has a bit.
  HF_EQUAL(packed(Format::f32, elements_of(Format::f32, std::vector<std::uint32_t>(16, 1u << 31))).size(), 2u + 4 + 48);
}

HF_CASE(gradients_take_five_sixths_and_zeros_almost_nothing) {
  const std::size_t count = 16 * 1000;
  const std::vector<std::uint32_t> bell = gradients(count, 0, 0);
  const auto ratio = [&](Format format, const std::vector<std::uint32_t>& bits) {
    const Bytes elements = elements_of(format, bits);
    return static_cast<double>(packed(format, elements).size()) / static_cast<double>(elements.size());
  };
  HF_CHECK(ratio(Format::f32, bell) < 0.84);
  HF_CHECK(ratio(Format::bf16, bell) < 0.68);
  HF_CHECK(ratio(Format::f32, std::vector<std::uint32_t>(count, 0)) < 0.01);
  HF_CHECK(ratio(Format::f32, noise(count)) < 1.2);  // who has noise sends it as it is
  // Units that do not fire: zeros between gradients do not spoil their block.
  HF_CHECK(ratio(Format::f32, gradients(count, 0.2f, 0)) < 0.91);
}

HF_CASE(the_bytes_stand_where_the_format_says) {
  std::vector<std::uint32_t> bits(32, 0);
  const std::uint32_t exponents[] = {128, 129, 130, 129, 129, 129, 129, 129, 129, 129, 129, 126, 131, 125, 123, 136};
  for (std::uint32_t i = 0; i < 16; ++i) bits[16 + i] = (i % 2) << 31 | exponents[i] << 23 | (0x10203 + i);
  on_each_set([&] {
    const Bytes bytes = packed(Format::f32, elements_of(Format::f32, bits));
    HF_EQUAL(bytes.size(), 1u + 1 + 4 + 3 + 48);
    HF_EQUAL(int{bytes[0]}, 1);  // the first block is of zeros
    HF_EQUAL(int{bytes[1]}, 128);
    HF_CHECK(Bytes(bytes.begin() + 2, bytes.begin() + 6) == Bytes({0b01100100, 0b01010101, 0b11010101, 0b11111111}));
    // 126: 0; 131: 2; 125, 123 and 136: 3. Then 2, 0 and 3, and 136.
    HF_CHECK(Bytes(bytes.begin() + 6, bytes.begin() + 9) == Bytes({0b11111000, 0b11001011, 136}));
    HF_CHECK(Bytes(bytes.begin() + 9, bytes.begin() + 15) == Bytes({0x03, 0x02, 0x01, 0x04, 0x02, 0x81}));
  });
}

HF_CASE(as_many_blocks_as_fit_and_not_one_more) {
  on_each_set([] {
    for (const Format format : formats) {
      const Bytes elements = elements_of(format, gradients(1000, 0.2f));
      for (std::size_t room = 0; room < 1500; room += 7) {
        const kernels::Packed fitting = kernels::fit_packed(format, elements.data(), 1000, room);
        HF_CHECK(fitting.num_bytes <= room);
        HF_CHECK(fitting.num_elements % 16 == 0 || fitting.num_elements == 1000);
        if (fitting.num_elements == 1000) continue;
        const std::size_t next = std::min<std::size_t>(1000, fitting.num_elements + 16);
        const kernels::Packed more = kernels::fit_packed(format, elements.data(), next, SIZE_MAX);
        HF_CHECK(more.num_elements == next && more.num_bytes > room);
      }
    }
  });
}

HF_CASE(nothing_is_written_beyond_the_room_when_elements_changed_meanwhile) {
  on_each_set([] {
    for (const Format format : formats) {
      const Bytes even = elements_of(format, std::vector<std::uint32_t>(160, bits_of(1.5f)));
      const Bytes uneven = elements_of(format, gradients(160, 0, 20));
      const std::size_t room = packed(format, even).size();
      Bytes target(room + 100, 0xee);
      HF_EQUAL(kernels::pack(format, target.data(), room, uneven.data(), 160), 0u);
      HF_CHECK(std::all_of(target.begin() + static_cast<std::ptrdiff_t>(room), target.end(),
                           [](std::uint8_t byte) { return byte == 0xee; }));
      HF_EQUAL(kernels::pack(format, target.data(), 3, even.data(), 160), 0u);
      HF_EQUAL(kernels::pack(format, target.data(), room, even.data(), 160), room);
    }
  });
}

HF_CASE(one_exponent_far_from_the_others_costs_nobody_else) {
  std::vector<std::uint32_t> bits(128, 127u << 23 | 1);
  bits[1] = 254u << 23;
  bits[2] = 5;
  on_each_set([&] {
    const Bytes elements = elements_of(Format::f32, bits);
    HF_EQUAL(packed(Format::f32, elements).size(), 2u + 8 * (4 + 48) + 3);  // twice four bits, and eight
    HF_CHECK(unpacked(Format::f32, packed(Format::f32, elements), 128) == elements);
  });
}

HF_CASE(what_cannot_be_so_many_elements_is_refused) {
  on_each_set([] {
    for (const Format format : formats) {
      const Bytes elements = elements_of(format, gradients(40));
      const Bytes good = packed(format, elements);
      for (std::size_t length = 0; length < good.size(); ++length) {
        const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length));
        HF_CHECK(!unpacked(format, cut, 40).has_value());
      }
      Bytes filled = good;
      filled.resize(good.size() + 50);
      HF_CHECK(unpacked(format, filled, 40) == elements);
      filled.back() = 1;
      HF_CHECK(!unpacked(format, filled, 40).has_value());
      Bytes odd = good;
      odd[0] |= 0x08;  // three blocks: the fourth bit belongs to nobody
      HF_CHECK(!unpacked(format, odd, 40).has_value());
    }
  });
}

HF_CASE(what_is_to_be_refused_is_refused_at_every_length) {
  on_each_set([] {
    for (const Format format : formats) {
      for (const std::size_t count : {1u, 16u, 100u, 128u, 129u, 1024u, 20'000u, 65'520u}) {
        for (std::size_t length = 1; length < std::min<std::size_t>(count * element_bytes(format), 3000); ++length) {
          Bytes bytes(length);
          kernels::fill_refused(bytes, count);
          HF_CHECK(!unpacked(format, bytes, count).has_value());
        }
      }
    }
  });
}

HF_CASE(bits_after_the_last_of_a_group_are_none) {
  std::vector<std::uint32_t> bits(16, 127u << 23 | 1);
  bits[1] = 130u << 23;
  on_each_set([&] {
    Bytes bytes = packed(Format::f32, elements_of(Format::f32, bits));
    HF_EQUAL(bytes.size(), 2u + 4 + 1 + 48);
    for (int bit = 2; bit < 8; ++bit) {
      Bytes changed = bytes;
      changed[6] ^= static_cast<std::uint8_t>(1u << bit);
      HF_CHECK(!unpacked(Format::f32, changed, 16).has_value());
    }
  });
}

HF_TEST_MAIN
