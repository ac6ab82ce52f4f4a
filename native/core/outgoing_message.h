// One message on its way to one peer: what is still to be sent, sent again, or said at the end.
// The three deliveries differ here and in nothing else on the sending side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/narrowing.h"
#include "core/presence.h"
#include "core/wire.h"

namespace holdfast {

enum class Delivery : std::uint8_t {
  bounded,  // a lost packet is never sent again; the message has an end, not a guarantee
  exact,    // sent again until it arrives
};

constexpr int num_end_packets = 3;  // the end of a bounded message is said three times, spaced

struct MessageContent {
  Stage stage = Stage::note;
  Delivery delivery = Delivery::exact;
  bool of_exact_operation = false;  // said of the operation, where this message itself is bounded
  bool average = true;
  std::uint32_t operation = 0;
  std::uint32_t layout = 0;
  std::uint8_t division = 0;
  bool encoded = false;
  Format format = Format::bytes;
  std::uint32_t total = 0;                     // elements of the whole bucket
  ElementRange range;                          // the part this message carries
  const std::uint8_t* data = nullptr;          // element `range.begin`
  std::shared_ptr<const void> owner;           // keeps `data` alive; null when the caller does
  std::vector<ElementRange> holes;             // ascending parts of `range` that are lost and only announced
  std::vector<Gap> gaps;                       // ascending parts of `range` that lack contributors
  std::vector<ElementRange> without_receiver;  // ascending parts of `range` that lack what its receiver contributed
  bool without_owner = false;                  // all of it lacks what its sender would have
  bool cut_at_gaps = false;                    // every packet lacks the same of one element as of the next
  std::uint32_t completion_us = 0;
  bool open = false;      // its parts are released one by one, and holes and gaps are known when it is closed
  bool repaired = false;  // bounded, but what is lost is sent again as long as somebody may wait for it
  std::shared_ptr<Narrowing> narrowing;  // of the whole operation; null: every element leaves as it is
  std::uint16_t receiver = 0;
};

class OutgoingMessage {
 public:
  // `chunk_elements` is what fits one datagram.
  OutgoingMessage(std::uint32_t id, MessageContent content, std::uint32_t chunk_elements);

  struct Chunk {
    PacketType type = PacketType::data;
    ElementRange range;
    bool last_percentile = false;
    bool completes = false;  // nothing else is left to send after it
    bool again = false;      // lost once, or repeated by a probe
    bool packed = false;     // in fewer bytes than its elements have
    bool narrow = false;     // packed, in sixteen bits
    bool filled = false;     // no further element would have fitted
    std::size_t bytes = 0;   // of elements
  };

  std::uint32_t id() const { return id_; }
  const MessageContent& content() const { return content_; }
  const std::uint8_t* bytes_of(ElementRange range) const;
  // What is to be packed, in the format that `packing_format` says; holds until it is asked again.
  const std::uint8_t* bytes_of(const Chunk& chunk) const;
  Format packing_format(const Chunk& chunk) const { return chunk.narrow ? Format::bf16 : content_.format; }
  std::size_t num_bytes() const;
  std::uint32_t missing_in(ElementRange range) const;  // contributor-elements, see Header::missing
  bool lacks_receiver(ElementRange range) const;       // in all of it

  // -- of an open message: which of its parts may go, and that there will be no more.
  void release(ElementRange range);
  void close(std::vector<ElementRange> holes, std::vector<Gap> gaps, std::vector<ElementRange> without_receiver);
  bool open() const { return content_.open; }

  bool has_chunk() const { return !resend_.empty() || has_unsent_chunk() || needs_empty_packet(); }
  // `packed_room`: what a datagram holds, where packing pays; else 0.
  Chunk next_chunk(std::size_t packed_room = 0) const;
  void chunk_sent(const Chunk& chunk);

  // Ends of a bounded message: due once everything has been sent once.
  Time end_due_at() const;
  void end_sent(Time now, Duration spacing);

  void acknowledged(ElementRange range, bool is_end);
  void lost(ElementRange range);
  // Queues a range ahead of everything else, for a probe.
  void send_again(ElementRange range);
  bool is_acknowledged(ElementRange range) const;
  bool repeats() const { return content_.delivery == Delivery::exact || content_.repaired; }

  // What repeats is finished when all of it was acknowledged; a bounded message has also said its end.
  bool finished() const;
  bool sent_once() const { return !content_.open && unsent_.empty() && !needs_empty_packet(); }
  bool started() const { return started_; }
  std::uint32_t lost_elements() const { return lost_elements_; }

 private:
  std::uint32_t most_in_a_datagram() const {
    return std::min(max_packing_ratio * chunk_elements_, max_packed_elements);
  }
  bool has_unsent_chunk() const;
  bool needs_empty_packet() const;
  bool all_acknowledged() const;
  void fill(Chunk& chunk, ElementRange most, std::size_t packed_room) const;
  void fill_packed(Chunk& chunk, ElementRange most, std::size_t room) const;
  const ElementRange* hole_at_or_after(std::uint32_t element) const;
  std::uint32_t edge_after(std::uint32_t element) const;

  std::uint32_t id_;
  MessageContent content_;
  std::uint32_t chunk_elements_;
  std::uint32_t full_elements_;      // that filled the last datagram, or might fill the next
  std::deque<ElementRange> unsent_;  // in the order in which they leave
  std::uint32_t unsent_elements_ = 0;
  std::uint32_t marked_elements_;  // so many at the end are the last percentile
  bool started_ = false;
  std::deque<ElementRange> resend_;
  Presence acknowledged_;  // of what repeats; counted from the beginning of the range
  bool empty_packet_acknowledged_ = false;
  std::uint32_t lost_elements_ = 0;
  int ends_left_ = 0;
  Time end_due_at_ = 0;
};

}  // namespace holdfast
