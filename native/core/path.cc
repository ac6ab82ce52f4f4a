#include "core/path.h"

#include <algorithm>
#include <utility>

#include "kernels/packing.h"

namespace holdfast {
namespace {

// The ack says how long it waited, so its delay disturbs no measurement; a window is long against it.
constexpr Duration max_ack_delay = 4 * millisecond;
constexpr std::uint32_t packets_per_ack = 16;  // OptiReduce echoes every tenth packet; QUIC every second
// Ten tries before silence means death: with four, bursts of 60 ms already killed one peer in 500 simulated runs.
constexpr Duration max_probe_interval = 100 * millisecond;
constexpr Duration min_end_spacing = 500 * microsecond;
// While joining, pings go out more often, so that forming a job does not wait for a heartbeat.
constexpr Duration joining_ping_interval = 20 * millisecond;
// Ten times the longest that an answer is put off: shorter silences are nobody's absence.
constexpr Duration long_silence = 10 * max_ack_delay;
constexpr std::uint32_t small_message_bytes = 16 * 1024;
// Longer than most bursts of losses, and a fraction of what it takes to find out that a packet is missing.
constexpr Duration echo_spacing = millisecond;
constexpr std::size_t max_echoes = 64;
constexpr std::uint64_t acknowledged_span = 1 << 16;  // older numbers are not acknowledged again

Direction outgoing_direction(const PathSettings& settings) {
  return {settings.epoch, settings.own_rank, settings.peer_rank, settings.own_process, settings.peer_process};
}

}  // namespace

Path::Path(const PathSettings& settings, Time now, std::shared_ptr<QueueAllowance> queue)
    : settings_(settings),
      sealer_(settings.job_key, outgoing_direction(settings), settings.protection, settings.packets_per_key),
      opener_(settings.job_key, reversed(outgoing_direction(settings)), settings.protection),
      rtt_(settings.initial_rtt),
      rate_(settings.rate_rule, settings.datagram_bytes, settings.same_host),
      queue_(std::move(queue)),
      pacer_(settings.datagram_bytes),
      last_heard_(now),
      last_acknowledged_(now) {}

std::uint32_t payload_bytes(std::uint32_t datagram_bytes, Protection protection) {
  return datagram_bytes - static_cast<std::uint32_t>(header_bytes + tag_bytes_of(protection));
}

std::uint32_t chunk_elements(std::uint32_t datagram_bytes, Protection protection, Format format) {
  const auto block_bytes = static_cast<std::uint32_t>(block_elements * element_bytes(format));
  return payload_bytes(datagram_bytes, protection) / block_bytes * block_elements;
}

// ---------------------------------------------------------------------------------------------------- incoming

std::optional<Drop> Path::open(Time now, const Header& header, std::span<const std::uint8_t> header_octets,
                               std::span<std::uint8_t> payload, std::span<const std::uint8_t> tag) {
  switch (replay_.check(header.transmission)) {
    case ReplayWindow::Verdict::replayed: return Drop::replay;
    case ReplayWindow::Verdict::too_old: return Drop::too_old;
    case ReplayWindow::Verdict::fresh: break;
  }
  if (settings_.protection != Protection::insecure) {
    if (const auto drop = opener_.open(header, header_octets, payload, tag.first<tag_bytes>())) return drop;
  }
  replay_.mark(header.transmission);
  ++counters_.datagrams_received;
  counters_.datagrams_expected = std::max(counters_.datagrams_expected, header.transmission + 1);
  counters_.bytes_received += header_octets.size() + payload.size() + tag.size();
  if (const Time unanswered = unanswered_since(); unanswered != never && is_long_silence(now - unanswered)) {
    answered_again_at_ = now;
    last_silence_ = now - unanswered;
  }
  last_heard_ = now;
  peer_credit_ = header.credit;
  return std::nullopt;
}

void Path::acknowledge(Time now, const Header& header, Duration age) {
  const bool in_order = received_.empty() || header.transmission == received_.ranges().back().last + 1;
  received_.insert(header.transmission);
  if (received_.ranges().back().last == header.transmission) largest_received_at_ = now - age;
  if (header.type == PacketType::ack || header.type == PacketType::bye) return;
  ++unacknowledged_packets_;
  // A small window must not run dry while its sender waits for an ack.
  const std::uint32_t quarter_window = settings_.receive_window / (4 * settings_.datagram_bytes);
  const bool enough = unacknowledged_packets_ >= std::clamp(quarter_window, 1u, packets_per_ack);
  const bool at_once = !in_order || (header.flags & flag::ack_now) != 0 || enough;
  ack_at_ = std::min(ack_at_, at_once ? now : now + max_ack_delay);
}

std::optional<Drop> Path::on_ack(Time now, std::span<const std::uint8_t> payload, Duration age) {
  const std::optional<Ack> ack = decode_ack(payload);
  if (!ack) return Drop::malformed;
  settled_.clear();
  if (!ledger_.acknowledge(*ack, now, settled_)) return Drop::acknowledges_unsent;
  // Only an ack of something new shows that both directions work: a peer that we hear, and that does not hear us, is of
  // no use.
  if (!settled_.acknowledged.empty()) last_acknowledged_ = now;
  if (state_ != PeerState::left) state_ = PeerState::alive;
  rate_.set_receive_window(ack->receive_window);
  if (settled_.has_rtt_sample) rtt_.add_sample(settled_.rtt_sample, std::min(ack->delay, settled_.rtt_sample));
  if (!settled_.acknowledged.empty()) {
    // What the network alone took: how long threads wait for their core says nothing about its queues.
    const Duration network_rtt = std::max<Duration>(settled_.rtt_sample - ack->delay - age, microsecond);
    const bool timed = settled_.has_rtt_sample;
    const Time sent_at = now - settled_.rtt_sample;
    const Duration told = timed ? forward_queue_.add(now, sent_at, ack->arrived_at, settled_.card_wait) : 0;
    // Whatever a clock that was set, or a peer, says: the way there is a part of the round trip.
    const Duration queue = std::min(told, network_rtt);
    rate_.on_acknowledged(now, settled_.acknowledged_bytes, settled_.newest.delivery, settled_.newest.sent_at,
                          timed ? network_rtt : 0, queue);
    probe_backoff_ = 0;
  }
  ledger_.detect_loss(now, rtt_, settled_);
  settle(now);
  schedule_probe(now);
  return std::nullopt;
}

// Or before. What is lost of that says nothing about ports that are too full: a host stood still, and what had gathered
// for it came all at once when it went on.
bool Path::was_sent_into_silence(const SentPacket& packet) const {
  return answered_again_at_ != never && packet.sent_at < answered_again_at_;
}

// Tells the messages what became of their packets.
void Path::settle(Time now) {
  for (const SentPacket& packet : settled_.acknowledged) {
    if (OutgoingMessage* message = find(packet.message)) {
      message->acknowledged({packet.offset, packet.offset + packet.count}, packet.is_end);
    }
  }
  std::size_t num_lost_on_the_way = 0;
  for (const SentPacket& packet : settled_.lost) {
    ++counters_.packets_lost;
    if (!was_sent_into_silence(packet)) {
      ++num_lost_on_the_way;
      rate_.on_lost(packet.bytes);
      pacer_.burst_size().on_lost(packet.sent_at);
    }
    OutgoingMessage* message = find(packet.message);
    if (message != nullptr && !packet.is_end) message->lost({packet.offset, packet.offset + packet.count});
  }
  pacer_.burst_size().on_settled(now, settled_.acknowledged.size() + num_lost_on_the_way);
  // Between processes of one host there is no port that could overflow.
  if (!settings_.same_host) queue_->on_settled(settled_.acknowledged.size(), num_lost_on_the_way);
  sweep_finished();
}

// ---------------------------------------------------------------------------------------------------- messages

std::uint32_t Path::enqueue(MessageContent content) {
  const std::uint32_t id = next_message_++;
  if (state_ == PeerState::dead || state_ == PeerState::left) return id;  // it could only wait for nobody
  note_app_limited();
  const std::uint32_t chunk = chunk_elements(settings_.datagram_bytes, settings_.protection, content.format);
  messages_.emplace_back(id, std::move(content), chunk);
  return id;
}

void Path::release(std::uint32_t message, ElementRange range) {
  note_app_limited();
  if (OutgoingMessage* found = find(message)) found->release(range);
}

void Path::close(std::uint32_t message, const std::vector<ElementRange>& holes, const std::vector<Gap>& gaps,
                 std::vector<ElementRange> without_receiver) {
  OutgoingMessage* found = find(message);
  if (found == nullptr) return;
  note_app_limited();
  const bool was_sent = found->sent_once();
  found->close(holes, gaps, std::move(without_receiver));
  if (!was_sent && found->sent_once()) sent_.push_back(message);
}

void Path::cancel(std::uint32_t message) {
  messages_.remove_if([message](const OutgoingMessage& candidate) { return candidate.id() == message; });
}

OutgoingMessage* Path::find(std::uint32_t message) {
  if (message == 0) return nullptr;
  for (OutgoingMessage& candidate : messages_) {
    if (candidate.id() == message) return &candidate;
  }
  return nullptr;
}

void Path::sweep_finished() {
  messages_.remove_if([this](const OutgoingMessage& message) {
    if (!message.finished()) return false;
    finished_.push_back(message.id());
    return true;
  });
}

// What is small goes first: notes that steer the job, and operations that would wait for a whole bucket and hold up the
// step after it, as BatchNorm's buffers do. Then operations in their order; bulk state waits for all. A note begins
// only when the peer has room for all of it beside those begun: otherwise what it must refuse would keep out what it
// waits for.
const OutgoingMessage* Path::next_with_chunk() const {
  const OutgoingMessage* best = nullptr;
  int best_class = 3;
  std::uint64_t begun_note_bytes = 0;
  for (const OutgoingMessage& message : messages_) {
    if (message.content().stage == Stage::note && message.started()) begun_note_bytes += message.num_bytes();
  }
  for (const OutgoingMessage& message : messages_) {
    if (!message.has_chunk()) continue;
    const bool is_note = message.content().stage == Stage::note;
    if (is_note && !message.started() && begun_note_bytes + message.num_bytes() > settings_.max_note_bytes) continue;
    const int priority = message.num_bytes() <= small_message_bytes ? 0 : is_note ? 2 : 1;
    if (priority < best_class) {
      best = &message;
      best_class = priority;
    }
  }
  return best;
}

// ---------------------------------------------------------------------------------------------------- outgoing

Header Path::base_header(PacketType type) const {
  Header header;
  header.type = type;
  header.job = settings_.job;
  header.epoch = settings_.epoch;
  header.sender = settings_.own_rank;
  header.credit = own_credit_;
  return header;
}

// Fewer bytes are worth the work where the network is slow: the card, or what lies behind it. What is not known yet may
// be fast.
bool Path::packing_pays() const {
  if (settings_.same_host) return false;
  const double card = card_.bytes_per_second, paths = card_.paths_bytes_per_second;
  const double network = card == 0 ? paths : paths == 0 ? card : std::min(card, paths);
  return network > 0 && network < settings_.pack_below_bytes_per_second;
}

bool Path::fill(Time now, TransmitBatch& batch, const CardUse& card) {
  batch.clear();
  batch.peer = settings_.peer_rank;
  card_ = card;
  const std::uint64_t most = pacer_.burst_bytes(pacing_bytes_per_second());
  // Asked once: a burst that may begin may also end, else every wake-up would move a single packet.
  const bool pace_allows = card.has_room && pacer_.ready_at() <= now;
  while (std::optional<Planned> planned = plan_next(now, pace_allows)) {
    const std::size_t bytes = header_bytes + planned->payload_bytes + tag_bytes_of(settings_.protection);
    if (batch.num_datagrams != 0 && (bytes > batch.datagram_bytes || batch.total_bytes + bytes > most)) break;
    if (!batch.has_room(bytes)) break;
    const Duration card_wait = card.wait_behind(batch.total_bytes);
    append(now, *planned, batch);
    after_sent(now, *planned, bytes, card_wait);
    if (bytes < batch.datagram_bytes) break;  // a shorter datagram must be the last
  }
  if (batch.num_datagrams == 0) return false;
  last_sent_ = now;
  return true;
}

double Path::pacing_bytes_per_second() const { return rate_.pacing_bytes_per_second(card_share()); }

std::optional<Path::Planned> Path::plan_next(Time now, bool pace_allows) {
  if (auto planned = plan_control(now)) return planned;
  if (state_ != PeerState::alive) return std::nullopt;
  return plan_chunk(pace_allows);
}

// Acks, pings, goodbyes and ends: small, and neither paced nor counted against the window.
std::optional<Path::Planned> Path::plan_control(Time now) {
  if (ack_at_ <= now && !received_.empty()) {
    Planned planned;
    planned.header = base_header(PacketType::ack);
    planned.header.operation = results_wanted_from_;
    Ack ack;
    ack.delay = now - largest_received_at_;
    ack.arrived_at = wrapped_microseconds(largest_received_at_);
    ack.receive_window = settings_.receive_window;
    const std::uint64_t largest = received_.ranges().back().last;
    if (largest > acknowledged_span) received_.forget_below(largest - acknowledged_span);
    const std::size_t room = (payload_bytes(settings_.datagram_bytes, settings_.protection) - min_ack_bytes) / 8 + 1;
    ack.ranges = received_.newest_first(std::min(room, max_ack_ranges));
    ack_body_ = encode(ack);
    planned.payload = ack_body_.data();
    planned.payload_bytes = ack_body_.size();
    planned.asks_for_ack = false;
    return planned;
  }
  if (bye_pending_) {
    Planned planned;
    planned.header = base_header(PacketType::bye);
    planned.asks_for_ack = false;
    return planned;
  }
  if (ping_pending_) {
    Planned planned;
    planned.header = base_header(PacketType::ping);
    planned.header.flags = flag::ack_now;
    // A dead peer is still called, but its silence must not fill the ledger.
    planned.asks_for_ack = state_ == PeerState::alive;
    return planned;
  }
  if (state_ != PeerState::alive) return std::nullopt;
  for (OutgoingMessage& message : messages_) {
    if (message.end_due_at() > now) continue;
    Planned planned = plan_message_packet(message, PacketType::end);
    planned.is_end = true;
    planned.header.flags |= flag::last_percentile | flag::ack_now;
    return planned;
  }
  return std::nullopt;
}

std::optional<Path::Planned> Path::plan_chunk(bool pace_allows) {
  if (probe_pending_) {
    const SentPacket* oldest = ledger_.oldest_outstanding();
    OutgoingMessage* message = oldest == nullptr ? nullptr : find(oldest->message);
    // Every second probe is a ping: the peer may have no room for the chunk, and only what it takes is acknowledged.
    const bool repeats = probe_backoff_ % 2 == 1;
    if (repeats && message != nullptr && message->repeats() && !oldest->is_end) {
      message->send_again({oldest->offset, oldest->offset + oldest->count});
      Planned planned = plan_message_packet(*message, PacketType::data);
      planned.header.flags |= flag::ack_now;
      planned.is_probe = true;
      return planned;
    }
    Planned planned;
    planned.header = base_header(PacketType::ping);
    planned.header.flags = flag::ack_now;
    planned.is_probe = true;
    return planned;
  }
  const OutgoingMessage* message = next_with_chunk();
  if (message == nullptr) return std::nullopt;
  if (!pace_allows) return std::nullopt;
  const std::uint64_t room_for = ledger_.bytes_in_flight() + settings_.datagram_bytes;
  if (room_for > window_bytes()) return std::nullopt;
  Planned planned = plan_message_packet(*find(message->id()), PacketType::data);
  // What fills the window asks for the ack that opens it again.
  if (room_for + settings_.datagram_bytes > window_bytes()) planned.header.flags |= flag::ack_now;
  return planned;
}

// The lowest number of a note that is still under way.
std::uint32_t Path::oldest_note() const {
  std::uint32_t oldest = UINT32_MAX;
  for (const OutgoingMessage& message : messages_) {
    if (message.content().stage == Stage::note) oldest = std::min(oldest, message.content().operation);
  }
  return oldest;
}

Path::Planned Path::plan_message_packet(OutgoingMessage& message, PacketType type) {
  const MessageContent& content = message.content();
  Planned planned;
  planned.header = base_header(type);
  planned.message = &message;
  Header& header = planned.header;
  header.stage = content.stage;
  header.format = content.format;
  header.operation = content.operation;
  header.layout = content.layout;
  header.division = content.division;
  header.encoded = content.encoded;
  header.total = content.total;
  header.completion_us = content.completion_us;
  if (content.delivery == Delivery::exact || content.of_exact_operation) header.flags |= flag::exact;
  if (!content.average) header.flags |= flag::sum;
  if (content.stage == Stage::result && !message.open()) header.flags |= flag::closed;
  if (type == PacketType::end) return planned;

  // As large as those that are not packed: both kinds can leave in one batch.
  const std::uint32_t unpacked = chunk_elements(settings_.datagram_bytes, settings_.protection, content.format);
  planned.chunk = message.next_chunk(packing_pays() ? unpacked * element_bytes(content.format) : 0);
  header.type = planned.chunk.narrow   ? PacketType::narrow
                : planned.chunk.packed ? PacketType::packed
                                       : planned.chunk.type;
  if (planned.chunk.packed) header.packed_elements = static_cast<std::uint16_t>(planned.chunk.range.size());
  header.offset = planned.chunk.range.begin;
  if (planned.chunk.last_percentile) header.flags |= flag::last_percentile;
  if (planned.chunk.completes) header.flags |= flag::ack_now;
  if (planned.chunk.type == PacketType::hole) {
    header.missing = planned.chunk.range.size();
  } else {
    header.missing =
        content.stage == Stage::note ? content.operation - oldest_note() : message.missing_in(planned.chunk.range);
    header.without_receiver = message.lacks_receiver(planned.chunk.range);
    header.without_owner = content.without_owner;
    planned.payload = message.bytes_of(planned.chunk);
    planned.payload_bytes = planned.chunk.bytes;
  }
  return planned;
}

void Path::append(Time, Planned& planned, TransmitBatch& batch) {
  planned.header.key_phase = sealer_.next_phase();
  planned.header.transmission = ledger_.next_number();
  const std::size_t tag_size = tag_bytes_of(settings_.protection);
  const bool packs = planned.chunk.packed;
  const bool copies = settings_.protection == Protection::encrypted || planned.header.type == PacketType::ack || packs;
  std::uint8_t* header = batch.reserve(header_bytes + (copies ? planned.payload_bytes : 0) + tag_size);
  encode(planned.header, std::span<std::uint8_t, header_bytes>(header, header_bytes));
  std::uint8_t* copied = header + header_bytes;
  std::uint8_t* tag = copied + (copies ? planned.payload_bytes : 0);
  if (packs) {
    const std::size_t packed = kernels::pack(planned.message->packing_format(planned.chunk), copied,
                                             planned.payload_bytes, planned.payload, planned.chunk.range.size());
    // A caller who writes into a gradient that is on its way: better none of it than something that nobody meant.
    if (packed == 0) {
      kernels::fill_refused({copied, planned.payload_bytes}, planned.chunk.range.size());
    } else {
      std::fill(copied + packed, copied + planned.payload_bytes, std::uint8_t{0});
    }
    planned.payload = copied;
  }
  const std::span<const std::uint8_t> payload(planned.payload, planned.payload_bytes);
  if (settings_.protection != Protection::insecure) {
    sealer_.seal(planned.header.transmission, {header, header_bytes}, payload, copied,
                 std::span<std::uint8_t, tag_bytes>(tag, tag_bytes));
  }
  if (copies && !packs && settings_.protection != Protection::encrypted)
    std::copy(payload.begin(), payload.end(), copied);

  const std::size_t bytes = header_bytes + planned.payload_bytes + tag_size;
  if (copies || planned.payload_bytes == 0) {
    batch.parts.push_back({header, bytes});
    batch.parts_per_datagram.push_back(1);
  } else {
    // The gradient itself goes to the kernel; nothing is copied in this process.
    batch.parts.push_back({header, header_bytes});
    batch.parts.push_back({const_cast<std::uint8_t*>(planned.payload), planned.payload_bytes});
    if (tag_size != 0) batch.parts.push_back({tag, tag_size});
    batch.parts_per_datagram.push_back(tag_size != 0 ? 3 : 2);
  }
  if (batch.num_datagrams == 0) batch.datagram_bytes = static_cast<std::uint32_t>(bytes);
  ++batch.num_datagrams;
  batch.total_bytes += bytes;
}

void Path::after_sent(Time now, const Planned& planned, std::size_t datagram_bytes, Duration card_wait) {
  ++counters_.datagrams_sent;
  counters_.bytes_sent += datagram_bytes;
  switch (planned.header.type) {
    case PacketType::ack:
      ack_at_ = never;
      unacknowledged_packets_ = 0;
      break;
    case PacketType::bye: bye_pending_ = false; break;
    case PacketType::ping: ping_pending_ = false; break;
    case PacketType::end: planned.message->end_sent(now, std::max(rtt_.smoothed(), min_end_spacing)); break;
    default: {
      const bool was_sent = planned.message->sent_once();
      planned.message->chunk_sent(planned.chunk);
      if (planned.chunk.again && !planned.is_probe) plan_echo(now, *planned.message, planned.chunk.range);
      if (!was_sent && planned.message->sent_once()) sent_.push_back(planned.message->id());
      break;
    }
  }
  if (planned.is_probe) {
    probe_pending_ = false;
    ++counters_.probes;
  }
  if (!planned.asks_for_ack) {
    ledger_.record_unacknowledged();
    return;
  }
  SentPacket packet;
  packet.sent_at = now;
  packet.card_wait = card_wait;
  packet.bytes = static_cast<std::uint32_t>(datagram_bytes);
  packet.message = planned.message == nullptr ? 0 : planned.message->id();
  packet.offset = planned.chunk.range.begin;
  packet.count = planned.chunk.range.size();
  packet.is_end = planned.is_end;
  note_app_limited();
  packet.delivery = rate_.on_sent(now, ledger_.bytes_in_flight());
  ledger_.record(packet);
  if (planned.message != nullptr && !planned.is_end) {
    pacer_.on_sent(now, datagram_bytes, pacing_bytes_per_second());
    if (planned.chunk.again) ++counters_.resent;
  }
  schedule_probe(now);
  if (planned.is_end) sweep_finished();
}

// Pings, ends and the first and last packets of a burst travel on a path that could carry more.
void Path::note_app_limited() {
  const bool window_open = ledger_.bytes_in_flight() + settings_.datagram_bytes <= window_bytes();
  if (window_open && next_with_chunk() == nullptr) rate_.on_app_limited(ledger_.bytes_in_flight());
}

// ---------------------------------------------------------------------------------------------------- time

void Path::schedule_probe(Time now) {
  if (!ledger_.has_outstanding() || state_ != PeerState::alive) {
    probe_at_ = never;
    return;
  }
  const Duration interval =
      std::min(rtt_.probe_timeout(max_ack_delay) << std::min(probe_backoff_, 10), max_probe_interval);
  probe_at_ = now + interval;
}

// Nothing that is sent later will tell of the loss of what leaves last: if it was lost before and is lost again, that
// takes longer to find out than all that came before it. So it goes twice.
void Path::plan_echo(Time now, const OutgoingMessage& message, ElementRange range) {
  const auto same = [&](const Echo& echo) { return echo.message == message.id() && echo.range.begin == range.begin; };
  if (std::erase_if(echoes_, same) != 0) return;  // this was the second time
  if (message.content().delivery == Delivery::exact || !message.sent_once() || next_with_chunk() != nullptr) return;
  if (echoes_.size() < max_echoes) echoes_.push_back({message.id(), range, now + echo_spacing});
}

void Path::queue_echoes(Time now) {
  std::erase_if(echoes_, [this](const Echo& echo) {
    const OutgoingMessage* message = find(echo.message);
    return message == nullptr || message->is_acknowledged(echo.range);
  });
  for (Echo& echo : echoes_) {
    if (echo.due_at > now) continue;
    find(echo.message)->send_again(echo.range);
    echo.due_at = never;
  }
}

Time Path::next_timer() const {
  if (state_ == PeerState::left) return ack_at_;
  const Duration ping_interval = state_ == PeerState::joining ? joining_ping_interval : settings_.heartbeat_interval;
  Time next = std::min({ack_at_, probe_at_, ledger_.loss_check_at(), last_sent_ + ping_interval});
  if (state_ != PeerState::alive) return next;
  next = std::min({next, last_heard_ + settings_.silence_limit, unheard_at()});
  for (const OutgoingMessage& message : messages_) next = std::min(next, message.end_due_at());
  for (const Echo& echo : echoes_) next = std::min(next, echo.due_at);
  // Blocked by the window: the ack that opens it is the wake-up. Blocked by the pacer: its clock is.
  const bool window_open = ledger_.bytes_in_flight() + settings_.datagram_bytes <= window_bytes();
  if (window_open && next_with_chunk() != nullptr) next = std::min(next, pacer_.ready_at());
  return next;
}

void Path::on_timer(Time now) {
  if (state_ == PeerState::left) return;
  const bool silent = now - last_heard_ >= settings_.silence_limit || now >= unheard_at();
  if (state_ == PeerState::alive && silent) give_up(PeerState::dead);
  const Duration ping_interval = state_ == PeerState::joining ? joining_ping_interval : settings_.heartbeat_interval;
  if (now - last_sent_ >= ping_interval) ping_pending_ = true;
  if (ledger_.loss_check_at() <= now) {
    settled_.clear();
    ledger_.detect_loss(now, rtt_, settled_);
    settle(now);
  }
  queue_echoes(now);
  if (probe_at_ <= now) {
    probe_pending_ = true;
    ++probe_backoff_;
    schedule_probe(now);
  }
}

void Path::forgive_silence(Time now) {
  last_heard_ = std::max(last_heard_, now - settings_.silence_limit / 2);
  last_acknowledged_ = std::max(last_acknowledged_, now - settings_.silence_limit / 2);
}

// When to conclude that the peer does not hear us: heartbeats ask for acks, so there is always something to answer.
Time Path::unheard_at() const {
  if (!ledger_.has_outstanding()) return never;
  return std::max(last_acknowledged_, ledger_.oldest_sent_at()) + settings_.silence_limit;
}

Time Path::unanswered_since() const {
  return ledger_.has_outstanding() ? std::max(last_heard_, ledger_.oldest_sent_at()) : never;
}

// Nobody can answer sooner than in a round trip.
bool Path::is_long_silence(Duration silence) const { return silence >= long_silence + rate_.base_rtt(); }

Duration Path::silence_since(Time now, Time then) const {
  Duration longest = 0;
  if (answered_again_at_ != never) longest = std::clamp<Duration>(answered_again_at_ - then, 0, last_silence_);
  if (const Time unanswered = unanswered_since(); unanswered != never && is_long_silence(now - unanswered)) {
    longest = std::max(longest, now - std::max(unanswered, then));
  }
  return longest;
}

void Path::on_bye() { give_up(PeerState::left); }

void Path::give_up(PeerState state) {
  state_ = state;
  settled_.clear();
  ledger_.abandon(settled_);
  counters_.packets_lost += settled_.lost.size();
  messages_.clear();
  echoes_.clear();
  probe_at_ = never;
  probe_pending_ = false;
  probe_backoff_ = 0;
}

}  // namespace holdfast
