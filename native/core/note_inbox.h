// Notes: whole messages outside operations (control, buffers, state), delivered exactly and once, in order of
// completion.
//
// What a peer may make this rank hold is capped: notes under assembly and complete ones that nobody has taken yet count
// alike. Beyond the cap nothing is acknowledged, so the sender holds on to it, and learns at its deadline.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/presence.h"
#include "core/received_numbers.h"
#include "core/wire.h"

namespace holdfast {

struct Note {
  std::uint16_t sender = 0;
  std::uint32_t channel = 0;
  std::uint32_t number = 0;
  std::vector<std::uint8_t> bytes;
};

// What one peer is sending us.
class NoteInbox {
 public:
  // Short notes cost more than their bytes.
  static constexpr std::size_t max_notes = 1024;

  explicit NoteInbox(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  std::optional<Drop> on_packet(const Header& header, std::span<const std::uint8_t> payload);
  std::vector<Note> take_complete() { return std::exchange(complete_, {}); }
  // A complete note of so many bytes has been taken by whoever it was for.
  void release(std::size_t bytes);
  void forget_incomplete();

 private:
  struct Assembly {
    Assembly(std::uint32_t on_channel, std::uint32_t total)
        : channel(on_channel), bytes(std::make_unique_for_overwrite<std::uint8_t[]>(total)), presence(total) {}
    std::uint32_t channel;
    // Not cleared: every byte is written before the note is handed out, and a size that is only claimed costs nothing.
    std::unique_ptr<std::uint8_t[]> bytes;
    Presence presence;
  };
  void forget_below(std::uint32_t number);
  static constexpr std::size_t max_remembered_gaps = 1024;

  std::size_t max_bytes_;       // of notes under assembly and untaken ones
  std::size_t held_bytes_ = 0;  // of both
  std::size_t untaken_ = 0;     // notes that are complete
  std::map<std::uint32_t, Assembly> assemblies_;
  std::uint32_t oldest_ = 0;  // the sender has given up or finished every note before this one
  NumberRanges delivered_{max_remembered_gaps};
  std::vector<Note> complete_;
};

}  // namespace holdfast
