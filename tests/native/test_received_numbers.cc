// Replays are refused to the bit, and ranges merge into what an ack should say.
#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "core/received_numbers.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

using Verdict = ReplayWindow::Verdict;

std::string ranges_of(const NumberRanges& numbers) {
  std::ostringstream text;
  for (const AckRange& range : numbers.ranges()) text << range.first << "-" << range.last << " ";
  return text.str();
}

NumberRanges filled(std::initializer_list<std::uint64_t> numbers, std::size_t cap = 64) {
  NumberRanges ranges(cap);
  for (const std::uint64_t number : numbers) ranges.insert(number);
  return ranges;
}

}  // namespace

HF_CASE(a_new_window_takes_any_number_and_none_twice) {
  ReplayWindow window;
  HF_CHECK(window.check(0) == Verdict::fresh);
  HF_CHECK(window.check(123'456'789) == Verdict::fresh);
  window.mark(0);
  HF_CHECK(window.check(0) == Verdict::replayed);
  HF_CHECK(window.check(1) == Verdict::fresh);
}

HF_CASE(window_reaches_back_8192_numbers) {
  ReplayWindow window;
  window.mark(8191);
  HF_CHECK(window.check(0) == Verdict::fresh);  // 8,191 behind
  window.mark(8192);
  HF_CHECK(window.check(0) == Verdict::too_old);  // 8,192 behind
  HF_CHECK(window.check(1) == Verdict::fresh);
  window.mark(1);
  HF_CHECK(window.check(1) == Verdict::replayed);
  window.mark(8193);
  HF_CHECK(window.check(1) == Verdict::too_old);
  HF_CHECK(window.check(2) == Verdict::fresh);
}

HF_CASE(jumps_of_8191_8192_and_8193_forget_exactly_what_they_pass) {
  for (const std::uint64_t jump : {8191u, 8192u, 8193u}) {
    ReplayWindow window;
    for (std::uint64_t number = 0; number < 100; ++number) window.mark(number);
    const std::uint64_t top = 99 + jump;
    window.mark(top);
    HF_CHECK(window.check(top) == Verdict::replayed);
    HF_CHECK(window.check(99) == (jump < 8192 ? Verdict::replayed : Verdict::too_old));
    HF_CHECK(window.check(98) == Verdict::too_old);
    // Nothing between was received, whatever the bits said a lap ago.
    for (std::uint64_t number = std::max<std::uint64_t>(100, top - 8191); number < top; ++number) {
      HF_CHECK(window.check(number) == Verdict::fresh);
    }
  }
}

HF_CASE(a_huge_jump_clears_the_window) {
  ReplayWindow window;
  for (std::uint64_t number = 0; number < 8192; ++number) window.mark(number);
  window.mark(1ull << 40);
  HF_CHECK(window.check((1ull << 40) - 8191) == Verdict::fresh);
  HF_CHECK(window.check((1ull << 40) - 8192) == Verdict::too_old);
  HF_CHECK(window.check(8191) == Verdict::too_old);
}

HF_CASE(window_agrees_with_a_set_under_disorder) {
  std::mt19937_64 random(3);
  ReplayWindow window;
  std::set<std::uint64_t> seen;
  std::uint64_t top = 0;
  for (int round = 0; round < 200'000; ++round) {
    const std::uint64_t back = random() % (random() % 50 == 0 ? 9000 : 200);
    const std::uint64_t ahead = random() % (random() % 500 == 0 ? 9000 : 3);
    const std::uint64_t number = random() % 2 == 0 ? top + ahead : top - std::min(top, back);
    const Verdict expected = number > top || seen.empty() ? Verdict::fresh
                             : top - number >= 8192       ? Verdict::too_old
                             : seen.contains(number)      ? Verdict::replayed
                                                          : Verdict::fresh;
    HF_CHECK(window.check(number) == expected);
    if (expected != Verdict::fresh) continue;
    window.mark(number);
    seen.insert(number);
    top = std::max(top, number);
  }
}

HF_CASE(neighbours_join_into_one_range) {
  HF_EQUAL(ranges_of(filled({5, 6, 7})), "5-7 ");
  HF_EQUAL(ranges_of(filled({7, 6, 5})), "5-7 ");
  HF_EQUAL(ranges_of(filled({5, 7})), "5-5 7-7 ");
  HF_EQUAL(ranges_of(filled({5, 7, 6})), "5-7 ");
  HF_EQUAL(ranges_of(filled({10, 20, 0, 11, 19, 1})), "0-1 10-11 19-20 ");
}

HF_CASE(a_number_is_inserted_once) {
  NumberRanges numbers = filled({5, 6, 7, 20});
  HF_CHECK(!numbers.insert(5));
  HF_CHECK(!numbers.insert(6));
  HF_CHECK(!numbers.insert(7));
  HF_CHECK(!numbers.insert(20));
  HF_CHECK(numbers.insert(8));
  HF_EQUAL(ranges_of(numbers), "5-8 20-20 ");
  HF_CHECK(numbers.contains(5) && numbers.contains(8) && numbers.contains(20));
  HF_CHECK(!numbers.contains(4) && !numbers.contains(9) && !numbers.contains(21));
}

HF_CASE(at_the_cap_the_oldest_range_is_forgotten) {
  NumberRanges numbers = filled({10, 20, 30}, 3);
  HF_EQUAL(numbers.size(), 3u);
  numbers.insert(40);
  HF_EQUAL(ranges_of(numbers), "20-20 30-30 40-40 ");
  numbers.insert(1);  // older than all that is remembered: forgotten at once
  HF_EQUAL(ranges_of(numbers), "20-20 30-30 40-40 ");
  numbers.insert(21);  // joining costs no room
  HF_EQUAL(ranges_of(numbers), "20-21 30-30 40-40 ");
}

HF_CASE(forget_below_cuts_through_a_range) {
  NumberRanges numbers = filled({1, 2, 3, 10, 11, 12, 20});
  numbers.forget_below(11);
  HF_EQUAL(ranges_of(numbers), "11-12 20-20 ");
  numbers.forget_below(20);
  HF_EQUAL(ranges_of(numbers), "20-20 ");
  numbers.forget_below(21);
  HF_CHECK(numbers.empty());
  HF_CHECK(!numbers.contains(20));
}

HF_CASE(newest_first_is_what_an_ack_lists) {
  const NumberRanges numbers = filled({1, 2, 5, 9, 10});
  const std::vector<AckRange> expected{{9, 10}, {5, 5}};
  HF_CHECK(numbers.newest_first(2) == expected);
  HF_EQUAL(numbers.newest_first(64).size(), 3u);
  HF_CHECK(NumberRanges(4).newest_first(64).empty());
}

HF_CASE(ranges_agree_with_a_set_under_disorder) {
  std::mt19937_64 random(11);
  NumberRanges numbers(100'000);
  std::set<std::uint64_t> seen;
  for (int round = 0; round < 20'000; ++round) {
    const std::uint64_t number = random() % 8000;
    HF_EQUAL(numbers.insert(number), seen.insert(number).second);
  }
  std::uint64_t covered = 0;
  std::uint64_t previous_last = 0;
  for (const AckRange& range : numbers.ranges()) {
    if (covered != 0) HF_CHECK(range.first > previous_last + 1);
    for (std::uint64_t number = range.first; number <= range.last; ++number) HF_CHECK(seen.contains(number));
    covered += range.last - range.first + 1;
    previous_last = range.last;
  }
  HF_EQUAL(covered, seen.size());
}

HF_TEST_MAIN
