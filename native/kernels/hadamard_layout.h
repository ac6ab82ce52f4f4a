// Which elements of an array make up which block.
//
// A tile is a matrix with a block in each of its 16 columns and 1,024 rows. A row is one cache line, so that a column
// of vectors is transformed without moving anything between lanes. Eight rows are a piece. The pieces of all tiles are
// dealt out along the array like cards, in rounds: one of every tile, then the next of every tile, and so on. A packet
// of 350 elements therefore holds at most eight coefficients of each of 48 to 64 blocks, and a rank's whole shard holds
// the same share of every block.
//
// What is left at the end, less than a tile, is cut into powers of two, the largest first: tiles with 8, 4, 2 and 1
// columns, then single blocks of 512 elements down to 1.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/random_bits.h"

namespace holdfast::kernels {

// 1,024: the smallest block of the range that was measured, and the fastest (decision 0018).
constexpr std::size_t hadamard_rows = 1024;
constexpr std::size_t hadamard_columns = 16;
constexpr std::size_t tile_elements = hadamard_rows * hadamard_columns;
constexpr std::size_t piece_rows = 8;
constexpr std::size_t piece_elements = piece_rows * hadamard_columns;
constexpr std::size_t pieces_per_tile = hadamard_rows / piece_rows;

// Where the pieces of whole tiles are.
class Dealing {
 public:
  explicit Dealing(std::size_t count)
      : num_tiles_(count / tile_elements), shift_(num_tiles_ > 2 && num_tiles_ % 2 == 0 ? 1 : 0) {}

  std::size_t num_tiles() const { return num_tiles_; }
  std::size_t num_elements() const { return num_tiles_ * tile_elements; }

  // The place, counted in pieces, of a tile's piece. Piece q = 4 g + c is dealt in round 32 c + g, and with an even
  // number of tiles each round begins with the tile after the one that began the round before. Both are for the cache:
  // pieces 4 apart are transformed together, and would push each other out if they lay powers of two apart.
  std::size_t place_of(std::size_t tile, std::size_t piece) const {
    const std::size_t round = piece % 4 * 32 + piece / 4;
    return round * num_tiles_ + (tile + num_tiles_ - round * shift_ % num_tiles_) % num_tiles_;
  }
  std::size_t tile_at(std::size_t place) const {
    return (place % num_tiles_ + place / num_tiles_ * shift_) % num_tiles_;
  }

 private:
  std::size_t num_tiles_;
  std::size_t shift_;
};

// A contiguous remainder of a power of two: `columns` blocks, element j of block c at j * columns + c.
struct TailTile {
  std::size_t begin, size, columns;
  std::size_t rows() const { return size / columns; }
};

template <class Visit>
void for_each_tail_tile(std::size_t count, Visit visit) {
  for (std::size_t begin = count - count % tile_elements; begin < count;) {
    const std::size_t size = std::bit_floor(count - begin);
    visit(TailTile{begin, size, std::max<std::size_t>(1, size / hadamard_rows)});
    begin += size;
  }
}

// Encoding and decoding are one transform; they differ in the end at which the signs stand.
enum class Direction : std::uint8_t { encode, decode };

// One tile of an array, to be transformed in place.
struct HadamardTile {
  float* values;  // of the whole array
  const Dealing& dealing;
  std::size_t number;
  RandomKey key;
  Direction direction;
  const float* column_scale;  // sixteen factors, one for each block
};

// Unlike any seed of stochastic rounding (rank * 2^48 and a count), so that signs and rounding share no random bits.
constexpr RandomKey sign_key(std::uint64_t seed) { return key_of(seed ^ 0xb5ad4eceda1ce2a9); }

// 32 rows of a column draw their signs from one hash, the first row from its highest bit.
constexpr std::size_t rows_per_hash = 32;
constexpr std::size_t elements_per_hash_row = rows_per_hash * hadamard_columns;

// Multiplies by random signs. `index` is that of the first value, in the order of tiles, their rows and columns.
inline void flip_signs(float* values, std::size_t size, RandomKey key, std::size_t index) {
  for (const std::size_t end = index + size; index < end;) {
    const std::size_t group = index / elements_per_hash_row;
    std::uint32_t words[hadamard_columns];
    for (std::size_t column = 0; column < hadamard_columns; ++column) {
      words[column] = hash(key, static_cast<std::uint32_t>(group * hadamard_columns + column));
    }
    for (const std::size_t stop = std::min(end, (group + 1) * elements_per_hash_row); index < stop; ++index, ++values) {
      const std::uint32_t word = words[index % hadamard_columns];
      const std::uint32_t sign = word << (index / hadamard_columns % rows_per_hash) & 0x80000000u;
      *values = std::bit_cast<float>(std::bit_cast<std::uint32_t>(*values) ^ sign);
    }
  }
}

// The unnormalised transform of every column of a matrix, in Sylvester's order; the shortest distance first.
inline void walsh_hadamard(float* values, std::size_t columns, std::size_t size) {
  for (std::size_t distance = columns; distance < size; distance *= 2) {
    for (std::size_t first = 0; first < size; first += 2 * distance) {
      float *upper = values + first, *lower = upper + distance;
      for (std::size_t i = 0; i < distance; ++i) {
        const float sum = upper[i] + lower[i], difference = upper[i] - lower[i];
        upper[i] = sum;
        lower[i] = difference;
      }
    }
  }
}

void transform_tile_portable(const HadamardTile& tile);
#if defined(__x86_64__)
void transform_tile_avx2(const HadamardTile& tile);
#endif

}  // namespace holdfast::kernels
