#include "core/endpoint.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/join.h"
#include "kernels/packing.h"

namespace holdfast {
namespace {

// The kernel charges a datagram's bookkeeping to the buffer too; half of it is left for that.
std::uint32_t window_share(const EndpointSettings& settings) {
  const std::uint64_t peers = std::max(1, settings.num_ranks - 1);
  const std::uint64_t share = settings.receive_buffer_bytes / 2 / peers;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(share, 2 * settings.datagram_bytes, UINT32_MAX));
}

static_assert(max_datagram_bytes <= TransmitBatch::max_bytes);

const EndpointSettings& checked(const EndpointSettings& settings) {
  if (settings.datagram_bytes < min_datagram_bytes || settings.datagram_bytes > max_datagram_bytes) {
    throw std::invalid_argument("datagram_bytes must be between 256 and 65280");
  }
  if (settings.num_ranks > max_ranks) throw std::invalid_argument("a job has at most 4096 ranks");
  if (settings.rank >= settings.num_ranks || settings.peers.size() != settings.num_ranks) {
    throw std::invalid_argument("rank and peers must fit num_ranks");
  }
  if (settings.packets_per_key == 0 || settings.packets_per_key > default_packets_per_key) {
    throw std::invalid_argument("a key seals between 1 and 2^23 packets");
  }
  return settings;
}

// A rank that was away has to end what it is at, to ask where the others are, and to compute a gradient.
constexpr std::uint8_t operations_to_come_back = 8;
// While datagrams stream in, so many gather between two wake-ups where the peers' cards are like this one: eight ranks
// on two cores spend a quarter of their time waking up otherwise. Fast cards fill the usual pause with more of them.
constexpr double datagrams_per_wakeup = 10;
constexpr Duration usual_wakeup_spacing = 500 * microsecond;
constexpr Duration longest_wakeup_spacing = millisecond;
// What waits in the card's queue keeps it busy while this thread does not run; more would only delay acknowledgements,
// which wait behind it.
constexpr Duration card_queue = millisecond;
constexpr double min_card_queue_bytes = 32 * 1024;

// It may find room when it is sent again.
bool had_no_room(Drop drop) {
  return drop == Drop::beyond_window || drop == Drop::early_over_cap || drop == Drop::oversized;
}

}  // namespace

Endpoint::Endpoint(const EndpointSettings& settings, Time now)
    : settings_(checked(settings)),
      hierarchy_(settings.rank, settings.num_ranks, settings.num_groups, settings.hosts_meet),
      paths_(settings.num_ranks),
      known_states_(settings.num_ranks, PeerState::joining),
      patience_(settings.num_ranks, 0),
      failed_authentications_(settings.num_ranks, 0),
      results_wanted_from_(settings.num_ranks, 0),
      last_tick_(now),
      sending_order_(settings.rank, settings.num_ranks),
      note_outbox_(paths_) {
  inboxes_.reserve(settings.num_ranks);
  for (std::uint16_t peer = 0; peer < settings.num_ranks; ++peer) inboxes_.emplace_back(settings.max_note_bytes);
  PathSettings path;
  path.job = settings.job;
  path.epoch = settings.epoch;
  path.own_rank = settings.rank;
  path.own_process = settings.peers.at(settings.rank).process;
  path.job_key = settings.job_key;
  path.protection = settings.protection;
  path.packets_per_key = settings.packets_per_key;
  path.datagram_bytes = settings.datagram_bytes;
  path.receive_window = window_share(settings);
  path.max_note_bytes = settings.max_note_bytes;
  path.initial_rtt = settings.initial_rtt;
  path.rate_rule = settings.rate_rule;
  path.pack_below_bytes_per_second = settings.pack_below_bytes_per_second;
  path.heartbeat_interval = settings.heartbeat_interval;
  path.silence_limit = settings.silence_limit;
  const auto queue = std::make_shared<QueueAllowance>();
  for (std::uint16_t peer = 0; peer < settings.num_ranks; ++peer) {
    if (peer == settings.rank) continue;
    path.peer_rank = peer;
    path.peer_process = settings.peers.at(peer).process;
    path.same_host = settings.peers.at(peer).same_host;
    paths_[peer] = std::make_unique<Path>(path, now, queue);
  }
}

// ---------------------------------------------------------------------------------------------------- calls

std::uint32_t Endpoint::call(Time now, const Call& call) {
  const std::uint32_t number = call.number ? *call.number : next_operation_++;
  if (settings_.hosts_meet) {
    reserved_.erase(number);
    refuse(call.between_groups ? number : number | between_groups_bit);
  }
  call_as(now, call.between_groups ? number | between_groups_bit : number, call);
  return number;
}

void Endpoint::call_as(Time now, std::uint32_t number, const Call& call) {
  if (forgotten_.erase(number) != 0) {
    forgotten_.erase(number | between_groups_bit);
    report_forgotten(call, call_of(number));
    return;
  }
  auto found = operations_.find(number);
  if (found == operations_.end()) {
    found = open_operation(now, number, Operation::identity_of(call), settings_.rank);
  }
  found->second->on_call(now, call);
  after_event(now, number);
}

void Endpoint::skip_to(Time now, std::uint32_t operation) {
  if (operation <= next_operation_) return;
  for (const std::uint32_t number : open_numbers()) {
    const auto found = operations_.find(number);
    if (found == operations_.end() || call_of(number) < next_operation_ || call_of(number) >= operation) continue;
    if (!found->second->called()) found->second->abandon();
    after_event(now, number);
  }
  next_operation_ = operation;
  std::erase_if(forgotten_, [operation](std::uint32_t number) { return call_of(number) < operation; });
}

Endpoint::OpenOperations::iterator Endpoint::open_operation(Time now, std::uint32_t number,
                                                            const Operation::Identity& identity,
                                                            std::uint16_t identified_by) {
  Outbox& outbox = *this;
  return operations_
      .emplace(number,
               std::make_unique<Operation>(number, settings_.rank, settings_.num_ranks, identity, identified_by, now,
                                           parameters_for(call_of(number)), outbox, pool_, hierarchy_.part_of(number)))
      .first;
}

// The others finished this operation so long ago that its state is gone: nothing of it can be had any more.
void Endpoint::report_forgotten(const Call& call, std::uint32_t number) {
  std::memset(call.data, 0, call.count * element_bytes(call.format));
  OperationReport report;
  report.operation = number;
  report.delivery = call.delivery;
  report.format = call.format;
  report.total = call.count;
  report.expected = std::uint64_t{call.count} * settings_.num_ranks;
  report.missing = {{0, call.count}};
  report.not_received = call.count;
  report.counted = {{{0, call.count}, 0}};
  report.peers.resize(settings_.num_ranks);
  report.contributions.end = report.results.end = StageEnd::bound;
  if (call.delivery == Delivery::exact) {
    report.status = Status::deadline_exceeded;
    report.culprits = {settings_.rank};
  }
  reports_.push_back(std::move(report));
}

std::uint32_t Endpoint::send_note(Time now, std::uint16_t peer, std::uint32_t channel, std::vector<std::uint8_t> bytes,
                                  Duration deadline) {
  if (peer >= settings_.num_ranks || peer == settings_.rank) throw std::invalid_argument("a note goes to another rank");
  if (!is_alive(peer)) return note_outbox_.send_in_vain(peer);
  return note_outbox_.send(peer, channel, std::move(bytes), now + deadline);
}

void Endpoint::publish(const Parameters& parameters) {
  std::erase_if(parameters_, [&](const Parameters& old) { return old.from_operation >= parameters.from_operation; });
  parameters_.push_back(parameters);
  // Of an operation that others opened early, what was summed so far is encoded as it was then. If the own call will be
  // encoded otherwise, the two must not meet: the operation begins anew.
  std::erase_if(operations_, [&](const auto& open) {
    Operation& operation = *open.second;
    if (operation.called() || operation.is_encoded_by(parameters_for(call_of(operation.number())))) return false;
    operation.abandon();
    return true;
  });
  // Blocks that no open or future operation can name any more.
  const std::uint32_t oldest = oldest_to_come();
  while (parameters_.size() > 1 && parameters_[1].from_operation <= oldest) parameters_.erase(parameters_.begin());
  for (const auto& path : paths_) {
    if (path) path->advertise_credit(parameters.credit);
  }
}

std::uint32_t Endpoint::oldest_to_come() const {
  std::uint32_t oldest = reserved_.empty() ? next_operation_ : *reserved_.begin();
  for (const auto& [number, operation] : operations_) oldest = std::min(oldest, call_of(number));
  return oldest;
}

const Parameters& Endpoint::parameters_for(std::uint32_t operation) const {
  const auto later = std::find_if(parameters_.begin(), parameters_.end(),
                                  [operation](const Parameters& block) { return block.from_operation > operation; });
  return later == parameters_.begin() ? parameters_.front() : *std::prev(later);
}

void Endpoint::say_goodbye() {
  for (const auto& path : paths_) {
    if (path) path->say_goodbye();
  }
}

// ---------------------------------------------------------------------------------------------------- datagrams

void Endpoint::receive(Time now, std::span<std::uint8_t> datagram, Duration age) {
  if (const auto drop = accept(now, datagram, age)) ++drops_[static_cast<std::size_t>(*drop)];
}

std::optional<Drop> Endpoint::accept(Time now, std::span<std::uint8_t> datagram, Duration age) {
  const std::size_t tag_size = tag_bytes_of(settings_.protection);
  if (datagram.size() < header_bytes + tag_size) return Drop::truncated;
  const std::size_t payload_size = datagram.size() - header_bytes - tag_size;
  Header header;
  if (const auto drop = decode(datagram, payload_size, header)) return drop;
  if (header.job != settings_.job) return Drop::foreign_job;
  if (header.epoch != settings_.epoch) return Drop::foreign_epoch;
  if (header.sender >= settings_.num_ranks || header.sender == settings_.rank) return Drop::unknown_sender;
  const std::span<std::uint8_t> payload = datagram.subspan(header_bytes, payload_size);
  Path& path = *paths_[header.sender];
  if (const auto drop = path.open(now, header, datagram.first(header_bytes), payload, datagram.last(tag_size))) {
    if (*drop == Drop::authentication) ++failed_authentications_[header.sender];
    return drop;
  }
  const auto drop = dispatch(now, header, payload, age);
  if (!drop || !had_no_room(*drop)) path.acknowledge(now, header, age);
  forward_path_events(now, header.sender);
  if (path.state() != known_states_[header.sender]) notice_peer_changes(now);
  return drop;
}

std::optional<Drop> Endpoint::dispatch(Time now, const Header& header, std::span<const std::uint8_t> payload,
                                       Duration age) {
  switch (header.type) {
    case PacketType::ack: {
      const auto drop = paths_[header.sender]->on_ack(now, payload, age);
      share_bandwidth();
      if (!drop) stop_unwanted_results(now, header.sender, header.operation);
      return drop;
    }
    case PacketType::ping: return std::nullopt;
    case PacketType::bye: paths_[header.sender]->on_bye(); return std::nullopt;
    default: break;
  }
  if (is_packed(header.type)) return unpack_to_operation(now, header, payload);
  if (header.stage != Stage::note) return to_operation(now, header, payload);
  NoteInbox& inbox = inboxes_[header.sender];
  const auto drop = inbox.on_packet(header, payload);
  for (Note& note : inbox.take_complete()) notes_.push_back(std::move(note));
  return drop;
}

// A rank that has ended an operation without all results would have the rest of them before everything that it waits
// for now.
void Endpoint::stop_unwanted_results(Time now, std::uint16_t peer, std::uint32_t wanted_from) {
  if (!hierarchy_.flat() || wanted_from <= results_wanted_from_[peer]) return;
  results_wanted_from_[peer] = wanted_from;
  for (const std::uint32_t number : open_numbers()) {
    if (number >= wanted_from) break;
    operations_.find(number)->second->on_results_unwanted(peer);
    after_event(now, number);
  }
}

// From here on packed elements are like any others, and narrow ones are float32.
std::optional<Drop> Endpoint::unpack_to_operation(Time now, Header header, std::span<const std::uint8_t> payload) {
  if (header.packed_elements > max_packing_ratio * chunk_elements(header.format)) return Drop::malformed;
  const std::size_t count = header.packed_elements;
  const std::size_t num_bytes = count * element_bytes(header.format);
  const bool narrow = header.type == PacketType::narrow;
  const Format packed_as = narrow ? Format::bf16 : header.format;
  unpacked_.resize(std::max(unpacked_.size(), num_bytes + count * (narrow ? element_bytes(packed_as) : 0)));
  std::uint8_t* unpacked = unpacked_.data() + (narrow ? num_bytes : 0);
  if (!kernels::unpack(packed_as, unpacked, count, payload)) return Drop::malformed;
  if (narrow) {
    kernels::cast(header.format, unpacked_.data(), packed_as, unpacked, count);
  } else {
    header.type = PacketType::data;
    header.packed_elements = 0;
  }
  return to_operation(now, header, std::span(unpacked_).first(num_bytes));
}

std::optional<Drop> Endpoint::to_operation(Time now, const Header& header, std::span<const std::uint8_t> payload) {
  const std::uint32_t number = header.operation;
  if (is_between_groups(number) && hierarchy_.flat()) return Drop::beyond_window;
  auto found = operations_.find(number);
  if (found == operations_.end()) {
    if (is_past(number)) {
      if (header.type == PacketType::end) return std::nullopt;  // an end repeated, nothing lost
      if (const auto ended = retired_ends_.find(age_of(number)); ended != retired_ends_.end()) {
        count_late(now, header, payload.size(), ended->second);
      }
      return Drop::late;
    }
    if (call_of(number) >= next_operation_ && call_of(number) - next_operation_ >= settings_.max_open_operations)
      return Drop::beyond_window;
    if (header.total * std::uint64_t{element_bytes(header.format)} > settings_.max_operation_bytes)
      return Drop::oversized;
    // Of the other groups only those with this rank's place have to do with it, except for one that says that it called
    // something else.
    if (!hierarchy_.part_of(number).team.has(header.sender) && header.type != PacketType::end) return Drop::misplaced;
    const Operation::Identity identity = Operation::identity_of(header);
    if (!may_hold_early(Operation::bookkeeping_bytes(identity, settings_.num_ranks))) return Drop::early_over_cap;
    found = open_operation(now, number, identity, header.sender);
  }
  const auto drop = found->second->on_packet(now, header, payload);
  if (drop == Drop::late && !found->second->closed_without(header.sender)) {
    count_late(now, header, payload.size(), found->second->early_ends());
  }
  after_event(now, number);
  return drop;
}

// What comes after the hard bound no longer silence would have saved.
void Endpoint::count_late(Time now, const Header& header, std::size_t payload_bytes, const EarlyEnds& ends) {
  if (now < ends.of(header.stage)) late_elements_ += covered_elements(header, payload_bytes);
}

bool Endpoint::fill(Time now, TransmitBatch& batch, std::uint64_t card_queue_bytes) {
  card_rate_.on_queue(now, card_queue_bytes);
  const CardUse card = card_use(card_queue_bytes);
  for (const std::uint16_t peer : sending_order_.peers([this](auto peer) { return paths_[peer]->has_chunk(); })) {
    if (!paths_[peer]->fill(now, batch, card)) continue;
    const std::uint64_t through_card = paths_[peer]->rate().same_host() ? 0 : batch.total_bytes;
    card_rate_.on_sent(through_card);
    sending_order_.has_sent(peer, through_card);
    forward_path_events(now, peer);
    return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------- bookkeeping

void Endpoint::after_event(Time now, std::uint32_t number) {
  if (!hierarchy_.flat()) {
    sum_groups(now, call_of(number));
    settle(call_of(number) | between_groups_bit);
  }
  settle(call_of(number));
}

// Reports an operation that has ended, and forgets one that owes nothing any more.
void Endpoint::settle(std::uint32_t number) {
  const auto found = operations_.find(number);
  if (found == operations_.end()) return;
  const Operation& operation = *found->second;
  const bool is_called_for = !is_between_groups(number) || settings_.hosts_meet;
  if (operation.ended() && is_called_for && reported_.insert(number).second) {
    reports_.push_back(operation.report());
    reports_.back().operation = call_of(number);
    complete_report(reports_.back());
    tell_which_results_are_wanted();
  }
  if (!operation.retired()) return;
  if (!operation.called() && may_be_called(number)) forgotten_.insert(number);
  if (operation.called()) forgotten_.erase(number | between_groups_bit);
  reported_.erase(number);
  if (operation.called() && !operation.closed_without_somebody()) {
    retired_ends_.insert_or_assign(age_of(number), operation.early_ends());
    if (retired_ends_.size() > settings_.max_open_operations) retired_ends_.erase(retired_ends_.begin());
  }
  operations_.erase(found);
}

// With the next acknowledgements. A rank of a group passes on what it is sent, also when it has given up itself.
void Endpoint::tell_which_results_are_wanted() {
  if (!hierarchy_.flat()) return;
  const auto waits = [](const auto& open) { return open.second->called() && !open.second->ended(); };
  const auto oldest = std::find_if(operations_.begin(), operations_.end(), waits);
  const std::uint32_t to_come = reserved_.empty() ? next_operation_ : *reserved_.begin();
  const std::uint32_t wanted_from = oldest == operations_.end() ? to_come : std::min(to_come, oldest->first);
  for (const auto& path : paths_) {
    if (path) path->want_results_from(wanted_from);
  }
}

// What only the whole rank knows.
void Endpoint::complete_report(OperationReport& report) {
  report.late_elements = std::exchange(late_elements_, 0);
  std::uint64_t expected = 0;
  std::uint64_t received = 0;
  for (const auto& path : paths_) {
    if (!path) continue;
    expected += path->counters().datagrams_expected;
    received += path->counters().datagrams_received;
  }
  report.datagrams_expected = expected - std::exchange(reported_expected_, expected);
  report.datagrams_received = received - std::exchange(reported_received_, received);
}

void Endpoint::sweep_operations(Time now) {
  for (const std::uint32_t number : open_numbers()) after_event(now, number);
}

std::vector<std::uint32_t> Endpoint::open_numbers() const {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, operation] : operations_) numbers.push_back(number);
  return numbers;
}

const Operation* Endpoint::operation(std::uint32_t number) const {
  const auto found = operations_.find(number);
  return found == operations_.end() ? nullptr : found->second.get();
}

void Endpoint::forward_path_events(Time now, std::uint16_t peer) {
  const auto sent = paths_[peer]->take_sent();
  const auto finished = paths_[peer]->take_finished();
  if (sent.empty() && finished.empty()) return;
  for (const std::uint32_t message : sent) {
    for (auto& [number, operation] : operations_) operation->on_message_sent(peer, message);
  }
  for (const std::uint32_t message : finished) {
    for (auto& [number, operation] : operations_) operation->on_message_finished(peer, message);
    note_outbox_.on_message_finished(peer, message);
  }
  sweep_operations(now);
}

void Endpoint::notice_peer_changes(Time now) {
  for (std::uint16_t peer = 0; peer < settings_.num_ranks; ++peer) {
    if (!paths_[peer] || paths_[peer]->state() == known_states_[peer]) continue;
    const PeerState state = paths_[peer]->state();
    known_states_[peer] = state;
    peer_changes_.push_back({peer, state, now - paths_[peer]->last_heard()});
    if (state != PeerState::dead && state != PeerState::left) continue;
    // One that is only silent may be sending still, and takes what was acknowledged for delivered.
    if (state == PeerState::left) inboxes_[peer].forget_incomplete();
    note_outbox_.on_peer_gone(peer);
    for (auto& [number, operation] : operations_) operation->on_peer_gone(now, peer);
  }
  sweep_operations(now);
}

// ---------------------------------------------------------------------------------------------------- time

void Endpoint::on_timer(Time now) {
  const bool slept = now - last_tick_ > settings_.silence_limit / 2;
  last_tick_ = now;
  for (std::uint16_t peer = 0; peer < settings_.num_ranks; ++peer) {
    if (!paths_[peer]) continue;
    if (slept) paths_[peer]->forgive_silence(now);
    paths_[peer]->on_timer(now);
    forward_path_events(now, peer);
  }
  notice_peer_changes(now);
  note_outbox_.on_timer(now);
  for (const std::uint32_t number : open_numbers()) {
    const auto found = operations_.find(number);
    if (found == operations_.end()) continue;  // one event can settle two parts of a call
    found->second->on_timer(now);
    after_event(now, number);
  }
}

Time Endpoint::next_timer() const {
  Time next = note_outbox_.next_timer();
  for (const auto& path : paths_) {
    if (path) next = std::min(next, path->next_timer());
  }
  for (const auto& [number, operation] : operations_) next = std::min(next, operation->next_timer());
  return next;
}

void Endpoint::share_bandwidth() {
  double sum = 0;
  int sharing = 0;
  for (const auto& path : paths_) {
    if (!path || path->state() != PeerState::alive || path->rate().bandwidth_bytes_per_second() == 0) continue;
    if (path->rate().same_host()) continue;  // its traffic never sees the card
    sum += path->rate().bandwidth_bytes_per_second();
    ++sharing;
  }
  bandwidth_bytes_per_second_ = sum;
  if (sharing == 0) return;
  for (const auto& path : paths_) {
    if (path) path->set_fair_bandwidth(sum / sharing);
  }
}

CardUse Endpoint::card_use(std::uint64_t queue_bytes) const {
  CardUse use;
  use.has_room = queue_bytes == 0 || queue_bytes < wanted_card_queue_bytes();
  use.waiting_bytes = queue_bytes;
  use.bytes_per_second = card_rate_.bytes_per_second();
  use.paths_bytes_per_second = bandwidth_bytes_per_second_;
  if (operations_.empty()) return use;
  for (const auto& path : paths_) {
    if (!path || path->state() != PeerState::alive || path->rate().same_host()) continue;
    ++use.num_paths;
    if (path->has_messages()) ++use.num_busy;
  }
  return use;
}

std::uint64_t Endpoint::wanted_card_queue_bytes() const {
  return static_cast<std::uint64_t>(
      std::max(min_card_queue_bytes, bandwidth_bytes_per_second_ * in_seconds(card_queue)));
}

Duration Endpoint::wakeup_spacing() const {
  Duration spacing = usual_wakeup_spacing;
  for (const auto& path : paths_) {
    if (path && path->state() == PeerState::alive) spacing = std::min(spacing, path->wakeup_spacing());
  }
  if (spacing == 0 || card_rate_.bytes_per_second() == 0) return spacing;
  const double gathering = datagrams_per_wakeup * settings_.datagram_bytes / card_rate_.bytes_per_second();
  return std::clamp(static_cast<Duration>(gathering * second), spacing, longest_wakeup_spacing);
}

// ---------------------------------------------------------------------------------------------------- outbox

std::uint32_t Endpoint::enqueue(std::uint16_t peer, MessageContent content) {
  return paths_[peer]->enqueue(std::move(content));
}

void Endpoint::release(std::uint16_t peer, std::uint32_t message, ElementRange range) {
  paths_[peer]->release(message, range);
}

void Endpoint::close(std::uint16_t peer, std::uint32_t message, const std::vector<ElementRange>& holes,
                     const std::vector<Gap>& gaps, std::vector<ElementRange> without_receiver) {
  paths_[peer]->close(message, holes, gaps, std::move(without_receiver));
}

void Endpoint::cancel(std::uint16_t peer, std::uint32_t message) { paths_[peer]->cancel(message); }

std::uint32_t Endpoint::chunk_elements(Format format) const {
  return holdfast::chunk_elements(settings_.datagram_bytes, settings_.protection, format);
}

bool Endpoint::is_alive(std::uint16_t peer) const {
  if (!paths_[peer]) return true;
  const PeerState state = paths_[peer]->state();
  return state == PeerState::alive || state == PeerState::joining;
}

void Endpoint::note_part(Time now, std::uint16_t peer, bool took_part, Duration stage_bound) {
  const Time unanswered = unanswered_since(peer);
  if (took_part) {
    patience_[peer] = 0;
  } else if (!is_alive(peer) || (unanswered != never && now - unanswered >= stage_bound)) {
    patience_[peer] = operations_to_come_back;
  } else if (patience_[peer] != 0) {
    --patience_[peer];  // it answers: from then on it is waited for again, wherever it is
  }
}

bool Endpoint::may_hold_early(std::size_t bytes) const { return early_bytes() + bytes <= settings_.early_bytes_cap; }

std::uint8_t Endpoint::credit_of(std::uint16_t peer) const { return paths_[peer]->peer_credit(); }

std::size_t Endpoint::early_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [number, operation] : operations_) bytes += operation->early_bytes();
  return bytes;
}

bool Endpoint::owes_nothing() const {
  return std::none_of(paths_.begin(), paths_.end(), [](const auto& path) { return path && path->has_messages(); });
}

bool Endpoint::all_peers_alive() const {
  return std::all_of(paths_.begin(), paths_.end(),
                     [](const auto& path) { return !path || path->state() == PeerState::alive; });
}

}  // namespace holdfast
