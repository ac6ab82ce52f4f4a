#include "core/received_numbers.h"

#include <algorithm>

namespace holdfast {

ReplayWindow::Verdict ReplayWindow::check(std::uint64_t number) const {
  if (number >= next_) return Verdict::fresh;
  if (next_ - number > size) return Verdict::too_old;
  const bool seen = bits_[number / 64 % num_words] >> (number % 64) & 1;
  return seen ? Verdict::replayed : Verdict::fresh;
}

void ReplayWindow::mark(std::uint64_t number) {
  if (number >= next_) {
    const std::uint64_t skipped = number - next_ + 1;
    if (skipped >= size) {
      bits_.fill(0);
    } else {
      for (std::uint64_t stale = next_; stale <= number; ++stale) word(stale) &= ~(1ull << (stale % 64));
    }
    next_ = number + 1;
  }
  word(number) |= 1ull << (number % 64);
}

bool NumberRanges::insert(std::uint64_t number) {
  // Nearly always the number extends the newest range, so search from there.
  std::size_t above = ranges_.size();
  while (above > 0 && ranges_[above - 1].first > number) --above;
  const bool joins_below = above > 0 && ranges_[above - 1].last + 1 >= number;
  if (joins_below && ranges_[above - 1].last >= number) return false;
  const bool joins_above = above < ranges_.size() && ranges_[above].first == number + 1;
  if (joins_below && joins_above) {
    ranges_[above - 1].last = ranges_[above].last;
    ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(above));
  } else if (joins_below) {
    ranges_[above - 1].last = number;
  } else if (joins_above) {
    ranges_[above].first = number;
  } else {
    ranges_.insert(ranges_.begin() + static_cast<std::ptrdiff_t>(above), AckRange{number, number});
    if (ranges_.size() > cap_) ranges_.erase(ranges_.begin());
  }
  return true;
}

bool NumberRanges::contains(std::uint64_t number) const {
  const auto above = std::upper_bound(ranges_.begin(), ranges_.end(), number,
                                      [](std::uint64_t value, const AckRange& range) { return value < range.first; });
  return above != ranges_.begin() && std::prev(above)->last >= number;
}

void NumberRanges::forget_below(std::uint64_t number) {
  std::erase_if(ranges_, [number](const AckRange& range) { return range.last < number; });
  if (!ranges_.empty() && ranges_.front().first < number) ranges_.front().first = number;
}

std::vector<AckRange> NumberRanges::newest_first(std::size_t most) const {
  const std::size_t count = std::min(most, ranges_.size());
  return {ranges_.rbegin(), ranges_.rbegin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace holdfast
