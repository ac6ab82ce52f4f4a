// The sum of a shard against a slow oracle in double: part of the contributions, holes, no own part, every format.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "core/shard_sum.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

constexpr Format formats[] = {Format::f32, Format::f64, Format::bf16, Format::f16};
using Bytes = std::vector<std::uint8_t>;
using Values = std::vector<double>;

// Small integers are exact in every format, so that sums are too.
Values integers(std::uint32_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Values values(count);
  for (double& value : values) value = static_cast<double>(random() % 17) - 8;
  return values;
}

Bytes to_wire(Format format, const Values& values) {
  Bytes bytes(values.size() * element_bytes(format));
  kernels::cast(format, bytes.data(), Format::f64, values.data(), values.size());
  return bytes;
}

Values from_wire(Format format, const std::uint8_t* bytes, std::uint32_t count) {
  Values values(count);
  kernels::cast(Format::f64, values.data(), format, bytes, count);
  return values;
}

struct Case {
  std::uint32_t elements = 100;
  std::uint16_t ranks = 4;
  std::uint16_t owner = 1;
  std::vector<Values> from;                // by rank
  std::vector<std::vector<bool>> arrived;  // by rank and block
};

Case made(std::uint32_t elements, std::uint16_t ranks, std::uint16_t owner, std::uint32_t seed = 1) {
  Case test{elements, ranks, owner, {}, {}};
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    test.from.push_back(integers(elements, seed + rank));
    test.arrived.emplace_back((elements + 15) / 16, true);
  }
  return test;
}

// The rule of the plan, element by element: own/N + (N-1)/N x the mean of the others; without own, their mean.
double oracle(const Case& test, std::uint32_t element, bool has_own, bool average) {
  double others = 0;
  int arrived = 0;
  for (std::uint16_t rank = 0; rank < test.ranks; ++rank) {
    if (rank == test.owner || !test.arrived[rank][element / 16]) continue;
    others += test.from[rank][element];
    ++arrived;
  }
  const double ranks = test.ranks;
  const double scale = average ? 1 : ranks;
  if (arrived == 0) return ranks == 1 ? test.from[test.owner][element] : 0;
  if (!has_own) return scale * others / arrived;
  return scale * (test.from[test.owner][element] / ranks + (ranks - 1) / ranks * others / arrived);
}

// Adds what arrived block by block, senders interleaved, and compares with the oracle.
ShardSum::Result check(const Case& test, Format format, bool has_own, bool average, bool in_rank_order = false) {
  BufferPool pool;
  ShardSum sum(test.elements, format, test.owner, test.ranks, pool);
  if (in_rank_order) sum.sum_in_rank_order();
  const std::size_t size = element_bytes(format);
  for (std::uint32_t begin = 0; begin < test.elements; begin += 16) {
    for (std::uint16_t rank = 0; rank < test.ranks; ++rank) {
      if (rank == test.owner || !test.arrived[rank][begin / 16]) continue;
      const std::uint32_t count = std::min<std::uint32_t>(16, test.elements - begin);
      const Bytes bytes = to_wire(format, test.from[rank]);
      HF_EQUAL(sum.add(rank, begin, count, bytes.data() + begin * size), count);
    }
  }
  const Bytes own = to_wire(format, test.from[test.owner]);
  ShardSum::Result result = sum.finish(has_own ? own.data() : nullptr, average);
  if (test.elements == 0) return result;
  const Values got = from_wire(format, result.elements.get(), test.elements);
  const double relative = format == Format::f64   ? 1e-14
                          : format == Format::f32 ? 1e-6
                          : format == Format::f16 ? 1e-3
                                                  : 8e-3;
  for (std::uint32_t i = 0; i < test.elements; ++i) {
    const double expected = oracle(test, i, has_own, average);
    HF_CHECK(std::abs(got[i] - expected) <= relative * std::max(1.0, std::abs(expected)));
  }
  return result;
}

std::string text(const std::vector<ElementRange>& ranges) {
  std::ostringstream out;
  for (const ElementRange& range : ranges) out << range.begin << "-" << range.end << " ";
  return out.str();
}

std::string text(const std::vector<Gap>& gaps) {
  std::ostringstream out;
  for (const Gap& gap : gaps)
    out << gap.range.begin << "-" << gap.range.end << " lack " << gap.missing_per_element << "; ";
  return out.str();
}

}  // namespace

HF_CASE(everything_arrived_in_every_format_and_odd_sizes) {
  for (const Format format : formats) {
    for (const std::uint32_t elements : {1u, 15u, 16u, 17u, 100u, 1000u}) {
      for (const std::uint16_t ranks : {2, 3, 4, 8}) {
        for (const bool average : {true, false}) {
          const auto result = check(made(elements, ranks, 1), format, true, average);
          HF_EQUAL(text(result.holes), "");
          HF_EQUAL(text(result.gaps), "");
          HF_EQUAL(result.delivered, std::uint64_t{elements} * ranks);
        }
      }
    }
  }
}

HF_CASE(a_mean_over_a_power_of_two_is_exact_to_the_bit) {
  const Case test = made(100, 4, 2);
  for (const Format format : {Format::f32, Format::f64}) {
    const auto result = check(test, format, true, true);
    const Values got = from_wire(format, result.elements.get(), 100);
    for (std::uint32_t i = 0; i < 100; ++i) {
      HF_EQUAL(got[i], (test.from[0][i] + test.from[1][i] + test.from[2][i] + test.from[3][i]) / 4);
    }
  }
}

HF_CASE(a_missing_contribution_is_replaced_by_the_mean_of_the_others_not_by_the_own_part) {
  Case test = made(100, 4, 1);
  test.arrived[3][2] = false;  // elements 32 to 48
  const auto result = check(test, Format::f32, true, true);
  HF_EQUAL(text(result.gaps), "32-48 lack 1; ");
  HF_EQUAL(text(result.holes), "");
  HF_EQUAL(result.delivered, 400u - 16);
  const double got = from_wire(Format::f32, result.elements.get(), 100)[40];
  const double unbiased = test.from[1][40] / 4 + 3.0 / 4 * (test.from[0][40] + test.from[2][40]) / 2;
  HF_CHECK(std::abs(got - unbiased) < 1e-6);
}

HF_CASE(a_block_nobody_else_contributed_to_is_a_hole_of_zeros) {
  Case test = made(40, 3, 0);
  test.arrived[1][1] = test.arrived[2][1] = false;
  test.arrived[2][2] = false;
  const auto result = check(test, Format::f32, true, true);
  HF_EQUAL(text(result.holes), "16-32 ");
  HF_EQUAL(text(result.gaps), "32-40 lack 1; ");
  HF_EQUAL(result.delivered, 3u * 16 + 2 * 8);
  const Values got = from_wire(Format::f32, result.elements.get(), 40);
  for (std::uint32_t i = 16; i < 32; ++i) HF_EQUAL(got[i], 0.0);
}

HF_CASE(nothing_arrived_is_one_hole_even_with_an_own_part) {
  for (const bool has_own : {true, false}) {
    BufferPool pool;
    // Whatever the last user of the memory left must not shine through.
    {
      auto used = pool.take(400);
      std::memset(used.get(), 0xff, 400);
    }
    ShardSum sum(100, Format::f32, 0, 3, pool);
    const Bytes own = to_wire(Format::f32, integers(100, 1));
    const auto result = sum.finish(has_own ? own.data() : nullptr, true);
    HF_EQUAL(text(result.holes), "0-100 ");
    HF_EQUAL(result.delivered, 0u);
    for (const double value : from_wire(Format::f32, result.elements.get(), 100)) HF_EQUAL(value, 0.0);
  }
}

HF_CASE(without_an_own_part_the_result_is_the_mean_of_the_others) {
  for (const Format format : formats) {
    const auto result = check(made(50, 4, 2), format, false, true);
    HF_EQUAL(text(result.gaps), "0-50 lack 1; ");
    HF_EQUAL(result.delivered, 150u);
    check(made(50, 4, 2), format, false, false);
  }
}

HF_CASE(random_loss_agrees_with_the_oracle_and_is_counted_exactly) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto ranks = static_cast<std::uint16_t>(2 + random() % 6);
    Case test = made(1 + random() % 600, ranks, static_cast<std::uint16_t>(random() % ranks), seed);
    for (auto& sender : test.arrived) {
      for (std::size_t block = 0; block < sender.size(); ++block) sender[block] = random() % 3 != 0;
    }
    const bool has_own = random() % 4 != 0;
    const auto result = check(test, formats[random() % 4], has_own, random() % 2 == 0, random() % 2 == 0);
    std::uint64_t delivered = 0;
    std::uint64_t hole_elements = 0;
    for (std::uint32_t i = 0; i < test.elements; ++i) {
      std::uint32_t others = 0;
      for (std::uint16_t rank = 0; rank < ranks; ++rank)
        others += rank != test.owner && test.arrived[rank][i / 16] ? 1 : 0;
      delivered += others == 0 ? 0 : others + (has_own ? 1 : 0);
      hole_elements += others == 0 ? 1 : 0;
    }
    HF_EQUAL(result.delivered, delivered);
    for (const ElementRange& hole : result.holes) hole_elements -= hole.size();
    HF_EQUAL(hole_elements, 0u);
    std::uint64_t lacking = 0;
    for (const Gap& gap : result.gaps) lacking += std::uint64_t{gap.range.size()} * gap.missing_per_element;
    std::uint64_t in_holes = 0;
    for (const ElementRange& hole : result.holes) in_holes += hole.size();
    HF_EQUAL(delivered + lacking + in_holes * ranks, std::uint64_t{test.elements} * ranks);
  }
}

HF_CASE(a_duplicate_is_not_added_twice) {
  BufferPool pool;
  ShardSum sum(48, Format::f32, 0, 2, pool);
  const Bytes ones = to_wire(Format::f32, Values(48, 1.0));
  HF_EQUAL(sum.add(1, 0, 32, ones.data()), 32u);
  HF_EQUAL(sum.add(1, 0, 32, ones.data()), 0u);
  HF_EQUAL(sum.add(1, 16, 32, ones.data()), 16u);  // half of it is new
  HF_CHECK(sum.from(1).complete());
  const auto result = sum.finish(ones.data(), false);
  for (const double value : from_wire(Format::f32, result.elements.get(), 48)) HF_EQUAL(value, 2.0);
}

HF_CASE(payloads_need_no_alignment) {
  BufferPool pool;
  for (const Format format : formats) {
    ShardSum sum(32, format, 0, 2, pool);
    const Bytes aligned = to_wire(format, Values(32, 3.0));
    Bytes shifted(aligned.size() + 1);
    std::copy(aligned.begin(), aligned.end(), shifted.begin() + 1);
    sum.add(1, 0, 32, shifted.data() + 1);
    const auto result = sum.finish(shifted.data() + 1, true);
    for (const double value : from_wire(format, result.elements.get(), 32)) HF_EQUAL(value, 3.0);
  }
}

HF_CASE(in_rank_order_the_bits_do_not_depend_on_arrival) {
  const std::uint32_t elements = 64;
  std::mt19937 random(9);
  std::vector<std::vector<float>> from(5, std::vector<float>(elements));
  for (auto& values : from) {
    for (float& value : values) value = std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 40) - 60);
  }
  const auto summed = [&](std::vector<std::uint16_t> order, bool in_rank_order) {
    BufferPool pool;
    ShardSum sum(elements, Format::f32, 2, 5, pool);
    if (in_rank_order) sum.sum_in_rank_order();
    for (const std::uint16_t rank : order) {
      sum.add(rank, 0, elements, reinterpret_cast<const std::uint8_t*>(from[rank].data()));
    }
    const auto result = sum.finish(reinterpret_cast<const std::uint8_t*>(from[2].data()), true);
    return Bytes(result.elements.get(), result.elements.get() + 4 * elements);
  };
  const Bytes reference = summed({0, 1, 3, 4}, true);
  HF_CHECK(summed({4, 3, 1, 0}, true) == reference);
  HF_CHECK(summed({3, 0, 4, 1}, true) == reference);
  HF_CHECK(summed({0, 1, 3, 4}, false) == reference);
  HF_CHECK(summed({4, 3, 1, 0}, false) != reference);  // or this test could not fail
}

HF_CASE(in_rank_order_everything_else_is_the_same) {
  Case test = made(100, 4, 1);
  test.arrived[0][0] = false;
  test.arrived[0][3] = test.arrived[2][3] = test.arrived[3][3] = false;
  for (const Format format : formats) {
    const auto result = check(test, format, true, true, true);
    HF_EQUAL(text(result.holes), "48-64 ");
    HF_EQUAL(text(result.gaps), "0-16 lack 1; ");
  }
}

HF_CASE(one_rank_alone_gets_its_own_back) {
  for (const Format format : formats) {
    const Case test = made(33, 1, 0);
    const auto result = check(test, format, true, true);
    HF_EQUAL(result.delivered, 33u);
    HF_EQUAL(text(result.holes), "");
    check(test, format, true, false);
  }
}

HF_CASE(an_empty_shard_has_no_memory_and_no_result) {
  const auto result = check(made(0, 3, 0), Format::f32, true, true);
  HF_CHECK(result.elements == nullptr);
  HF_EQUAL(result.delivered, 0u);
}

HF_CASE(memory_is_announced_before_it_is_taken) {
  BufferPool pool;
  ShardSum plain(100, Format::bf16, 0, 4, pool);
  HF_EQUAL(plain.bytes_to_allocate(), 400u);
  ShardSum ordered(100, Format::bf16, 0, 4, pool);
  ordered.sum_in_rank_order();
  HF_EQUAL(ordered.bytes_to_allocate(), 400u + 3 * 200);
  const Bytes bytes(32);
  plain.add(1, 0, 16, bytes.data());
  HF_EQUAL(plain.bytes_to_allocate(), 0u);
  plain.sum_in_rank_order();  // too late: ignored
  plain.add(2, 0, 16, bytes.data());
  HF_EQUAL(ShardSum(3u << 30, Format::f64, 0, 2, pool).bytes_to_allocate(), std::size_t{24} << 30);
}

HF_CASE(sixteen_bit_sums_are_rounded_once) {
  // 256 + 1 + 1 in bf16 (8 bits) stays 256 if rounded at every step; the accumulator keeps 258.
  BufferPool pool;
  ShardSum sum(16, Format::bf16, 0, 3, pool);
  const Bytes large = to_wire(Format::bf16, Values(16, 256.0));
  const Bytes one = to_wire(Format::bf16, Values(16, 1.0));
  sum.add(1, 0, 16, one.data());
  sum.add(2, 0, 16, one.data());
  const auto result = sum.finish(large.data(), false);
  for (const double value : from_wire(Format::bf16, result.elements.get(), 16)) HF_EQUAL(value, 258.0);
}

// -- parts before the rest --------------------------------------------------------------------------------------------

HF_CASE(a_part_is_ready_when_everybody_else_has_contributed_to_all_of_it) {
  BufferPool pool;
  ShardSum sum(40, Format::f32, 1, 3, pool);
  const Bytes ones = to_wire(Format::f32, Values(40, 1));
  HF_CHECK(sum.ready_in({0, 40}).empty());
  sum.add(0, 0, 40, ones.data());
  HF_CHECK(sum.ready_in({0, 40}).empty());
  sum.add(2, 0, 16, ones.data());
  sum.add(2, 32, 8, ones.data());
  HF_EQUAL(text(sum.ready_in({0, 40})), "0-16 32-40 ");  // and the short block at the end
  HF_EQUAL(text(sum.ready_in({16, 40})), "32-40 ");
  sum.finish_part({0, 16}, ones.data(), true);
  HF_EQUAL(text(sum.ready_in({0, 40})), "32-40 ");
  sum.add(2, 16, 16, ones.data());
  HF_EQUAL(text(sum.ready_in({0, 40})), "16-40 ");
}

// Whatever was finished before the rest: the same bits, holes, gaps and share as in one go.
HF_CASE(finished_in_parts_or_in_one_go_is_the_same_to_the_bit) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const Format format = formats[random() % 4];
    const bool in_rank_order = random() % 2 != 0;
    const bool average = random() % 2 != 0;
    Case test = made(1 + random() % 200, static_cast<std::uint16_t>(2 + random() % 4), 1, random());
    for (auto& blocks : test.arrived) {
      for (std::size_t block = 0; block < blocks.size(); ++block) blocks[block] = random() % 4 != 0;
    }
    BufferPool pool;
    ShardSum parts(test.elements, format, test.owner, test.ranks, pool);
    ShardSum whole(test.elements, format, test.owner, test.ranks, pool);
    if (in_rank_order) {
      parts.sum_in_rank_order();
      whole.sum_in_rank_order();
    }
    const std::size_t size = element_bytes(format);
    Bytes finished;
    std::vector<Bytes> from;
    for (std::uint16_t rank = 0; rank < test.ranks; ++rank) {
      Values values(test.elements);
      for (double& value : values) value = static_cast<double>(random()) / 1e9 - 2;
      from.push_back(to_wire(format, values));
    }
    std::vector<std::pair<std::uint16_t, std::uint32_t>> order;
    for (std::uint16_t rank = 0; rank < test.ranks; ++rank) {
      for (std::uint32_t block = 0; block < test.arrived[rank].size(); ++block) {
        if (rank != test.owner && test.arrived[rank][block]) order.emplace_back(rank, block);
      }
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const auto& [rank, block] : order) {
      const std::uint32_t begin = block * 16;
      const std::uint32_t count = std::min<std::uint32_t>(16, test.elements - begin);
      for (ShardSum* sum : {&parts, &whole}) sum->add(rank, begin, count, from[rank].data() + begin * size);
      if (parts.ready_in({begin, begin + count}).empty()) continue;
      parts.finish_part({begin, begin + count}, from[test.owner].data(), average);
      parts.finish_part({begin, begin + count}, from[test.owner].data(), average);  // twice changes nothing
      finished.assign(parts.elements().get() + begin * size, parts.elements().get() + (begin + count) * size);
      HF_EQUAL(parts.add(rank, begin, count, from[rank].data() + begin * size), 0u);  // a repetition neither
      HF_CHECK(std::memcmp(parts.elements().get() + begin * size, finished.data(), finished.size()) == 0);
    }
    const auto in_parts = parts.finish(from[test.owner].data(), average);
    const auto in_one_go = whole.finish(from[test.owner].data(), average);
    HF_CHECK(std::memcmp(in_parts.elements.get(), in_one_go.elements.get(), test.elements * size) == 0);
    HF_EQUAL(text(in_parts.holes), text(in_one_go.holes));
    HF_EQUAL(in_parts.delivered, in_one_go.delivered);
    const auto lacking = [&](const std::vector<Gap>& gaps) {
      std::vector<std::uint32_t> elements(test.elements, 0);
      for (const Gap& gap : gaps) {
        for (std::uint32_t i = gap.range.begin; i < gap.range.end; ++i) elements[i] += gap.missing_per_element;
      }
      return elements;
    };
    HF_CHECK(lacking(in_parts.gaps) == lacking(in_one_go.gaps));
    for (std::size_t i = 1; i < in_parts.gaps.size(); ++i) {
      HF_CHECK(in_parts.gaps[i - 1].range.end <= in_parts.gaps[i].range.begin);  // ascending, as a message needs them
    }
  }
}

HF_CASE(filled_with_zeros_a_sum_shrinks_with_every_loss_and_has_no_holes) {
  BufferPool pool;
  ShardSum sum(48, Format::f32, 0, 4, pool);
  sum.fill_with_zeros();
  const std::vector<float> own(48, 4.0f);
  const std::vector<float> other(16, 8.0f);
  sum.add(1, 0, 16, reinterpret_cast<const std::uint8_t*>(other.data()));
  sum.add(1, 16, 16, reinterpret_cast<const std::uint8_t*>(other.data()));
  sum.add(2, 16, 16, reinterpret_cast<const std::uint8_t*>(other.data()));
  const ShardSum::Result result = sum.finish(reinterpret_cast<const std::uint8_t*>(own.data()), true);
  const Values values = from_wire(Format::f32, result.elements.get(), 48);
  for (std::uint32_t i = 0; i < 48; ++i) HF_EQUAL(values[i], i < 16 ? 3.0 : i < 32 ? 5.0 : 1.0);
  HF_CHECK(result.holes.empty());
  HF_EQUAL(result.delivered, 16u * (2 + 3 + 1));
}

HF_TEST_MAIN
