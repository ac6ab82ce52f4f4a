// What an operation says about itself when it ends.
#pragma once

#include <cstdint>
#include <vector>

#include "core/outgoing_message.h"
#include "core/presence.h"
#include "core/time.h"
#include "kernels/kernels.h"

namespace holdfast {

enum class Status : std::uint8_t {
  done,               // bounded: ended in time, with whatever arrived; exact: all of it
  deadline_exceeded,  // exact only
  peer_dead,          // exact only
  mismatch,           // ranks called with different shapes, dtypes or layouts
};

// `limit`: operations of such a bucket hardly ever take as long; `bound`: no stage may last longer.
enum class StageEnd : std::uint8_t { open, complete, early, limit, bound };

struct StageReport {
  StageEnd end = StageEnd::open;
  Duration elapsed = 0;  // from the stage's start: its first datagram or the own call
};

// The first and the last useful datagram of something, since the operation opened; -1: nothing came.
struct ArrivalSpan {
  Duration first = -1;
  Duration last = -1;
};

// How often the own contribution counts in a part of the result: not at all where it is not in it, and more than once
// where it also stands for what others lost.
struct Counted {
  ElementRange range;
  float times = 1;
};

struct PeerReport {
  std::uint32_t contributed = 0;         // elements of the own shard that this peer's contribution covered in time
  std::uint32_t narrow_contributed = 0;  // of those, elements that came in sixteen bits of their 32
  std::uint32_t contribution_size = 0;   // elements expected
  std::uint32_t results = 0;             // elements of its shard that arrived here in time
  std::uint32_t result_size = 0;
  ArrivalSpan contribution_arrived;
  ArrivalSpan result_arrived;
  bool alive = true;
  Duration silence = 0;                       // of the operation, while it owed an answer; 0: never for long
  std::uint32_t contributions_sample_us = 0;  // what the stage took this peer the last time; 0: it has not said
  std::uint32_t results_sample_us = 0;
};

// Of a hierarchical operation: what was done between the groups, after the contributions and before the results.
struct GroupsReport {
  StageReport contributions;  // open: the groups were not summed in time
  StageReport results;
  bool own_included = false;  // the own group had its sum before the contributions were closed
};

struct OperationReport {
  std::uint32_t operation = 0;
  Status status = Status::done;
  Delivery delivery = Delivery::bounded;
  Format format = Format::f32;
  std::uint32_t total = 0;
  Duration elapsed = 0;          // from the own call to the end
  Duration waited_for_call = 0;  // how long the operation had been open before the own call
  StageReport contributions;
  StageReport results;
  GroupsReport groups;
  // Contributor-elements that made it into this rank's result, out of total * ranks.
  std::uint64_t delivered = 0;
  std::uint64_t expected = 0;
  // Ranks that contributed to what arrived: as many as the element with most of them has. Owners say it, so it is the
  // same on every rank that received all results.
  std::uint32_t contributors = 0;
  // Elements that came in sixteen bits of their 32, contributions and results together.
  std::uint64_t narrow_elements = 0;
  // Elements that arrived after the close of their stage, of any operation, since the last report.
  std::uint64_t late_elements = 0;
  // Datagrams of any kind that the peers sent here since the last report, as their numbers tell, and those that came.
  std::uint64_t datagrams_expected = 0;
  std::uint64_t datagrams_received = 0;
  std::vector<ElementRange> missing;    // of the result: zero on this rank
  std::uint64_t not_received = 0;       // of those, elements that others may have
  std::uint64_t ownerless = 0;          // of those, elements whose owner was dead before the operation began
  std::vector<Counted> counted;         // ascending; where it is not once. Not said of hierarchical operations
  std::vector<PeerReport> peers;        // by rank; the own entry is trivial
  std::vector<std::uint16_t> culprits;  // for errors: who did not deliver, died, or called differently
};

}  // namespace holdfast
