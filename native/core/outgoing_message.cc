#include "core/outgoing_message.h"

#include <algorithm>

namespace holdfast {
namespace {

// The mark is on the last max(1 %, 16 packets): one packet alone would too often be the lost one.
constexpr std::uint32_t min_marked_packets = 16;

}  // namespace

OutgoingMessage::OutgoingMessage(std::uint32_t id, MessageContent content, std::uint32_t chunk_elements)
    : id_(id), content_(std::move(content)), chunk_elements_(chunk_elements), next_(content_.range.begin) {
  const std::uint32_t count = content_.range.size();
  const std::uint32_t num_chunks = (count + chunk_elements_ - 1) / chunk_elements_;
  const std::uint32_t marked = std::min(num_chunks, std::max(num_chunks / 100, min_marked_packets));
  marked_from_ = content_.range.begin + (num_chunks - marked) * chunk_elements_;
  if (content_.delivery == Delivery::exact) {
    chunks_outstanding_ = std::max<std::size_t>(num_chunks, 1);
    chunk_acknowledged_.assign(chunks_outstanding_, false);
  } else {
    ends_left_ = num_end_packets;
  }
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

bool OutgoingMessage::needs_empty_packet() const {
  return content_.range.size() == 0 && content_.delivery == Delivery::exact && !empty_packet_sent_;
}

std::size_t OutgoingMessage::chunk_index(std::uint32_t element) const {
  return (element - content_.range.begin) / chunk_elements_;
}

const ElementRange* OutgoingMessage::hole_at_or_after(std::uint32_t element) const {
  const auto hole = std::find_if(content_.holes.begin(), content_.holes.end(),
                                 [element](const ElementRange& range) { return range.end > element; });
  return hole == content_.holes.end() ? nullptr : &*hole;
}

OutgoingMessage::Chunk OutgoingMessage::next_chunk() const {
  Chunk chunk;
  if (!resend_.empty()) {
    chunk.range = resend_.front();
    chunk.completes = resend_.size() == 1 && sent_once();
    chunk.again = true;
    return chunk;
  }
  const ElementRange* hole = content_.holes.empty() ? nullptr : hole_at_or_after(next_);
  if (hole != nullptr && hole->begin <= next_) {
    chunk.type = PacketType::hole;
    chunk.range = {next_, hole->end};
  } else {
    // Chunks keep to their grid even after a hole, so that a resent chunk is always one datagram.
    const std::uint32_t grid_end =
        content_.range.begin + (static_cast<std::uint32_t>(chunk_index(next_)) + 1) * chunk_elements_;
    chunk.range = {next_, std::min(grid_end, content_.range.end)};
    if (hole != nullptr) chunk.range.end = std::min(chunk.range.end, hole->begin);
  }
  chunk.last_percentile = chunk.range.begin >= marked_from_;
  chunk.completes = chunk.range.end == content_.range.end;
  return chunk;
}

void OutgoingMessage::chunk_sent(const Chunk& chunk) {
  if (!resend_.empty()) {
    resend_.pop_front();
    return;
  }
  next_ = chunk.range.end;
  empty_packet_sent_ = true;
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
  if (content_.delivery != Delivery::exact) return;
  const std::size_t index = chunk_index(range.begin);
  if (chunk_acknowledged_[index]) return;
  chunk_acknowledged_[index] = true;
  --chunks_outstanding_;
  std::erase(resend_, range);
}

void OutgoingMessage::lost(ElementRange range) {
  lost_elements_ += range.size();
  if (content_.delivery == Delivery::exact && !is_acknowledged(range)) resend_.push_back(range);
}

void OutgoingMessage::send_again(ElementRange range) {
  if (std::find(resend_.begin(), resend_.end(), range) == resend_.end()) resend_.push_front(range);
}

bool OutgoingMessage::is_acknowledged(ElementRange range) const {
  return chunk_acknowledged_[chunk_index(range.begin)];
}

bool OutgoingMessage::finished() const {
  if (content_.delivery == Delivery::exact) return chunks_outstanding_ == 0;
  return sent_once() && ends_left_ == 0;
}

}  // namespace holdfast
