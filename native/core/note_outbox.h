// Notes on their way to the peers: each gets a ticket, and one fate by its deadline at the latest.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/path.h"
#include "core/time.h"

namespace holdfast {

enum class NoteFate : std::uint8_t { delivered, deadline_exceeded, peer_dead };

struct SentNote {
  std::uint16_t peer = 0;
  std::uint32_t ticket = 0;  // what `send` returned
  NoteFate fate = NoteFate::delivered;
};

class NoteOutbox {
 public:
  using Paths = std::vector<std::unique_ptr<Path>>;  // by rank; null for the own

  // `paths` outlives this.
  explicit NoteOutbox(const Paths& paths) : paths_(paths), next_number_(paths.size(), 0) {}

  std::uint32_t send(std::uint16_t peer, std::uint32_t channel, std::vector<std::uint8_t> bytes, Time deadline);
  // To a peer that is gone: that is its fate.
  std::uint32_t send_in_vain(std::uint16_t peer);

  void on_message_finished(std::uint16_t peer, std::uint32_t message);
  void on_peer_gone(std::uint16_t peer);
  void on_timer(Time now);
  Time next_timer() const;

  std::vector<SentNote> take_sent() { return std::exchange(sent_, {}); }

 private:
  struct Pending {
    std::uint16_t peer;
    std::uint32_t ticket;
    std::uint32_t message;
    Time deadline;
  };
  template <class Condition>
  void settle(NoteFate fate, Condition condition);

  const Paths& paths_;
  std::vector<std::uint32_t> next_number_;  // per peer
  std::uint32_t next_ticket_ = 1;
  std::vector<Pending> pending_;
  std::vector<SentNote> sent_;
};

}  // namespace holdfast
