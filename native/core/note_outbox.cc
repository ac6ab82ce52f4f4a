#include "core/note_outbox.h"

#include <algorithm>
#include <stdexcept>

namespace holdfast {

std::uint32_t NoteOutbox::send(std::uint16_t peer, std::uint32_t channel, std::vector<std::uint8_t> bytes,
                               Time deadline) {
  if (bytes.size() > UINT32_MAX) throw std::length_error("a note holds less than 4 GiB");
  const auto owned = std::make_shared<std::vector<std::uint8_t>>(std::move(bytes));
  MessageContent content;
  content.operation = next_number_[peer]++;
  content.layout = channel;
  content.total = static_cast<std::uint32_t>(owned->size());
  content.range = {0, content.total};
  content.data = owned->data();
  content.owner = owned;
  const std::uint32_t message = paths_[peer]->enqueue(std::move(content));
  pending_.push_back({peer, next_ticket_, message, deadline});
  return next_ticket_++;
}

std::uint32_t NoteOutbox::send_in_vain(std::uint16_t peer) {
  sent_.push_back({peer, next_ticket_, NoteFate::peer_dead});
  return next_ticket_++;
}

template <class Condition>
void NoteOutbox::settle(NoteFate fate, Condition condition) {
  std::erase_if(pending_, [&](const Pending& note) {
    if (!condition(note)) return false;
    sent_.push_back({note.peer, note.ticket, fate});
    return true;
  });
}

void NoteOutbox::on_message_finished(std::uint16_t peer, std::uint32_t message) {
  settle(NoteFate::delivered,
         [peer, message](const Pending& note) { return note.peer == peer && note.message == message; });
}

void NoteOutbox::on_peer_gone(std::uint16_t peer) {
  settle(NoteFate::peer_dead, [peer](const Pending& note) { return note.peer == peer; });
}

void NoteOutbox::on_timer(Time now) {
  for (const Pending& note : pending_) {
    if (note.deadline <= now) paths_[note.peer]->cancel(note.message);
  }
  settle(NoteFate::deadline_exceeded, [now](const Pending& note) { return note.deadline <= now; });
}

Time NoteOutbox::next_timer() const {
  Time next = never;
  for (const Pending& note : pending_) next = std::min(next, note.deadline);
  return next;
}

}  // namespace holdfast
