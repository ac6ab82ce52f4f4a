// How fast the network card sends, from what was handed to it and what it still has waiting.
//
// All paths of a rank leave through one card. A path that is alone for a moment could use all of it, and two ranks that
// both do so meet at a third rank's port, which is no faster: its queue overflows within a millisecond. A path that
// keeps to its share of the card cannot do that, and the port is still full when all of them are sending.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/rate_sample.h"
#include "core/time.h"

namespace holdfast {

// The card at the moment of sending, and who wants to use it.
struct CardUse {
  bool has_room = true;               // for more than what is small and urgent
  std::uint64_t waiting_bytes = 0;    // handed over before, by all paths, with what the kernel needs to keep them
  double bytes_per_second = 0;        // of all paths together; 0: not known
  double paths_bytes_per_second = 0;  // that the ways to all peers were seen to carry, together; 0: not known
  std::uint32_t num_paths = 0;        // while an operation is open: that leave through it
  std::uint32_t num_busy = 0;         // of these, with a message that is not over yet

  // Most that one path may send, where its peer hears `credit` ranks at a time (0: all of them). 0: not known.
  double share(std::uint32_t credit) const;
  // How long a packet waits for its turn, at most, that is handed over after so many more bytes.
  Duration wait_behind(std::uint64_t bytes) const;
};

class CardRate {
 public:
  void on_sent(std::uint64_t bytes) { handed_bytes_ += bytes; }
  // Before anything is sent: so many bytes wait in the card's queue.
  void on_queue(Time now, std::uint64_t waiting_bytes);
  // The best of the last stretches in which the card had something waiting most of the time; 0: it never has, and is no
  // bottleneck. At least half of the best ever: a card that is slow to tell what has left looks busy all the time, and
  // paths that keep to a share of what few of them sent would slow one another down without end.
  double bytes_per_second() const { return std::max(rate_.value(), best_ / 2); }

 private:
  std::uint64_t handed_bytes_ = 0;
  RecentMaximum rate_{32};
  double best_ = 0;
  std::uint64_t num_samples_ = 0;

  // The stretch of time over which the next sample is taken.
  Time begun_at_ = 0;
  std::uint64_t departed_at_begin_ = 0;
  Time seen_at_ = 0;
  Duration busy_ = 0;
  bool rested_ = true;  // it began after a pause
};

}  // namespace holdfast
