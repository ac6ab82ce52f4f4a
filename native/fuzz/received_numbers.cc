// The replay window and the ranges to acknowledge, beside a set that remembers everything.
#include "core/received_numbers.h"

#include <algorithm>
#include <set>

#include "fuzz/check.h"
#include "fuzz/input.h"

using namespace holdfast;

namespace {

constexpr int max_steps = 2000;

// Near the newest, far ahead of it, or anywhere at all.
std::uint64_t number_near(fuzz::Input& input, std::uint64_t newest) {
  switch (input.below(6)) {
    case 0: return newest + 1;
    case 1: return newest + input.below(70);
    case 2: return newest - std::min<std::uint64_t>(newest, input.below(70));
    case 3: return newest - std::min<std::uint64_t>(newest, input.between(8100, 8300));
    case 4: return newest + input.between(8100, 8300);
    default: return input.take<std::uint64_t>() & max_transmission;
  }
}

void check_window(fuzz::Input& input) {
  ReplayWindow window;
  std::set<std::uint64_t> marked;
  for (int step = 0; step < max_steps && !input.empty(); ++step) {
    const std::uint64_t newest = marked.empty() ? 0 : *marked.rbegin();
    const std::uint64_t number = number_near(input, newest);
    const auto verdict = window.check(number);
    const bool too_old = !marked.empty() && number + ReplayWindow::size <= newest;
    if (too_old) {
      FUZZ_CHECK(verdict == ReplayWindow::Verdict::too_old);
      continue;
    }
    const bool seen = marked.contains(number);
    FUZZ_CHECK(verdict == (seen ? ReplayWindow::Verdict::replayed : ReplayWindow::Verdict::fresh));
    window.mark(number);
    marked.insert(number);
    FUZZ_CHECK(window.check(number) == ReplayWindow::Verdict::replayed);
  }
}

std::vector<AckRange> ranges_of(const std::set<std::uint64_t>& numbers) {
  std::vector<AckRange> ranges;
  for (const std::uint64_t number : numbers) {
    if (!ranges.empty() && ranges.back().last + 1 == number) {
      ranges.back().last = number;
    } else {
      ranges.push_back({number, number});
    }
  }
  return ranges;
}

void check_ranges(fuzz::Input& input) {
  const std::size_t cap = input.between(1, 8);
  NumberRanges ranges(cap);
  std::set<std::uint64_t> kept;
  for (int step = 0; step < max_steps && !input.empty(); ++step) {
    const std::uint64_t number = input.below(120);
    if (input.rarely()) {
      ranges.forget_below(number);
      kept.erase(kept.begin(), kept.lower_bound(number));
    } else {
      FUZZ_CHECK(ranges.insert(number) == kept.insert(number).second);
    }
    std::vector<AckRange> expected = ranges_of(kept);
    if (expected.size() > cap) {  // the oldest range is forgotten
      kept.erase(kept.begin(), kept.upper_bound(expected.front().last));
      expected.erase(expected.begin());
    }
    FUZZ_CHECK(std::ranges::equal(ranges.ranges(), expected));
    FUZZ_CHECK(ranges.contains(number) == kept.contains(number));
    const std::size_t most = input.below(10);
    std::vector<AckRange> newest = ranges.newest_first(most);
    FUZZ_CHECK(newest.size() == std::min(most, expected.size()));
    std::ranges::reverse(newest);
    FUZZ_CHECK(std::equal(newest.rbegin(), newest.rend(), expected.rbegin()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  input.flag() ? check_window(input) : check_ranges(input);
  return 0;
}
