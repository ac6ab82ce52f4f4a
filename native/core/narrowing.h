// What of one float32 operation leaves in sixteen bits, because a path has fallen behind.
//
// What is late is cut off at the end. Half the bits of it in time are worth more than none, and a path that sends two
// fifths of the bytes catches up. Rounded at random, the sum is right on average.
//
// A contribution goes to one rank, so the path that is behind decides for itself. Results must be the same on all
// ranks, whatever their paths carry: while any path is behind, what was sent to nobody yet is rounded where it lies, in
// the memory that all paths read from, and in the caller's if it is there already. What was sent to somebody stays as
// it is. A rank whose own port is full is behind on no path of its own: that it is late shows in what it is sent, so
// what it sums of narrow contributions leaves narrow, too.
#pragma once

#include <cstdint>
#include <vector>

#include "core/pace.h"
#include "core/presence.h"
#include "core/wire.h"

namespace holdfast {

class Narrowing {
 public:
  struct Identity {
    std::uint32_t operation = 0;
    std::uint16_t rank = 0;
    ElementRange shard;  // the own one
  };
  Narrowing(const Identity& identity, const Pace& pace)
      : identity_(identity),
        pace_(pace),
        narrow_(identity.shard.size()),
        sent_(identity.shard.size()),
        rough_(identity.shard.size()) {}

  // The same for the same part of the same rank's operation: whoever has the elements can tell what they become.
  static std::uint64_t seed(std::uint32_t operation, std::uint16_t rank, std::uint32_t shard_begin);

  Pace& pace() { return pace_; }

  // Where the elements of the own shard's result are read from, by all paths.
  void set_results(std::uint8_t* elements) { results_ = elements; }
  // The caller's own copy of them; null, and no more result is rounded: it belongs to the caller.
  void set_callers_results(std::uint8_t* elements) {
    callers_results_ = elements;
    results_may_change_ = elements != nullptr;
  }

  // What somebody contributed to this part of the own shard came in sixteen bits, because it was late: so is its
  // result.
  void on_narrow_contribution(ElementRange of_shard) {
    rough_.mark(of_shard.begin, of_shard.size(), [](ElementRange) {});
  }

  // How many elements from the beginning of `range` leave alike, and whether in sixteen bits.
  struct Choice {
    std::uint32_t count = 0;
    bool narrow = false;
  };
  Choice choose(Stage stage, std::uint16_t peer, ElementRange range) const;

  // These elements in sixteen bits, of a message whose range begins at `message_begin`. Holds until any message of
  // the operation asks again.
  const std::uint8_t* narrowed(ElementRange range, std::uint32_t message_begin, const std::uint8_t* elements);

  // They left: for results that is for good.
  void on_sent(Stage stage, std::uint16_t peer, ElementRange range, bool narrow);

 private:
  void round_results(ElementRange of_shard);

  Identity identity_;
  Pace pace_;
  std::uint8_t* results_ = nullptr;
  std::uint8_t* callers_results_ = nullptr;
  bool results_may_change_ = true;
  // Of the own shard's result: what is rounded, what somebody has been sent, and what was summed of rounded parts.
  Presence narrow_;
  Presence sent_;
  Presence rough_;
  std::vector<std::uint8_t> scratch_;
};

}  // namespace holdfast
