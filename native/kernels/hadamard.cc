#include "kernels/hadamard.h"

#include <array>
#include <cassert>
#include <cstring>

#include "kernels/hadamard_layout.h"
#include "kernels/table.h"

namespace holdfast::kernels {
namespace {

float norm_of(std::size_t rows) { return static_cast<float>(1 / std::sqrt(static_cast<double>(rows))); }

void transform_tail_tile(float* values, const TailTile& tile, RandomKey key, Direction direction, const float* scale) {
  float* const rows = values + tile.begin;
  const float norm = norm_of(tile.rows());
  for (std::size_t i = 0; i < tile.size; ++i) rows[i] *= scale == nullptr ? norm : norm * scale[i % tile.columns];
  if (direction == Direction::encode) flip_signs(rows, tile.size, key, tile.begin);
  walsh_hadamard(rows, tile.columns, tile.size);
  if (direction == Direction::decode) flip_signs(rows, tile.size, key, tile.begin);
}

void transform(float* values, std::size_t count, std::uint64_t seed, Direction direction, const float* block_scale) {
  const Dealing dealing(count);
  const RandomKey key = sign_key(seed);
  const float* scale = block_scale;
  std::array<float, hadamard_columns> column_scale;
  for (std::size_t tile = 0; tile < dealing.num_tiles(); ++tile) {
    for (std::size_t column = 0; column < hadamard_columns; ++column) {
      column_scale[column] = norm_of(hadamard_rows) * (scale == nullptr ? 1 : scale[column]);
    }
    active_table().transform_tile({values, dealing, tile, key, direction, column_scale.data()});
    if (scale != nullptr) scale += hadamard_columns;
  }
  for_each_tail_tile(count, [&](const TailTile& tile) {
    transform_tail_tile(values, tile, key, direction, scale);
    if (scale != nullptr) scale += tile.columns;
  });
}

// Grows the last range where the next one touches it.
void append(std::vector<ElementRange>& ranges, std::size_t begin, std::size_t end) {
  if (!ranges.empty() && ranges.back().end == begin) {
    ranges.back().end = end;
  } else {
    ranges.push_back({begin, end});
  }
}

// The elements of blocks that are marked as lost, ascending.
std::vector<ElementRange> elements_of(const std::vector<bool>& lost, std::size_t count) {
  std::vector<ElementRange> ranges;
  const Dealing dealing(count);
  for (std::size_t place = 0; place < dealing.num_tiles() * pieces_per_tile; ++place) {
    const std::size_t first_block = dealing.tile_at(place) * hadamard_columns;
    for (std::size_t i = 0; i < piece_elements; ++i) {
      const std::size_t at = place * piece_elements + i;
      if (lost[first_block + i % hadamard_columns]) append(ranges, at, at + 1);
    }
  }
  std::size_t block = dealing.num_tiles() * hadamard_columns;
  for_each_tail_tile(count, [&](const TailTile& tile) {
    for (std::size_t i = 0; i < tile.size; ++i) {
      if (lost[block + i % tile.columns]) append(ranges, tile.begin + i, tile.begin + i + 1);
    }
    block += tile.columns;
  });
  return ranges;
}

}  // namespace

void transform_tile_portable(const HadamardTile& tile) {
  std::array<float, tile_elements> rows;
  const std::size_t first_index = tile.number * tile_elements;
  const auto piece_at = [&](std::size_t piece) {
    return tile.values + tile.dealing.place_of(tile.number, piece) * piece_elements;
  };
  for (std::size_t piece = 0; piece < pieces_per_tile; ++piece) {
    const float* const from = piece_at(piece);
    float* const to = rows.data() + piece * piece_elements;
    for (std::size_t i = 0; i < piece_elements; ++i) to[i] = from[i] * tile.column_scale[i % hadamard_columns];
  }
  if (tile.direction == Direction::encode) flip_signs(rows.data(), tile_elements, tile.key, first_index);
  walsh_hadamard(rows.data(), hadamard_columns, tile_elements);
  if (tile.direction == Direction::decode) flip_signs(rows.data(), tile_elements, tile.key, first_index);
  for (std::size_t piece = 0; piece < pieces_per_tile; ++piece) {
    std::memcpy(piece_at(piece), rows.data() + piece * piece_elements, piece_elements * sizeof(float));
  }
}

std::size_t num_hadamard_blocks(std::size_t count) {
  std::size_t num_blocks = Dealing(count).num_tiles() * hadamard_columns;
  for_each_tail_tile(count, [&](const TailTile& tile) { num_blocks += tile.columns; });
  return num_blocks;
}

void hadamard_encode(float* values, std::size_t count, std::uint64_t seed) {
  transform(values, count, seed, Direction::encode, nullptr);
}

void hadamard_decode(float* values, std::size_t count, std::uint64_t seed, const float* block_scale) {
  transform(values, count, seed, Direction::decode, block_scale);
}

std::vector<std::uint32_t> missing_of_blocks(std::size_t count, std::span<const ElementRange> missing) {
  std::vector<std::uint32_t> of_block(num_hadamard_blocks(count));
  const Dealing dealing(count);
  const auto within = [](const ElementRange& range, std::size_t begin, std::size_t end) {
    return ElementRange{std::max(range.begin, begin), std::min(range.end, end)};
  };
  for (const ElementRange& range : missing) {
    assert(range.begin <= range.end && range.end <= count);
    for (std::size_t at = range.begin; at < std::min(range.end, dealing.num_elements());) {
      const std::size_t place = at / piece_elements;
      const auto part = within(range, place * piece_elements, (place + 1) * piece_elements);
      std::uint32_t* const counts = of_block.data() + dealing.tile_at(place) * hadamard_columns;
      for (std::size_t i = part.begin; i < part.end; ++i) ++counts[i % hadamard_columns];
      at = part.end;
    }
    std::size_t block = dealing.num_tiles() * hadamard_columns;
    for_each_tail_tile(count, [&](const TailTile& tile) {
      const auto part = within(range, tile.begin, tile.begin + tile.size);
      for (std::size_t i = part.begin; i < part.end; ++i) ++of_block[block + (i - tile.begin) % tile.columns];
      block += tile.columns;
    });
  }
  return of_block;
}

std::vector<ElementRange> hadamard_decode_partial(float* values, std::size_t count, std::uint64_t seed,
                                                  std::span<const ElementRange> missing) {
  if (missing.empty()) {
    hadamard_decode(values, count, seed, nullptr);
    return {};
  }
  const std::vector<std::uint32_t> missing_of = missing_of_blocks(count, missing);
  std::vector<float> scale(missing_of.size());
  std::vector<bool> lost(missing_of.size());
  bool any_lost = false;
  const auto judge = [&](std::size_t block, std::size_t rows) {
    const std::size_t received = rows - missing_of[block];
    lost[block] = received == 0;
    any_lost = any_lost || lost[block];
    scale[block] = received == 0 ? 0 : static_cast<float>(static_cast<double>(rows) / static_cast<double>(received));
  };
  std::size_t block = 0;
  while (block < Dealing(count).num_tiles() * hadamard_columns) judge(block++, hadamard_rows);
  for_each_tail_tile(count, [&](const TailTile& tile) {
    for (std::size_t column = 0; column < tile.columns; ++column) judge(block++, tile.rows());
  });
  hadamard_decode(values, count, seed, scale.data());
  return any_lost ? elements_of(lost, count) : std::vector<ElementRange>{};
}

}  // namespace holdfast::kernels
