// Chooses the instruction set once, at the first call, and checks what every kernel requires of its caller.
#include <atomic>
#include <cassert>

#include "kernels/kernels.h"
#include "kernels/table.h"

namespace holdfast::kernels {
namespace {

#if defined(__x86_64__)
// `pext` and `pdep`, of which packing takes eight a block: before Zen 3 AMD's processors have them in microcode.
bool gathers_bits_quickly() {
  __builtin_cpu_init();
  const bool in_microcode = __builtin_cpu_is("bdver4") || __builtin_cpu_is("znver1") || __builtin_cpu_is("znver2");
  return __builtin_cpu_supports("bmi2") && !in_microcode;
}
#endif

const Table& table_for([[maybe_unused]] InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx2) return gathers_bits_quickly() ? avx2_table : avx2_table_of_portable_blocks;
#endif
  return portable_table;
}

// Null until the first call. Threads that race here all store the same pointer to constant data.
constinit std::atomic<const Table*> chosen{nullptr};

[[maybe_unused]] constexpr bool has_arithmetic(Format format) { return is_known(format) && format != Format::bytes; }
[[maybe_unused]] constexpr bool is_narrow(Format format) { return format == Format::bf16 || format == Format::f16; }

}  // namespace

const Table& active_table() {
  const Table* table = chosen.load(std::memory_order_relaxed);
  if (table == nullptr) [[unlikely]] {
    table = &table_for(best_instruction_set());
    chosen.store(table, std::memory_order_relaxed);
  }
  return *table;
}

InstructionSet best_instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return InstructionSet::avx2;
#endif
  return InstructionSet::portable;
}

InstructionSet instruction_set() {
  return &active_table() == &portable_table ? InstructionSet::portable : InstructionSet::avx2;
}

void use_instruction_set(InstructionSet set) {
  const bool within_reach = set <= best_instruction_set();
  chosen.store(&table_for(within_reach ? set : best_instruction_set()), std::memory_order_relaxed);
}

const char* name(InstructionSet set) { return set == InstructionSet::avx2 ? "avx2" : "portable"; }

void store(Format format, void* accumulator, const void* source, std::size_t count) {
  assert(has_arithmetic(format));
  active_table().store[index(format)](accumulator, source, count);
}

void add(Format format, void* accumulator, const void* source, std::size_t count) {
  assert(has_arithmetic(format));
  active_table().add[index(format)](accumulator, source, count);
}

void combine(Format format, void* out, const void* own, double own_scale, const void* accumulator,
             double accumulator_scale, std::size_t count) {
  assert(has_arithmetic(format));
  active_table().combine[index(format)](out, own, own_scale, accumulator, accumulator_scale, count);
}

void cast(Format target_format, void* target, Format source_format, const void* source, std::size_t count) {
  assert(has_arithmetic(target_format) && has_arithmetic(source_format));
  active_table().cast[index(target_format)][index(source_format)](target, source, count);
}

void scale(Format format, void* values, double factor, std::size_t count) {
  combine(format, values, values, factor, nullptr, 0.0, count);
}

std::size_t narrow_stochastic(Format format, void* target, const void* source, std::size_t count, std::uint64_t seed,
                              std::size_t first) {
  assert(is_narrow(format) && first % elements_per_hash_vector == 0);
  return active_table().narrow_stochastic[index(format)](target, source, count, advanced(key_of(seed), first));
}

std::size_t narrow_with_residual(Format format, void* target, const void* source, void* residual, std::size_t count) {
  assert(is_narrow(format));
  return active_table().narrow_with_residual[index(format)](target, source, residual, count);
}

}  // namespace holdfast::kernels
