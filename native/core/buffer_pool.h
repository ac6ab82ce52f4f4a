// Buffers that are used again: a fresh 6 MB allocation costs more in page faults than the sum that goes into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace holdfast {

class BufferPool {
 public:
  using Buffer = std::shared_ptr<std::uint8_t>;

  // Contents are whatever the last user left.
  Buffer take(std::size_t bytes) {
    Slot slot = shelf_->find(bytes);
    if (slot.memory == nullptr)
      slot = {static_cast<std::uint8_t*>(std::aligned_alloc(64, rounded(bytes))), rounded(bytes)};
    if (slot.memory == nullptr) throw std::bad_alloc();
    return Buffer(slot.memory, [shelf = std::weak_ptr<Shelf>(shelf_), slot](std::uint8_t*) {
      if (const auto alive = shelf.lock()) {
        alive->give_back(slot);
      } else {
        std::free(slot.memory);
      }
    });
  }

 private:
  struct Slot {
    std::uint8_t* memory = nullptr;
    std::size_t bytes = 0;
  };

  struct Shelf {
    static constexpr std::size_t max_slots = 32;
    static constexpr std::size_t max_bytes = 512u << 20;
    std::vector<Slot> slots;
    std::size_t bytes_kept = 0;

    ~Shelf() {
      for (const Slot& slot : slots) std::free(slot.memory);
    }

    // The smallest that fits, unless it would waste more than half.
    Slot find(std::size_t bytes) {
      std::size_t best = slots.size();
      for (std::size_t i = 0; i < slots.size(); ++i) {
        if (slots[i].bytes < bytes || slots[i].bytes / 2 > rounded(bytes)) continue;
        if (best == slots.size() || slots[i].bytes < slots[best].bytes) best = i;
      }
      if (best == slots.size()) return {};
      const Slot found = slots[best];
      bytes_kept -= found.bytes;
      slots[best] = slots.back();
      slots.pop_back();
      return found;
    }

    void give_back(Slot slot) {
      slots.push_back(slot);
      bytes_kept += slot.bytes;
      while (slots.size() > max_slots || bytes_kept > max_bytes) {
        bytes_kept -= slots.front().bytes;
        std::free(slots.front().memory);
        slots.erase(slots.begin());
      }
    }
  };

  static std::size_t rounded(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096 + (bytes == 0 ? 4096 : 0); }

  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

}  // namespace holdfast
