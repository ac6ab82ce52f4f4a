#include "core/card_rate.h"

#include <algorithm>

namespace holdfast {
namespace {

constexpr Duration stretch = 10 * millisecond;
constexpr Duration longest_stretch = 4 * stretch;  // longer ones hold a pause, in which nothing was to be sent

// So much more than the card can send is offered to it, all paths together: it stays busy, and a card that has become
// faster is noticed.
constexpr double overcommitment = 1.02;
// A path that has fallen behind may use what the others, whose messages are over, leave of the card; not all of it
// where there are many, because two such paths of two ranks may meet at one port.
constexpr double most_even_shares = 3;

}  // namespace

double CardUse::share(std::uint32_t credit) const {
  if (num_paths == 0) return 0;
  const auto heard_at_a_time = [credit](std::uint32_t ranks) {
    return static_cast<double>(std::clamp(ranks, 1u, credit == 0 ? UINT32_MAX : credit));
  };
  const double sharing = std::max(heard_at_a_time(num_busy), heard_at_a_time(num_paths) / most_even_shares);
  return overcommitment * bytes_per_second / sharing;
}

Duration CardUse::wait_behind(std::uint64_t bytes) const {
  if (bytes_per_second <= 0) return 0;
  return static_cast<Duration>(static_cast<double>(waiting_bytes + bytes) / bytes_per_second * second);
}

void CardRate::on_queue(Time now, std::uint64_t waiting_bytes) {
  if (waiting_bytes > 0) busy_ += now - seen_at_;
  seen_at_ = now;
  const Duration elapsed = now - begun_at_;
  if (elapsed < stretch) return;
  const std::uint64_t departed = handed_bytes_ - std::min(waiting_bytes, handed_bytes_);
  const bool paused = elapsed > longest_stretch || departed < departed_at_begin_;
  // After a pause the first stretch does not count: a card that has rested may owe itself a burst.
  if (!paused && !rested_) {
    const double sample = static_cast<double>(departed - departed_at_begin_) / in_seconds(elapsed);
    const bool was_busy = 2 * busy_ >= elapsed;
    // A card that ran empty could have sent more: it is at least this fast.
    if (was_busy || (!rate_.empty() && sample > rate_.value())) rate_.add(++num_samples_, sample);
    best_ = std::max(best_, rate_.value());
  }
  begun_at_ = now;
  departed_at_begin_ = departed;
  busy_ = 0;
  rested_ = paused;
}

}  // namespace holdfast
