// Packed elements: any bytes as some, and any elements packed and unpacked, on every instruction set.
#include "kernels/packing.h"

#include <cstring>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/input.h"

using namespace holdfast;

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr kernels::InstructionSet sets[] = {kernels::InstructionSet::portable, kernels::InstructionSet::avx2};

// Refused or not, both paths say the same; what they take comes back from packing it again.
void check_bytes(fuzz::Input& input) {
  const Format format = input.flag() ? Format::f32 : Format::bf16;
  const std::size_t count = 1 + input.below(200);
  const auto rest = input.rest();
  const Bytes packed(rest.begin(), rest.end());
  Bytes elements[2];
  bool taken[2];
  for (const int i : {0, 1}) {
    kernels::use_instruction_set(sets[i]);
    elements[i].assign(count * element_bytes(format), 0xee);
    taken[i] = kernels::unpack(format, elements[i].data(), count, packed);
  }
  FUZZ_CHECK(taken[0] == taken[1]);
  if (!taken[0]) return;
  FUZZ_CHECK(elements[0] == elements[1]);
  Bytes again(kernels::fit_packed(format, elements[0].data(), count, SIZE_MAX).num_bytes);
  FUZZ_CHECK(kernels::pack(format, again.data(), again.size(), elements[0].data(), count) == again.size());
  FUZZ_CHECK(kernels::unpack(format, elements[1].data(), count, again));
  FUZZ_CHECK(elements[0] == elements[1]);
}

void check_elements(fuzz::Input& input) {
  const Format format = input.flag() ? Format::f32 : Format::bf16;
  const std::size_t room = input.below(2000);
  const auto rest = input.rest();
  const Bytes elements(rest.begin(), rest.end());
  const std::size_t count = elements.size() / element_bytes(format);
  kernels::Packed fitting[2];
  Bytes packed[2];
  for (const int i : {0, 1}) {
    kernels::use_instruction_set(sets[i]);
    fitting[i] = kernels::fit_packed(format, elements.data(), count, room);
    FUZZ_CHECK(fitting[i].num_bytes <= room && fitting[i].num_elements <= count);
    packed[i].assign(fitting[i].num_bytes, 0);
    FUZZ_CHECK(kernels::pack(format, packed[i].data(), packed[i].size(), elements.data(), fitting[i].num_elements) ==
               packed[i].size());
    Bytes back(fitting[i].num_elements * element_bytes(format));
    FUZZ_CHECK(kernels::unpack(format, back.data(), fitting[i].num_elements, packed[i]));
    FUZZ_CHECK(back.empty() || std::memcmp(back.data(), elements.data(), back.size()) == 0);
  }
  FUZZ_CHECK(fitting[0] == fitting[1] && packed[0] == packed[1]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  input.flag() ? check_bytes(input) : check_elements(input);
  return 0;
}
