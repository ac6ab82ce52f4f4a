#include "core/outgoing_message.h"

#include <algorithm>

#include "kernels/packing.h"

namespace holdfast {
namespace {

// The mark is on the last max(1 %, 16 packets): one packet alone would too often be the lost one.
constexpr std::uint32_t min_marked_packets = 16;

}  // namespace

OutgoingMessage::OutgoingMessage(std::uint32_t id, MessageContent content, std::uint32_t chunk_elements)
    : id_(id), content_(std::move(content)), chunk_elements_(chunk_elements), full_elements_(chunk_elements) {
  const std::uint32_t count = content_.range.size();
  const std::uint32_t num_chunks = (count + chunk_elements_ - 1) / chunk_elements_;
  const std::uint32_t marked = std::min(num_chunks, std::max(num_chunks / 100, min_marked_packets));
  marked_elements_ = count - (num_chunks - marked) * chunk_elements_;
  if (!content_.open) release(content_.range);
  if (repeats()) acknowledged_ = Presence(count);
  if (content_.delivery == Delivery::bounded) ends_left_ = num_end_packets;
}

void OutgoingMessage::release(ElementRange range) {
  if (range.size() == 0) return;
  unsent_elements_ += range.size();
  if (!unsent_.empty() && unsent_.back().end == range.begin) {
    unsent_.back().end = range.end;
  } else {
    unsent_.push_back(range);
  }
}

void OutgoingMessage::close(std::vector<ElementRange> holes, std::vector<Gap> gaps,
                            std::vector<ElementRange> without_receiver) {
  content_.holes = std::move(holes);
  content_.gaps = std::move(gaps);
  content_.without_receiver = std::move(without_receiver);
  content_.open = false;
}

const std::uint8_t* OutgoingMessage::bytes_of(ElementRange range) const {
  return content_.data + std::size_t{range.begin - content_.range.begin} * element_bytes(content_.format);
}

std::size_t OutgoingMessage::num_bytes() const { return content_.range.size() * element_bytes(content_.format); }

std::uint32_t OutgoingMessage::missing_in(ElementRange range) const {
  auto gap = std::partition_point(content_.gaps.begin(), content_.gaps.end(),
                                  [range](const Gap& candidate) { return candidate.range.end <= range.begin; });
  std::uint32_t missing = 0;
  for (; gap != content_.gaps.end() && gap->range.begin < range.end; ++gap) {
    const std::uint32_t begin = std::max(gap->range.begin, range.begin);
    missing += (std::min(gap->range.end, range.end) - begin) * gap->missing_per_element;
  }
  return missing;
}

bool OutgoingMessage::lacks_receiver(ElementRange range) const {
  const auto lacking = std::partition_point(content_.without_receiver.begin(), content_.without_receiver.end(),
                                            [range](const ElementRange& part) { return part.end <= range.begin; });
  return lacking != content_.without_receiver.end() && lacking->begin <= range.begin && lacking->end >= range.end;
}

bool OutgoingMessage::needs_empty_packet() const {
  return content_.range.size() == 0 && content_.delivery == Delivery::exact && !started_;
}

const ElementRange* OutgoingMessage::hole_at_or_after(std::uint32_t element) const {
  const auto hole = std::find_if(content_.holes.begin(), content_.holes.end(),
                                 [element](const ElementRange& range) { return range.end > element; });
  return hole == content_.holes.end() ? nullptr : &*hole;
}

// Where the next packet must end, so that what its header says of who is in it holds for each of its elements.
std::uint32_t OutgoingMessage::edge_after(std::uint32_t element) const {
  if (!content_.cut_at_gaps) return UINT32_MAX;
  const auto edge = [element](const auto& parts, auto range_of) {
    const auto part = std::partition_point(parts.begin(), parts.end(),
                                           [&](const auto& candidate) { return range_of(candidate).end <= element; });
    if (part == parts.end()) return UINT32_MAX;
    return range_of(*part).begin > element ? range_of(*part).begin : range_of(*part).end;
  };
  return std::min(edge(content_.gaps, [](const Gap& gap) { return gap.range; }),
                  edge(content_.without_receiver, [](const ElementRange& range) { return range; }));
}

// Of a message that still grows, what does not fill a datagram waits for what comes next to it.
bool OutgoingMessage::has_unsent_chunk() const {
  if (unsent_.empty()) return false;
  return !content_.open || unsent_.size() > 1 || unsent_.front().size() >= full_elements_;
}

const std::uint8_t* OutgoingMessage::bytes_of(const Chunk& chunk) const {
  if (!chunk.narrow) return bytes_of(chunk.range);
  return content_.narrowing->narrowed(chunk.range, content_.range.begin, bytes_of(chunk.range));
}

// As many elements of `most`, from its beginning, as one datagram holds.
void OutgoingMessage::fill(Chunk& chunk, ElementRange most, std::size_t packed_room) const {
  // Where bytes are not what an operation waits for, sixteen bits would save nobody any time.
  if (content_.narrowing && packed_room != 0) {
    const ElementRange next{most.begin, most.begin + std::min(most.size(), most_in_a_datagram())};
    const Narrowing::Choice alike = content_.narrowing->choose(content_.stage, content_.receiver, next);
    if (alike.count < next.size()) most.end = most.begin + alike.count;
    chunk.narrow = alike.narrow;
  }
  if (chunk.narrow) return fill_packed(chunk, most, packed_room);
  const std::uint32_t unpacked = std::min(most.size(), chunk_elements_);
  chunk.range = {most.begin, most.begin + unpacked};
  chunk.bytes = unpacked * element_bytes(content_.format);
  chunk.filled = unpacked == chunk_elements_;
  if (packed_room == 0 || !kernels::can_pack(content_.format)) return;
  Chunk packed;
  fill_packed(packed, most, packed_room);
  if (packed.range.size() < unpacked || (packed.range.size() == unpacked && packed.bytes >= chunk.bytes)) return;
  chunk = packed;
}

void OutgoingMessage::fill_packed(Chunk& chunk, ElementRange most, std::size_t room) const {
  chunk.packed = true;
  chunk.range = {most.begin, most.begin + std::min(most.size(), most_in_a_datagram())};
  const kernels::Packed packed = kernels::fit_packed(packing_format(chunk), bytes_of(chunk), chunk.range.size(), room);
  chunk.range.end = most.begin + static_cast<std::uint32_t>(packed.num_elements);
  chunk.filled = chunk.range.end < most.end;
  // Datagrams that leave together are of one size.
  chunk.bytes = chunk.filled ? room : packed.num_bytes;
}

OutgoingMessage::Chunk OutgoingMessage::next_chunk(std::size_t packed_room) const {
  Chunk chunk;
  if (!resend_.empty()) {
    const ElementRange next = resend_.front();
    const ElementRange* hole = hole_at_or_after(next.begin);
    if (hole != nullptr && hole->begin <= next.begin) {
      chunk.type = PacketType::hole;
      chunk.range = next;
    } else {
      // Packed, they may have been more than fit a datagram that packing does not pay for any more.
      fill(chunk, next, packed_room);
    }
    chunk.completes = resend_.size() == 1 && chunk.range == next && sent_once();
    chunk.again = true;
    return chunk;
  }
  if (unsent_.empty()) {  // the one packet of an empty note
    chunk.range = {content_.range.begin, content_.range.begin};
    chunk.completes = true;
    return chunk;
  }
  const ElementRange next = unsent_.front();
  const ElementRange* hole = content_.holes.empty() ? nullptr : hole_at_or_after(next.begin);
  if (hole != nullptr && hole->begin <= next.begin) {
    chunk.type = PacketType::hole;
    chunk.range = {next.begin, std::min(next.end, hole->end)};
  } else {
    ElementRange most{next.begin, std::min(next.end, edge_after(next.begin))};
    if (hole != nullptr) most.end = std::min(most.end, hole->begin);
    fill(chunk, most, packed_room);
  }
  // As many packets as ever, also where each holds more.
  const std::uint32_t marked = std::max(marked_elements_, min_marked_packets * chunk.range.size());
  chunk.last_percentile = !content_.open && unsent_elements_ <= marked;
  chunk.completes = !content_.open && chunk.range.size() == unsent_elements_;
  return chunk;
}

void OutgoingMessage::chunk_sent(const Chunk& chunk) {
  if (!resend_.empty()) {
    resend_.front().begin = chunk.range.end;
    if (resend_.front().size() == 0) resend_.pop_front();
    return;
  }
  started_ = true;
  if (content_.narrowing) content_.narrowing->on_sent(content_.stage, content_.receiver, chunk.range, chunk.narrow);
  if (chunk.filled) {
    full_elements_ = chunk.range.size();
  } else {
    full_elements_ = std::max(full_elements_, chunk.range.size() + block_elements);
  }
  if (unsent_.empty()) return;
  unsent_elements_ -= chunk.range.size();
  unsent_.front().begin = chunk.range.end;
  if (unsent_.front().size() == 0) unsent_.pop_front();
}

Time OutgoingMessage::end_due_at() const { return ends_left_ > 0 && sent_once() ? end_due_at_ : never; }

void OutgoingMessage::end_sent(Time now, Duration spacing) {
  --ends_left_;
  end_due_at_ = now + spacing;
}

void OutgoingMessage::acknowledged(ElementRange range, bool is_end) {
  if (is_end) {
    ends_left_ = 0;
    return;
  }
  if (!repeats()) return;
  if (range.size() == 0) empty_packet_acknowledged_ = true;
  acknowledged_.mark(range.begin - content_.range.begin, range.size(), [](ElementRange) {});
  std::erase_if(resend_,
                [range](const ElementRange& part) { return part.begin >= range.begin && part.end <= range.end; });
}

void OutgoingMessage::lost(ElementRange range) {
  lost_elements_ += range.size();
  if (!repeats() || is_acknowledged(range)) return;
  if (std::find(resend_.begin(), resend_.end(), range) == resend_.end()) resend_.push_back(range);
}

void OutgoingMessage::send_again(ElementRange range) {
  if (std::find(resend_.begin(), resend_.end(), range) == resend_.end()) resend_.push_front(range);
}

bool OutgoingMessage::is_acknowledged(ElementRange range) const {
  if (range.size() == 0) return empty_packet_acknowledged_;
  return acknowledged_.has({range.begin - content_.range.begin, range.end - content_.range.begin});
}

bool OutgoingMessage::all_acknowledged() const {
  const bool awaits_empty = content_.range.size() == 0 && content_.delivery == Delivery::exact;
  return awaits_empty ? empty_packet_acknowledged_ : acknowledged_.complete();
}

bool OutgoingMessage::finished() const {
  if (repeats() && !all_acknowledged()) return false;
  return content_.delivery == Delivery::exact || (sent_once() && ends_left_ == 0);
}

}  // namespace holdfast
