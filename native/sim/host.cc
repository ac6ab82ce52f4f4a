#include "sim/host.h"

#include <algorithm>
#include <string>
#include <utility>

namespace holdfast::sim {
namespace {

std::uint64_t digest_of(std::span<const std::uint8_t> bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.value();
}

constexpr Duration call_spacing = microsecond;

// What may happen to a datagram that somebody without the key made or damaged.
bool is_refusal_of_strangers(Drop drop) {
  switch (drop) {
    case Drop::truncated:
    case Drop::version:
    case Drop::malformed:
    case Drop::foreign_job:
    case Drop::foreign_epoch:
    case Drop::unknown_sender:
    case Drop::key_phase:
    case Drop::authentication:
    case Drop::replay:
    case Drop::too_old: return true;
    default: return false;
  }
}

}  // namespace

Host::Host(const EndpointSettings& settings, const Workload& workload, std::size_t socket_queue_bytes,
           Steering& steering, Network& network, EventQueue& events, Truth& truth, Violations& violations)
    : endpoint_(std::make_unique<Endpoint>(settings, 0)),
      workload_(workload),
      steering_(steering),
      network_(network),
      events_(events),
      truth_(truth),
      violations_(violations),
      socket_capacity_(socket_queue_bytes),
      operations_(workload.operations().size()),
      notes_(workload.notes().size()),
      notes_received_(workload.notes().size(), 0),
      delivered_numbers_(settings.num_ranks),
      path_was_idle_(settings.num_ranks, false) {
  path_was_idle_[settings.rank] = true;
}

std::string Host::where(Time now) const {
  return "rank " + std::to_string(rank()) + " at " + std::to_string(static_cast<double>(now) / 1e6) + " ms";
}

// ---------------------------------------------------------------------------------------------------- events

void Host::on_datagram(Time now, Datagram datagram) {
  if (dead_) return;
  if (!frozen_) {
    receive(now, datagram);
    pump(now);
    return;
  }
  if (socket_bytes_ + datagram.bytes.size() > socket_capacity_) {
    ++network_.counters().dropped_at_socket;
    return;
  }
  socket_bytes_ += datagram.bytes.size();
  socket_.push_back(std::move(datagram));
}

void Host::start(Time now) { pump(now); }

void Host::publish(const Parameters& parameters) {
  parameters_ = parameters;
  endpoint_->publish(parameters);
}

void Host::on_wake(Time now) {
  if (!runs() || now != wake_at_) return;
  wake_at_ = never;
  ++num_wakes_;
  pump(now);
}

void Host::on_call(Time now, std::uint32_t operation) {
  if (dead_) return;
  if (frozen_) {
    deferred_calls_.push_back(operation);
    return;
  }
  if (!deferred_calls_.empty() && deferred_calls_.front() < operation) {
    events_.schedule(now + call_spacing, EventKind::calls, rank(), operation);  // a caller keeps its order
    return;
  }
  if (!deferred_calls_.empty()) deferred_calls_.pop_front();
  call(now, operation);
  pump(now);
}

void Host::on_send_note(Time now, std::size_t index) {
  if (dead_) return;
  if (frozen_) {
    deferred_notes_.push_back(index);
    return;
  }
  const PlannedNote& planned = workload_.notes()[index];
  HostNote& note = notes_[index];
  note.sent = true;
  note.sent_at = local(now);
  note.ticket = endpoint_->send_note(local(now), planned.to, static_cast<std::uint32_t>(index),
                                     workload_.note_bytes(index), workload_.note_deadline());
  pump(now);
}

void Host::on_freeze(Time now) {
  if (!runs()) return;
  frozen_ = true;
  frozen_since_ = now;
}

// As the reactor does: first everything that waits in the socket, then the timers.
void Host::on_thaw(Time now) {
  if (!frozen_ || dead_) return;
  frozen_ = false;
  absences_.push_back({local(frozen_since_), local(now)});
  for (; !socket_.empty(); socket_.pop_front()) receive(now, socket_.front());
  socket_bytes_ = 0;
  pump(now);
  // The caller's thread runs again, too, but not in the same nanosecond as the reactor.
  Time at = now;
  for (const std::uint32_t operation : deferred_calls_) {
    events_.schedule(at += call_spacing, EventKind::calls, rank(), operation);
  }
  for (; !deferred_notes_.empty(); deferred_notes_.pop_front()) on_send_note(now, deferred_notes_.front());
}

void Host::on_death(Time) { dead_ = true; }

void Host::on_clock_jump(Time now, Duration by) {
  if (!runs()) return;
  absences_.push_back({local(now), local(now) + by});
  clock_offset_ += by;
  pump(now);
}

// ---------------------------------------------------------------------------------------------------- datagrams

void Host::receive(Time now, Datagram& datagram) {
  ++num_received_;
  Header header;
  const std::size_t tag_size = tag_bytes_of(endpoint_->settings().protection);
  const bool well_formed = datagram.bytes.size() >= header_bytes + tag_size;
  const std::size_t payload_bytes = well_formed ? datagram.bytes.size() - header_bytes - tag_size : 0;
  const bool decoded = well_formed && !decode(datagram.bytes, payload_bytes, header);
  const bool from_endpoint = datagram.origin == Origin::genuine || datagram.origin == Origin::replayed;
  bool fresh = false;
  if (decoded && from_endpoint) {
    std::vector<bool>& delivered = delivered_numbers_[datagram.from];
    if (delivered.size() <= header.transmission) delivered.resize(header.transmission + 1000, false);
    fresh = !delivered[header.transmission];
    delivered[header.transmission] = true;
  }

  const DropCounts before = endpoint_->drops();
  endpoint_->receive(local(now), datagram.bytes);
  const DropCounts& after = endpoint_->drops();
  std::uint64_t increments = 0;
  Drop cause = Drop::count_;
  for (std::size_t i = 0; i < num_drops; ++i) {
    increments += after[i] - before[i];
    if (after[i] != before[i]) cause = static_cast<Drop>(i);
  }
  if (increments > 1) violations_.add("one_cause_per_drop", where(now));
  judge(now, datagram, decoded ? &header : nullptr, payload_bytes, fresh, increments == 0 ? nullptr : &cause);
}

// Was it right to take, or to drop, this datagram?
void Host::judge(Time now, const Datagram& datagram, const Header* header, std::size_t payload_bytes, bool fresh,
                 const Drop* drop) {
  const auto complain = [&](const char* invariant, const std::string& what) {
    violations_.add(invariant, where(now) + ", from rank " + std::to_string(datagram.from) + ": " + what);
  };
  const bool from_endpoint = datagram.origin == Origin::genuine || datagram.origin == Origin::replayed;
  if (!from_endpoint) {
    if (drop == nullptr) complain("forgery_is_dropped", "a damaged or forged datagram was taken");
    if (drop != nullptr && !is_refusal_of_strangers(*drop))
      complain("forgery_is_dropped", std::string("only as ") + name(*drop));
    return;
  }
  if (!fresh) {
    const bool refused = drop != nullptr && (*drop == Drop::replay || *drop == Drop::too_old);
    if (!refused)
      complain("replay_is_dropped", drop == nullptr ? "a copy was taken" : std::string("only as ") + name(*drop));
    return;
  }
  if (drop == nullptr) {
    if (header == nullptr || !truth_.on_taken(rank(), *header, covered_elements(*header, payload_bytes))) {
      complain("placement", "took elements that are not the sender's to send");
    } else if (header->stage == Stage::result && (header->flags & flag::closed) != 0 &&
               header->type != PacketType::end) {
      part_of(header->operation)->owners_closed |= 1ull << header->sender;
    }
    return;
  }
  switch (*drop) {
    case Drop::late: note_late(now, *header); return;
    case Drop::beyond_window:
    case Drop::early_over_cap: return;
    case Drop::oversized:
      if (header->stage != Stage::note) complain("good_is_taken", "oversized");
      return;
    case Drop::duplicate: {
      // Only what is sent again can arrive twice under two numbers.
      const bool repaired = header->stage == Stage::result && parameters_.repair_grace > 0;
      if ((header->flags & flag::exact) == 0 && !repaired) {
        complain("good_is_taken", "a bounded packet called a duplicate");
      }
      return;
    }
    case Drop::too_old:
      if (datagram.origin != Origin::replayed) complain("good_is_taken", "called too old");
      return;
    default: complain("good_is_taken", std::string("a good datagram dropped as ") + name(*drop));
  }
}

void Host::note_late(Time now, const Header& header) {
  if (header.stage == Stage::note) return;
  if (is_between_groups(header.operation)) {
    const Operation* operation = endpoint_->operation(header.operation);
    const bool closed = operation == nullptr || operation->ended() ||
                        (header.stage == Stage::contribution && operation->contributions_closed());
    if (!closed) violations_.add("late_is_late", where(now) + ", between groups");
    return;
  }
  if (header.operation >= operations_.size()) return;
  HostOperation& operation = operations_[header.operation];
  Time& first = header.stage == Stage::contribution ? operation.first_late_contribution : operation.first_late_result;
  first = std::min(first, local(now));
}

void Host::transmit(Time now, const TransmitBatch& batch) {
  std::vector<std::uint8_t> datagram;
  std::size_t part = 0;
  for (const std::uint32_t num_parts : batch.parts_per_datagram) {
    datagram.clear();
    for (const std::size_t last = part + num_parts; part < last; ++part) {
      const auto* from = static_cast<const std::uint8_t*>(batch.parts[part].iov_base);
      datagram.insert(datagram.end(), from, from + batch.parts[part].iov_len);
    }
    ++num_sent_;
    digest_.add(static_cast<std::uint64_t>(now));
    digest_.add(datagram);
    Header header;
    const std::size_t payload = datagram.size() - header_bytes - tag_bytes_of(endpoint_->settings().protection);
    if (decode(datagram, payload, header)) violations_.add("sends_valid", where(now) + " sent what it could not read");
    if (header.stage == Stage::result && header.operation < operations_.size()) {
      HostOperation& operation = operations_[header.operation];
      operation.sent_result = operation.sent_result || !operation.called;
    }
    note_sent(now, batch.peer, header, payload);
    if (header.type == PacketType::narrow) truth_.on_sent_narrow(rank(), header);
    const bool contributes = header.stage == Stage::contribution && carries_elements(header.type);
    if (contributes && part_of(header.operation) != nullptr) {
      check_contribution(now, batch.peer, header, covered_elements(header, payload));
    }
    network_.send(now, rank(), batch.peer, datagram);
  }
}

HostPart* Host::part_of(std::uint32_t number) {
  if (call_of(number) >= operations_.size()) return nullptr;
  HostOperation& operation = operations_[call_of(number)];
  return is_between_groups(number) ? &operation.between_groups : &operation.whole;
}

void Host::note_sent(Time now, std::uint16_t peer, const Header& header, std::size_t payload_bytes) {
  if (!carries_elements(header.type) && header.type != PacketType::hole) return;
  HostPart* sent = header.stage == Stage::note ? nullptr : part_of(header.operation);
  if (sent == nullptr) return;
  auto& sendings = header.stage == Stage::contribution ? sent->contributions_sent : sent->results_sent;
  sendings.resize(endpoint_->settings().num_ranks);
  Sending& sending = sendings[peer];
  sending.first_at = std::min(sending.first_at, now);
  sending.last_at = now;
  ++sending.num_datagrams;
  sending.payload_bytes += payload_bytes;
}

// Where a result was taken the caller's memory holds it, not the gradient: what is sent from there must be a repetition
// of what its owner has, which cannot count again.
void Host::check_contribution(Time now, std::uint16_t owner, const Header& header, std::uint32_t count) {
  if ((part_of(header.operation)->owners_closed >> owner & 1) != 0) {
    violations_.add("gradient_is_sent", where(now) + " contributes to a closed sum");
  }
  const ElementRange range{header.offset, header.offset + count};
  if (truth_.has_result_within(header.operation, rank(), range) &&
      !truth_.has_contribution(header.operation, owner, rank(), range)) {
    violations_.add("gradient_is_sent", where(now) + " contributes after it has the result");
  }
}

// ---------------------------------------------------------------------------------------------------- the endpoint

void Host::call(Time now, std::uint32_t number) {
  const PlannedOperation& planned = workload_.operations()[number];
  HostOperation& operation = operations_[number];
  const CallChoice choice = steering_.choose(rank(), planned);
  const Duration t_b = planned.delivery == Delivery::bounded ? choice.deadline / 2 : parameters_.t_b;
  operation.t_b = std::max(t_b, parameters_.t_b);
  if (choice.credit && (*choice.credit != parameters_.credit || t_b != parameters_.t_b)) {
    Parameters changed = parameters_;
    changed.from_operation = number;
    changed.t_b = t_b;
    changed.credit = *choice.credit;
    publish(changed);
  }
  operation.called = true;
  operation.called_at = local(now);
  operation.memory = workload_.gradient(planned, rank());
  Call call;
  call.data = operation.memory.data();
  call.count = planned.total;
  call.format = planned.format;
  call.layout = number * 7 + 1;
  call.delivery = planned.delivery;
  call.average = planned.average;
  call.deadline = operation.deadline = choice.deadline;
  call.contributions = choice.contributions;
  call.results = choice.results;
  call.limit = operation.limit = choice.limit;
  call.narrow_behind_ratio = workload_.narrow_behind_ratio();
  if (endpoint_->call(local(now), call) != number) violations_.add("call_order", where(now));
}

void Host::pump(Time now) {
  const Time clock = local(now);
  if (endpoint_->next_timer() <= clock) endpoint_->on_timer(clock);
  while (endpoint_->fill(clock, batch_)) transmit(now, batch_);
  collect(now);
  if (endpoint_->next_timer() <= clock) {
    // One more round is fine (sending can arm a timer that is due); a timer that stays due is a busy loop.
    endpoint_->on_timer(clock);
    while (endpoint_->fill(clock, batch_)) transmit(now, batch_);
    collect(now);
    if (endpoint_->next_timer() <= clock) violations_.add("no_busy_loop", where(now) + ": a timer stays due");
  }
  note_own_included();
  schedule_wake(now);
}

// Is a rank's own gradient in its group's sum, and that in the one between the groups? No report tells, if it never
// calls.
void Host::note_own_included() {
  if (workload_.num_groups() == 1) return;
  for (std::uint32_t call = 0; call < operations_.size(); ++call) {
    for (const std::uint32_t number : {call, call | between_groups_bit}) {
      const Operation* operation = endpoint_->operation(number);
      if (operation != nullptr) part_of(number)->own_included = operation->own_included();
    }
  }
}

void Host::collect(Time now) {
  for (OperationReport& report : endpoint_->take_reports()) {
    if (report.operation >= operations_.size() || !operations_[report.operation].called ||
        operations_[report.operation].reported) {
      violations_.add("one_report_per_call", where(now) + ", operation " + std::to_string(report.operation));
      continue;
    }
    HostOperation& operation = operations_[report.operation];
    operation.reported = true;
    operation.reported_at = local(now);
    operation.memory_digest = digest_of(operation.memory);
    operation.report = std::move(report);
    steering_.learn(rank(), operation.report);
  }
  for (const Note& note : endpoint_->take_notes()) {
    endpoint_->release_note(note.sender, note.bytes.size());
    const bool known = note.channel < notes_.size() && workload_.notes()[note.channel].to == rank() &&
                       workload_.notes()[note.channel].from == note.sender;
    if (!known || note.bytes != workload_.note_bytes(note.channel)) {
      violations_.add("note_content", where(now) + ", channel " + std::to_string(note.channel));
      continue;
    }
    ++notes_received_[note.channel];
  }
  for (const SentNote& sent : endpoint_->take_sent_notes()) {
    for (std::size_t index = 0; index < notes_.size(); ++index) {
      HostNote& note = notes_[index];
      if (!note.sent || note.settled || note.ticket != sent.ticket) continue;
      note.settled = true;
      note.settled_at = local(now);
      note.fate = sent.fate;
    }
  }
  endpoint_->take_peer_changes();
}

void Host::schedule_wake(Time now) {
  const Time next = endpoint_->next_timer();
  // A timer that stays due is a violation by now; the run goes on at a pace that ends.
  const Time earliest = next <= local(now) ? now + millisecond : now + 1;
  const Time at = next == never ? never : std::max(earliest, next - clock_offset_);
  if (at == wake_at_) return;
  wake_at_ = at;
  if (at != never) events_.schedule(at, EventKind::wakes, rank());
}

// ---------------------------------------------------------------------------------------------------- questions

bool Host::settled() const {
  if (dead_) return true;
  if (frozen_) return false;
  const auto operation_open = [](const HostOperation& operation) { return operation.called && !operation.reported; };
  const auto note_open = [](const HostNote& note) { return note.sent && !note.settled; };
  return std::none_of(operations_.begin(), operations_.end(), operation_open) &&
         std::none_of(notes_.begin(), notes_.end(), note_open);
}

Time Host::allowed_until(Time due) const {
  for (const Absence& absence : absences_) {
    if (absence.begin <= due && due <= absence.end) due = absence.end;
  }
  return due;
}

void Host::note_idle_paths() {
  for (std::uint16_t peer = 0; peer < path_was_idle_.size(); ++peer) {
    if (peer != rank() && endpoint_->path(peer).bytes_in_flight() == 0) path_was_idle_[peer] = true;
  }
}

bool Host::all_paths_were_idle() const {
  return std::all_of(path_was_idle_.begin(), path_was_idle_.end(), [](bool idle) { return idle; });
}

}  // namespace holdfast::sim
