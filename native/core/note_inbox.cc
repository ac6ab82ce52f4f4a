#include "core/note_inbox.h"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace holdfast {

std::optional<Drop> NoteInbox::on_packet(const Header& header, std::span<const std::uint8_t> payload) {
  if (header.missing > header.operation) return Drop::malformed;
  forget_below(header.operation - header.missing);
  if (header.operation < oldest_) return Drop::late;
  if (delivered_.contains(header.operation)) return Drop::duplicate;
  auto found = assemblies_.find(header.operation);
  if (found == assemblies_.end()) {
    const bool full = assemblies_.size() + untaken_ >= max_notes;
    if (full || header.total > max_bytes_ - held_bytes_) return Drop::oversized;
    Assembly assembly{{header.sender, header.layout, header.operation, std::vector<std::uint8_t>(header.total)},
                      Presence(header.total)};
    held_bytes_ += header.total;
    found = assemblies_.emplace(header.operation, std::move(assembly)).first;
  }
  Assembly& assembly = found->second;
  if (assembly.note.bytes.size() != header.total || assembly.note.channel != header.layout) return Drop::mismatch;
  const auto count = static_cast<std::uint32_t>(payload.size());
  if (!assembly.presence.fits(header.offset, count)) return Drop::misplaced;
  const std::uint32_t added = assembly.presence.mark(header.offset, count, [&](ElementRange run) {
    std::memcpy(assembly.note.bytes.data() + run.begin, payload.data() + (run.begin - header.offset), run.size());
  });
  if (added == 0 && count != 0) return Drop::duplicate;
  if (assembly.presence.complete()) {
    delivered_.insert(header.operation);
    ++untaken_;
    complete_.push_back(std::move(assembly.note));
    assemblies_.erase(found);
  }
  return std::nullopt;
}

// Frees what was begun and will never be finished.
void NoteInbox::forget_below(std::uint32_t number) {
  if (number <= oldest_) return;
  oldest_ = number;
  delivered_.forget_below(number);
  while (!assemblies_.empty() && assemblies_.begin()->first < number) {
    held_bytes_ -= assemblies_.begin()->second.note.bytes.size();
    assemblies_.erase(assemblies_.begin());
  }
}

void NoteInbox::forget_incomplete() {
  for (const auto& [number, assembly] : assemblies_) held_bytes_ -= assembly.note.bytes.size();
  assemblies_.clear();
}

void NoteInbox::release(std::size_t bytes) {
  if (untaken_ == 0 || bytes > held_bytes_) throw std::logic_error("released more notes than were delivered");
  --untaken_;
  held_bytes_ -= bytes;
}

}  // namespace holdfast
