// What happens next on the virtual clock. Equal times happen in the order they were scheduled.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "core/time.h"

namespace holdfast::sim {

enum class EventKind : std::uint8_t {
  reaches_port,  // a datagram arrives at the switch port of its receiver
  reaches_host,  // a datagram arrives at its receiver's socket
  wakes,         // a host's timer
  calls,         // a host's next operation
  sends_note,
  freezes,
  thaws,
  dies,
  clock_jumps,
};

struct Event {
  Time at = 0;
  std::uint64_t order = 0;
  EventKind kind = EventKind::wakes;
  std::uint32_t subject = 0;  // the host, or the slot of a datagram
  std::uint64_t detail = 0;
};

class EventQueue {
 public:
  void schedule(Time at, EventKind kind, std::uint32_t subject, std::uint64_t detail = 0) {
    queue_.push({at, next_order_++, kind, subject, detail});
  }
  bool empty() const { return queue_.empty(); }
  Time next_time() const { return queue_.empty() ? never : queue_.top().at; }
  Event pop() {
    const Event event = queue_.top();
    queue_.pop();
    return event;
  }

 private:
  struct Later {
    bool operator()(const Event& left, const Event& right) const {
      return left.at != right.at ? left.at > right.at : left.order > right.order;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> queue_;
  std::uint64_t next_order_ = 0;
};

}  // namespace holdfast::sim
