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
  const auto count = static_cast<std::uint32_t>(payload.size());
  auto found = assemblies_.find(header.operation);
  if (found == assemblies_.end()) {
    if (!Presence::fits(header.total, header.offset, count)) return Drop::misplaced;
    const bool full = assemblies_.size() + untaken_ >= max_notes;
    if (full || header.total > max_bytes_ - held_bytes_) return Drop::oversized;
    held_bytes_ += header.total;
    found = assemblies_.try_emplace(header.operation, header.layout, header.total).first;
  }
  Assembly& assembly = found->second;
  if (assembly.presence.num_elements() != header.total || assembly.channel != header.layout) return Drop::mismatch;
  if (!assembly.presence.fits(header.offset, count)) return Drop::misplaced;
  const std::uint32_t added = assembly.presence.mark(header.offset, count, [&](ElementRange run) {
    std::memcpy(assembly.bytes.get() + run.begin, payload.data() + (run.begin - header.offset), run.size());
  });
  if (added == 0 && count != 0) return Drop::duplicate;
  if (assembly.presence.complete()) {
    delivered_.insert(header.operation);
    ++untaken_;
    complete_.push_back({header.sender, header.layout, header.operation,
                         std::vector<std::uint8_t>(assembly.bytes.get(), assembly.bytes.get() + header.total)});
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
    held_bytes_ -= assemblies_.begin()->second.presence.num_elements();
    assemblies_.erase(assemblies_.begin());
  }
}

void NoteInbox::forget_incomplete() {
  for (const auto& [number, assembly] : assemblies_) held_bytes_ -= assembly.presence.num_elements();
  assemblies_.clear();
}

void NoteInbox::release(std::size_t bytes) {
  if (untaken_ == 0 || bytes > held_bytes_) throw std::logic_error("released more notes than were delivered");
  --untaken_;
  held_bytes_ -= bytes;
}

}  // namespace holdfast
