#include "kernels/kernels.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/fingerprint.h"
#include "kernels/hadamard.h"
#include "kernels/packing.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace holdfast;

namespace {

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

void require_float(Format format) {
  if (format == Format::bytes) throw nb::value_error("arithmetic needs a floating-point format");
}

void require_narrow(Format format) {
  if (format != Format::bf16 && format != Format::f16) throw nb::value_error("narrowing is for the 16-bit formats");
}

using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

std::vector<kernels::ElementRange> element_ranges(const Ranges& ranges, std::size_t count) {
  std::vector<kernels::ElementRange> checked;
  std::size_t least = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin < least || end < begin || end > count) throw nb::value_error("ranges ascend, within the array");
    checked.push_back({begin, end});
    least = end;
  }
  return checked;
}

void bind_fingerprints(nb::module_& module) {
  using Piece = std::tuple<std::size_t, std::uintptr_t, std::size_t>;
  module.def(
      "fingerprints",
      [](std::size_t num_blocks, const std::vector<Piece>& pieces) {
        std::vector<std::uint64_t> blocks(num_blocks, 0);
        for (const auto& piece : pieces) {
          if (std::get<0>(piece) >= num_blocks) throw nb::value_error("a piece of a block that does not exist");
        }
        const nb::gil_scoped_release release;
        for (const auto& [block, address, num_bytes] : pieces) {
          blocks[block] = kernels::fingerprint(pointer(address), num_bytes, blocks[block]);
        }
        return blocks;
      },
      "num_blocks"_a, "pieces"_a,
      "Fingerprints of blocks of memory, each made of its pieces (block, address, bytes) in their order.");
}

void bind_hadamard(nb::module_& module) {
  module.def(
      "hadamard_encode",
      [](std::uintptr_t values, std::size_t count, std::uint64_t seed) {
        kernels::hadamard_encode(static_cast<float*>(pointer(values)), count, seed);
      },
      "values"_a, "count"_a, "seed"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Encodes float32 values in place: every block becomes its randomised Hadamard transform, of the same length.");
  module.def(
      "hadamard_decode",
      [](std::uintptr_t values, std::size_t count, std::uint64_t seed, const Ranges& missing) {
        const std::vector<kernels::ElementRange> ranges = element_ranges(missing, count);
        std::vector<kernels::ElementRange> lost;
        {
          const nb::gil_scoped_release release;
          lost = kernels::hadamard_decode_partial(static_cast<float*>(pointer(values)), count, seed, ranges);
        }
        Ranges pairs;
        for (const auto& [begin, end] : lost) pairs.emplace_back(begin, end);
        return pairs;
      },
      "values"_a, "count"_a, "seed"_a, "missing"_a,
      "Decodes in place what was encoded with the same seed. Ranges that are missing hold zeros; what arrived of a "
      "block is scaled to stand for all of it. Returns the ranges of blocks of which nothing arrived: they stay zero.");
}

void require_packable(Format format) {
  if (!kernels::can_pack(format)) throw nb::value_error("f32 and bf16 can be packed");
}

void bind_packing(nb::module_& module) {
  module.def(
      "pack",
      [](Format format, std::uintptr_t source, std::size_t count) {
        require_packable(format);
        std::vector<std::uint8_t> packed;
        {
          const nb::gil_scoped_release release;
          packed.resize(kernels::fit_packed(format, pointer(source), count, SIZE_MAX).num_bytes);
          packed.resize(kernels::pack(format, packed.data(), packed.size(), pointer(source), count));
        }
        return nb::bytes(packed.data(), packed.size());
      },
      "format"_a, "source"_a, "count"_a, "The elements in fewer bytes, without loss.");
  module.def(
      "unpack",
      [](Format format, std::uintptr_t target, std::size_t count, const nb::bytes& packed) {
        require_packable(format);
        const std::span bytes(static_cast<const std::uint8_t*>(packed.data()), packed.size());
        const nb::gil_scoped_release release;
        return kernels::unpack(format, pointer(target), count, bytes);
      },
      "format"_a, "target"_a, "count"_a, "packed"_a,
      "The elements that were packed, into memory that the caller keeps alive. False: these bytes are not so many.");
}

}  // namespace

void bind_kernels(nb::module_& module) {
  nb::enum_<Format>(module, "Format", "How elements are laid out on the wire.")
      .value("bytes", Format::bytes)
      .value("f32", Format::f32)
      .value("f64", Format::f64)
      .value("bf16", Format::bf16)
      .value("f16", Format::f16);
  module.def("element_bytes", &element_bytes, "format"_a);
  module.def(
      "instruction_set", [] { return std::string(kernels::name(kernels::instruction_set())); },
      "The instruction set the kernels use on this machine.");
  module.def(
      "add",
      [](Format format, std::uintptr_t accumulator, std::uintptr_t source, std::size_t count) {
        require_float(format);
        kernels::add(format, pointer(accumulator), pointer(source), count);
      },
      "format"_a, "accumulator"_a, "source"_a, "count"_a, nb::call_guard<nb::gil_scoped_release>(),
      "accumulator[i] += source[i], widened; addresses of memory the caller keeps alive.");
  module.def(
      "cast",
      [](Format target_format, std::uintptr_t target, Format source_format, std::uintptr_t source, std::size_t count) {
        require_float(target_format);
        require_float(source_format);
        kernels::cast(target_format, pointer(target), source_format, pointer(source), count);
      },
      "target_format"_a, "target"_a, "source_format"_a, "source"_a, "count"_a, nb::call_guard<nb::gil_scoped_release>(),
      "target[i] = source[i], converted and rounded to nearest even.");
  module.def(
      "scale",
      [](Format format, std::uintptr_t values, double factor, std::size_t count) {
        require_float(format);
        kernels::scale(format, pointer(values), factor, count);
      },
      "format"_a, "values"_a, "factor"_a, "count"_a, nb::call_guard<nb::gil_scoped_release>(),
      "values[i] *= factor, in place.");
  module.def(
      "narrow_stochastic",
      [](Format format, std::uintptr_t target, std::uintptr_t source, std::size_t count, std::uint64_t seed) {
        require_narrow(format);
        return kernels::narrow_stochastic(format, pointer(target), pointer(source), count, seed);
      },
      "format"_a, "target"_a, "source"_a, "count"_a, "seed"_a, nb::call_guard<nb::gil_scoped_release>(),
      "target[i] = source[i] (float32), rounded up or down at random without bias. Returns how many were clipped.");
  module.def(
      "narrow_with_residual",
      [](Format format, std::uintptr_t target, std::uintptr_t source, std::uintptr_t residual, std::size_t count) {
        require_narrow(format);
        return kernels::narrow_with_residual(format, pointer(target), pointer(source), pointer(residual), count);
      },
      "format"_a, "target"_a, "source"_a, "residual"_a, "count"_a, nb::call_guard<nb::gil_scoped_release>(),
      "target[i] = source[i] + residual[i], rounded to nearest even; residual[i] = what is left over, float32. Returns "
      "how many were clipped.");
  bind_hadamard(module);
  bind_packing(module);
  bind_fingerprints(module);
}
