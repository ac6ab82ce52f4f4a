// The Hadamard transform against a slow oracle that follows its definition: blocks, signs and matrix, one by one.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "float_formats.h"
#include "kernels/hadamard.h"
#include "kernels/hadamard_layout.h"
#include "kernels/kernels.h"
#include "testing/check.h"

namespace {

namespace kernels = holdfast::kernels;
using holdfast::testing::on_each_set;
using kernels::ElementRange;
using kernels::InstructionSet;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr std::uint64_t seed = 20261117;
constexpr std::size_t tile = 16 * 1024;

Floats some_values(std::size_t count, std::uint64_t values_seed = seed) {
  std::mt19937_64 random(values_seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Floats encoded(Floats values, std::uint64_t signs_seed = seed) {
  kernels::hadamard_encode(values.data(), values.size(), signs_seed);
  return values;
}

Floats decoded(Floats values, std::uint64_t signs_seed = seed, const float* block_scale = nullptr) {
  kernels::hadamard_decode(values.data(), values.size(), signs_seed, block_scale);
  return values;
}

// The elements of every block in order, told again from the description in hadamard_layout.h rather than by its code.
std::vector<std::vector<std::size_t>> blocks_of(std::size_t count) {
  std::vector<std::vector<std::size_t>> blocks;
  const std::size_t num_tiles = count / tile;
  for (std::size_t t = 0; t < num_tiles; ++t) {
    for (std::size_t column = 0; column < 16; ++column) {
      auto& block = blocks.emplace_back();
      for (std::size_t row = 0; row < 1024; ++row) {
        const std::size_t piece = row / 8, round = piece % 4 * 32 + piece / 4;
        const std::size_t first = num_tiles > 2 && num_tiles % 2 == 0 ? round : 0;  // the tile that begins this round
        const std::size_t turn = (t + 128 * num_tiles - first) % num_tiles;
        block.push_back((round * num_tiles + turn) * 128 + row % 8 * 16 + column);
      }
    }
  }
  std::size_t begin = num_tiles * tile;
  for (std::size_t size = tile / 2; size > 0; size /= 2) {
    if ((count & size) == 0) continue;
    const std::size_t columns = size <= 1024 ? 1 : size / 1024;
    for (std::size_t column = 0; column < columns; ++column) {
      auto& block = blocks.emplace_back();
      for (std::size_t at = column; at < size; at += columns) block.push_back(begin + at);
    }
    begin += size;
  }
  return blocks;
}

// Signs are not a formula that is worth telling twice: they are read off the transform itself. The first coefficient
// of a block is the plain sum of its signed elements.
Doubles signs_of(std::size_t count, std::uint64_t signs_seed) {
  Doubles signs(count);
  for (const auto& block : blocks_of(count)) {
    const std::size_t step = block.size() > 64 ? 37 : 1;  // not all of a long block: too slow
    for (std::size_t j = 0; j < block.size(); j += step) {
      Floats unit(count);
      unit[block[j]] = 1;
      signs[block[j]] = encoded(unit, signs_seed)[block[0]] > 0 ? 1 : -1;
    }
  }
  return signs;
}

// H[i][j] is -1 to the number of ones in i & j.
double hadamard_sign(std::size_t i, std::size_t j) { return std::popcount(i & j) % 2 == 0 ? 1 : -1; }

// Coefficient i of the block, from the definition. `signs` must be known for all of it.
double coefficient(const Floats& values, const std::vector<std::size_t>& block, const Doubles& signs, std::size_t i) {
  double sum = 0;
  for (std::size_t j = 0; j < block.size(); ++j) sum += hadamard_sign(i, j) * signs[block[j]] * values[block[j]];
  return sum / std::sqrt(static_cast<double>(block.size()));
}

// All signs at once: the transform of all signs' elements is orthogonal, so decoding the unit coefficient 0 of every
// block gives the signs themselves, over the root of the block.
Doubles all_signs(std::size_t count, std::uint64_t signs_seed) {
  Floats first_coefficients(count);
  for (const auto& block : blocks_of(count)) first_coefficients[block[0]] = 1;
  const Floats rows = decoded(first_coefficients, signs_seed);
  Doubles signs(count);
  for (std::size_t i = 0; i < count; ++i) signs[i] = rows[i] > 0 ? 1 : -1;
  return signs;
}

const std::vector<std::size_t> awkward = {tile - 1, tile,         tile + 1,     tile + 1023,      2 * tile,
                                          65'537,   3 * tile + 5, 5 * tile - 7, 2 * tile + 12'345};

}  // namespace

HF_CASE(the_vector_of_figure_9) {
  on_each_set([] {
    const Doubles key = {1, -1, 1, 1, -1, 1, -1, 1};
    std::uint64_t figures_seed = 0;
    while (figures_seed < 100'000 && all_signs(8, figures_seed) != key) ++figures_seed;
    HF_CHECK(signs_of(8, figures_seed) == key);
    const Floats sent = encoded({1, 1.5f, 2, 2.5f, 3, 3.5f, 4, 4.5f}, figures_seed);
    const Doubles unnormalised = {5, -13, -5, 5, 3, 17, -5, 1};
    for (std::size_t i = 0; i < 8; ++i) HF_CHECK(std::abs(sent[i] * std::sqrt(8.0) - unnormalised[i]) < 1e-5);
    Floats arrived = sent;
    arrived[7] = 0;
    const Doubles in_the_figure = {.875, 1.375, 2.125, 2.375, 2.875, 3.375, 4.125, 4.625};
    const Floats seen = decoded(arrived, figures_seed);
    for (std::size_t i = 0; i < 8; ++i) HF_CHECK(std::abs(seen[i] - in_the_figure[i]) < 1e-6);
    // The paper leaves it at that; here what is left of a block stands for all of it.
    const ElementRange lost{7, 8};
    HF_CHECK(kernels::hadamard_decode_partial(arrived.data(), 8, figures_seed, {&lost, 1}).empty());
    for (std::size_t i = 0; i < 8; ++i) HF_CHECK(std::abs(arrived[i] - in_the_figure[i] * 8 / 7) < 1e-6);
  });
}

HF_CASE(every_short_length_is_what_the_definition_says) {
  on_each_set([] {
    for (std::size_t count = 1; count <= 5000; count += count < 300 ? 1 : 61) {
      const Floats values = some_values(count, count), sent = encoded(values);
      const Doubles signs = all_signs(count, seed);
      std::size_t covered = 0;
      for (const auto& block : blocks_of(count)) {
        covered += block.size();
        const std::size_t step = block.size() > 64 ? 53 : 1;
        for (std::size_t i = 0; i < block.size(); i += step) {
          HF_CHECK(std::abs(sent[block[i]] - coefficient(values, block, signs, i)) < 1e-4);
        }
      }
      HF_EQUAL(covered, count);
    }
  });
}

HF_CASE(whole_tiles_are_what_the_definition_says) {
  on_each_set([] {
    for (const std::size_t count : awkward) {
      const Floats values = some_values(count, count), sent = encoded(values);
      const Doubles signs = all_signs(count, seed);
      const auto blocks = blocks_of(count);
      std::vector<bool> seen(count);
      std::size_t number = 0;
      for (const auto& block : blocks) {
        for (const std::size_t at : block) {
          HF_CHECK(!seen[at]);
          seen[at] = true;
        }
        for (const std::size_t i : {number % block.size(), block.size() / 2, block.size() - 1}) {
          HF_CHECK(std::abs(sent[block[i]] - coefficient(values, block, signs, i)) < 1e-4);
        }
        number += 97;
      }
      HF_CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
      HF_EQUAL(kernels::num_hadamard_blocks(count), blocks.size());
    }
  });
}

HF_CASE(signs_read_off_one_by_one_are_those_read_off_at_once) {
  const std::size_t count = 2 * tile + 700;
  const Doubles some = signs_of(count, 5), all = all_signs(count, 5);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    HF_CHECK(some[i] == 0 || some[i] == all[i]);
    sum += all[i];
  }
  HF_CHECK(std::abs(sum) < 4 * std::sqrt(static_cast<double>(count)));
  HF_CHECK(all_signs(count, 6) != all);
}

HF_CASE(both_sets_agree_bit_for_bit) {
  for (const std::size_t count : awkward) {
    const Floats values = some_values(count);
    std::vector<float> scale = some_values(kernels::num_hadamard_blocks(count));
    kernels::use_instruction_set(InstructionSet::portable);
    const Floats sent = encoded(values), back = decoded(sent, seed, scale.data());
    kernels::use_instruction_set(kernels::best_instruction_set());
    HF_CHECK(std::memcmp(encoded(values).data(), sent.data(), count * 4) == 0);
    HF_CHECK(std::memcmp(decoded(sent, seed, scale.data()).data(), back.data(), count * 4) == 0);
  }
}

HF_CASE(what_is_decoded_is_what_was_encoded_and_length_is_kept) {
  on_each_set([] {
    std::vector<std::size_t> counts = awkward;
    for (std::size_t count = 0; count < 140; ++count) counts.push_back(count);
    for (const std::size_t count : counts) {
      const Floats values = some_values(count), sent = encoded(values), back = decoded(sent);
      double error = 0, before = 0, after = 0;
      for (std::size_t i = 0; i < count; ++i) {
        error = std::max(error, std::abs(static_cast<double>(back[i]) - values[i]));
        before += static_cast<double>(values[i]) * values[i];
        after += static_cast<double>(sent[i]) * sent[i];
      }
      HF_CHECK(error < 3e-6);
      HF_CHECK(std::abs(before - after) <= 1e-5 * before);
      if (count > 1000) HF_CHECK(decoded(sent, seed + 1) != back);
    }
  });
}

HF_CASE(one_packet_takes_a_little_of_many_blocks) {
  constexpr std::size_t packet = 350, count = 100 * tile;
  std::mt19937_64 random(seed);
  for (int draw = 0; draw < 200; ++draw) {
    const std::size_t begin = random() % (count - packet);
    const ElementRange lost{begin, begin + packet};
    const auto missing = kernels::missing_of_blocks(count, {&lost, 1});
    const auto num_hit = std::count_if(missing.begin(), missing.end(), [](auto number) { return number > 0; });
    HF_CHECK(num_hit >= 48);
    HF_CHECK(*std::max_element(missing.begin(), missing.end()) <= 8);
  }
}

HF_CASE(a_whole_shard_takes_the_same_share_of_every_block) {
  for (const std::size_t num_tiles : {4u, 31u, 32u, 64u, 101u}) {
    const std::size_t count = num_tiles * tile;
    for (std::size_t rank = 0; rank < 5; ++rank) {
      const ElementRange shard{rank * count / 5, (rank + 1) * count / 5};
      for (const auto number : kernels::missing_of_blocks(count, {&shard, 1})) {
        HF_CHECK(std::abs(static_cast<double>(number) - 1024 / 5.0) <= 16);
      }
    }
  }
}

HF_CASE(missing_coefficients_are_counted_as_one_by_one) {
  std::mt19937_64 random(seed);
  for (const std::size_t count : {std::size_t{1}, std::size_t{777}, 5 * tile - 7, 4 * tile}) {
    std::vector<ElementRange> missing;
    for (std::size_t at = random() % 500; at < count;) {
      const std::size_t end = std::min<std::size_t>(count, at + random() % 900);
      missing.push_back({at, end});
      at = end + random() % 3000;
    }
    const auto counted = kernels::missing_of_blocks(count, missing);
    const auto blocks = blocks_of(count);
    HF_EQUAL(counted.size(), blocks.size());
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      const auto is_missing = [&](std::size_t at) {
        return std::any_of(missing.begin(), missing.end(),
                           [&](const ElementRange& range) { return range.begin <= at && at < range.end; });
      };
      HF_EQUAL(counted[block], std::count_if(blocks[block].begin(), blocks[block].end(), is_missing));
    }
  }
}

HF_CASE(a_block_of_which_nothing_arrived_is_zero_and_named) {
  on_each_set([] {
    // The last 21 elements are blocks of 16, 4 and 1; all but the first row of every tile is gone as well.
    const std::size_t count = 2 * tile + 21;
    Floats arrived = encoded(some_values(count));
    std::vector<ElementRange> missing = {{2 * tile + 3, count}};
    const auto gone = kernels::hadamard_decode_partial(arrived.data(), count, seed, missing);
    HF_CHECK((gone == std::vector<ElementRange>{{2 * tile + 16, count}}));
    for (std::size_t i = 2 * tile + 16; i < count; ++i) HF_EQUAL(arrived[i], 0.0f);

    Floats nothing(count);
    missing = {{0, count}};
    const auto all = kernels::hadamard_decode_partial(nothing.data(), count, seed, missing);
    HF_CHECK((all == std::vector<ElementRange>{{0, count}}));

    // Columns 3 to 5 of the only tile.
    Floats columns = encoded(some_values(tile));
    missing.clear();
    for (std::size_t row = 0; row < 1024; ++row) {
      missing.push_back({row * 16 + 3, row * 16 + 6});
      std::fill_n(columns.begin() + static_cast<std::ptrdiff_t>(row) * 16 + 3, 3, 0.0f);
    }
    HF_CHECK(kernels::hadamard_decode_partial(columns.data(), tile, seed, missing) == missing);
    for (std::size_t i = 0; i < tile; ++i) HF_EQUAL(columns[i] == 0, i % 16 >= 3 && i % 16 < 6);
  });
}

// Nothing is known of other ranks' gradients when a bucket is encoded. So one rule for all: what is not finite makes
// all of its block so, and nothing else.
HF_CASE(nan_and_inf_fill_their_block_and_no_other) {
  on_each_set([] {
    for (const std::size_t count : {std::size_t{9}, std::size_t{1500}, 2 * tile + 100}) {
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        Floats values = some_values(count);
        const std::size_t at = count / 3;
        values[at] = bad;
        const Floats sent = encoded(values), back = decoded(sent);
        for (const auto& block : blocks_of(count)) {
          const bool hit = std::find(block.begin(), block.end(), at) != block.end();
          for (const std::size_t i : block) {
            HF_EQUAL(std::isfinite(sent[i]), !hit);
            HF_EQUAL(std::isfinite(back[i]), !hit);
          }
        }
      }
    }
  });
}

// Not a check: HOLDFAST_KERNEL_SPEED=1 compares with memcpy of the same array, alternating, medians.
HF_CASE(throughput) {
  if (std::getenv("HOLDFAST_KERNEL_SPEED") == nullptr) return;
  const auto seconds = [](const auto& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto median = [](Doubles times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e3;
  };
  on_each_set([&] {
    for (const std::size_t count : {std::size_t{1} << 24, std::size_t{25} << 18, (std::size_t{1} << 18) + 12'345}) {
      const Floats given = some_values(count);
      const std::unique_ptr<float[], decltype(&std::free)> memory(
          static_cast<float*>(std::aligned_alloc(64, (count * 4 / 64 + 1) * 64)),
          &std::free);  // as torch's tensors are
      const std::span<float> values(memory.get(), count);
      std::copy(given.begin(), given.end(), values.begin());
      Floats copy(count);
      Doubles copying, encoding, decoding;
      for (int round = 0; round < 21; ++round) {
        copying.push_back(seconds([&] { std::memcpy(copy.data(), values.data(), count * 4); }));
        encoding.push_back(seconds([&] { kernels::hadamard_encode(values.data(), count, seed); }));
        decoding.push_back(seconds([&] { kernels::hadamard_decode(values.data(), count, seed, nullptr); }));
      }
      std::printf("%-8s %9zu elements: memcpy %.2f ms, encode %.2f ms (%.2f of its speed), decode %.2f ms (%.2f)\n",
                  kernels::name(kernels::instruction_set()), count, median(copying), median(encoding),
                  median(copying) / median(encoding), median(decoding), median(copying) / median(decoding));
    }
  });
}

HF_TEST_MAIN
