// One row of function pointers per instruction set, private to this folder: dispatch.cc picks the row.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/hadamard_layout.h"
#include "kernels/kernels.h"
#include "kernels/packing_group.h"
#include "kernels/random_bits.h"

namespace holdfast::kernels {

constexpr std::size_t num_formats = 5;
constexpr std::size_t index(Format format) { return static_cast<std::size_t>(format); }

// Indexed by Format; the entries of Format::bytes stay null because such messages have no arithmetic.
struct Table {
  using Accumulate = void (*)(void* accumulator, const void* source, std::size_t count);
  using Combine = void (*)(void* out, const void* own, double own_scale, const void* accumulator,
                           double accumulator_scale, std::size_t count);
  using Cast = void (*)(void* target, const void* source, std::size_t count);
  using NarrowStochastic = std::size_t (*)(void* target, const void* source, std::size_t count, RandomKey key);
  using NarrowWithResidual = std::size_t (*)(void* target, const void* source, void* residual, std::size_t count);

  std::array<Accumulate, num_formats> store{};
  std::array<Accumulate, num_formats> add{};
  std::array<Combine, num_formats> combine{};
  std::array<std::array<Cast, num_formats>, num_formats> cast{};  // [target][source]
  // The 16-bit formats only.
  std::array<NarrowStochastic, num_formats> narrow_stochastic{};
  std::array<NarrowWithResidual, num_formats> narrow_with_residual{};
  void (*transform_tile)(const HadamardTile& tile) = nullptr;  // float32 only
  std::array<const BlockKernels*, num_formats> blocks{};       // of what can be packed
};

// Fills a table from a family of kernels: `Family` has a static member template for every row.
template <class Family>
constexpr Table make_table() {
  Table table;
  const auto fill = [&table]<Format F>() {
    table.store[index(F)] = Family::template store<F>;
    table.add[index(F)] = Family::template add<F>;
    table.combine[index(F)] = Family::template combine<F>;
    table.cast[index(F)][index(Format::f32)] = Family::template cast<F, Format::f32>;
    table.cast[index(F)][index(Format::f64)] = Family::template cast<F, Format::f64>;
    table.cast[index(F)][index(Format::bf16)] = Family::template cast<F, Format::bf16>;
    table.cast[index(F)][index(Format::f16)] = Family::template cast<F, Format::f16>;
  };
  fill.template operator()<Format::f32>();
  fill.template operator()<Format::f64>();
  fill.template operator()<Format::bf16>();
  fill.template operator()<Format::f16>();
  const auto fill_narrow = [&table]<Format F>() {
    table.narrow_stochastic[index(F)] = Family::template narrow_stochastic<F>;
    table.narrow_with_residual[index(F)] = Family::template narrow_with_residual<F>;
  };
  fill_narrow.template operator()<Format::bf16>();
  fill_narrow.template operator()<Format::f16>();
  table.blocks[index(Format::f32)] = &Family::f32_blocks;
  table.blocks[index(Format::bf16)] = &Family::bf16_blocks;
  table.transform_tile = Family::transform_tile;
  return table;
}

extern const Table portable_table;
#if defined(__x86_64__)
extern const Table avx2_table;
// Its blocks are portable: for processors that gather and scatter bits slowly, or cannot.
extern const Table avx2_table_of_portable_blocks;
#endif

const Table& active_table();

}  // namespace holdfast::kernels
