#include "io/reactor.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <future>
#include <stdexcept>
#include <system_error>

#include "io/clock.h"

namespace holdfast::io {
namespace {

// One kernel read, then sending: a long read would let the peers' windows run dry, a long send our own buffer overflow.
constexpr std::size_t reads_per_turn = 1;
constexpr int batches_per_turn = 8;
// When the kernel or the card has no room it is asked again this often: epoll may call a socket writable and mean it
// not, and does not know how much the card should have waiting. Until then there is nothing that could be sent earlier.
constexpr Duration retry_interval = 200 * microsecond;
constexpr int goodbyes = 3;
// Who leaves first hands over what it still owes, but nobody waits long for a peer that does not take it.
constexpr Duration longest_linger = 250 * millisecond;
constexpr Duration longest_wait = 24 * 3600 * second;  // keeps the clock arithmetic away from its limits
// The loop turns many times a second; a thread that does not answer in this time will not.
constexpr Duration longest_answer = 5 * second;
constexpr Duration answer_slice = 50 * millisecond;
// Answers that nobody collects: a caller was interrupted, or did not care. The newest are kept.
constexpr std::size_t most_uncollected = 4096;

template <class Answers>
void keep_newest(Answers& answers) {
  while (answers.size() > most_uncollected) answers.erase(answers.begin());
}

timespec to_timespec(Duration duration) {
  return {static_cast<time_t>(duration / second), static_cast<long>(duration % second)};
}

}  // namespace

Reactor::Reactor(std::unique_ptr<UdpSocket> socket, const EndpointSettings& settings, std::vector<Address> peers,
                 bool record)
    : Reactor(std::move(socket), settings, std::move(peers), record, monotonic_now()) {}

Reactor::Reactor(std::unique_ptr<UdpSocket> socket, const EndpointSettings& settings, std::vector<Address> peers,
                 bool record, Time now)
    : socket_(std::move(socket)),
      peers_(std::move(peers)),
      endpoint_(settings, now),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      peer_states_(settings.num_ranks, PeerState::joining) {
  if (record) {
    trace_ = std::make_unique<TraceWriter>(settings, now, [this](std::span<const std::uint8_t> piece) {
      recording_.insert(recording_.end(), piece.begin(), piece.end());
    });
  }
  for (const int fd : {socket_->fd(), wake_.get()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("create the event loop");
  }
  thread_ = std::thread([this] { run(); });
}

Reactor::~Reactor() { stop(); }

// ---------------------------------------------------------------------------------------------------- other threads

template <class Ready>
bool Reactor::wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Duration patience,
                       Ready ready) {
  changed.wait_for(lock, std::chrono::nanoseconds(std::min(patience, longest_wait)),
                   [&] { return stopped_ || ready(); });
  return ready();
}

// Commands run in the order in which they were left, so a number given here is the number the endpoint will give.
std::uint32_t Reactor::submit(Command command, std::uint32_t& counter) {
  std::uint32_t number;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw std::runtime_error("the reactor has stopped" + (failure_.empty() ? "" : ": " + failure_));
    number = counter++;
    commands_.push_back(std::move(command));
  }
  if (asleep_.exchange(false)) wake();
  return number;
}

void Reactor::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

// Every turn of the loop executes commands, and the thread executes what is left when it ends. The question is shared
// with the thread, so that whoever gives up waiting leaves nothing dangling.
template <class Question>
auto Reactor::ask_thread(Question question) {
  auto task = std::make_shared<std::packaged_task<decltype(question())()>>(std::move(question));
  auto answer = task->get_future();
  submit(OnThread([task] { (*task)(); }), num_tasks_);
  // In slices: a process that was stopped meanwhile has used up one of them, not all.
  for (Duration waited = 0; waited < longest_answer; waited += answer_slice) {
    if (answer.wait_for(std::chrono::nanoseconds(answer_slice)) == std::future_status::ready) return answer.get();
  }
  throw std::runtime_error("the I/O thread does not answer");
}

std::vector<std::uint16_t> Reactor::wait_joined(Duration patience) {
  {
    std::unique_lock lock(mutex_);
    if (wait_for(changed_, lock, patience, [&] { return joined_; })) return {};
  }
  std::vector<std::uint16_t> missing;
  for (const PeerSnapshot& peer : snapshot().peers) {
    if (peer.state != PeerState::alive) missing.push_back(peer.rank);
  }
  return missing;
}

std::uint32_t Reactor::call(const Call& call) {
  if (!call.number) return submit(call, next_operation_);
  submit(call, num_tasks_);
  return *call.number;
}

std::uint32_t Reactor::reserve() {
  return submit(OnThread([this] { endpoint_.reserve(); }), next_operation_);
}

void Reactor::release_number(std::uint32_t number) {
  submit(OnThread([this, number] { endpoint_.release_number(number); }), num_tasks_);
}

std::uint32_t Reactor::next_operation() const {
  const std::lock_guard lock(mutex_);
  return next_operation_;
}

std::uint32_t Reactor::skip_to(std::uint32_t operation) {
  {
    const std::lock_guard lock(mutex_);
    operation = next_operation_ = std::max(next_operation_, operation);
  }
  submit(SkipTo{operation}, num_tasks_);
  return operation;
}

bool Reactor::has_ended(std::uint32_t operation) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(reports_.begin(), reports_.end(),
                     [operation](const OperationReport& report) { return report.operation == operation; });
}

std::optional<OperationReport> Reactor::wait(std::uint32_t operation, Duration patience) {
  std::unique_lock lock(mutex_);
  auto found = reports_.end();
  const bool ready = wait_for(changed_, lock, patience, [&] {
    found = std::find_if(reports_.begin(), reports_.end(),
                         [operation](const OperationReport& report) { return report.operation == operation; });
    return found != reports_.end();
  });
  if (!ready) return std::nullopt;
  OperationReport report = std::move(*found);
  reports_.erase(found);
  return report;
}

std::uint32_t Reactor::send_note(std::uint16_t peer, std::uint32_t channel, std::vector<std::uint8_t> bytes,
                                 Duration deadline) {
  // Checked here, on the caller's thread: a mistake must not end the I/O thread.
  const EndpointSettings& settings = endpoint_.settings();
  if (peer >= settings.num_ranks || peer == settings.rank) throw std::invalid_argument("a note goes to another rank");
  if (bytes.size() > settings.max_note_bytes) throw std::invalid_argument("a note is at most max_note_bytes long");
  return submit(SendNote{peer, channel, std::move(bytes), deadline}, next_ticket_);
}

std::optional<NoteFate> Reactor::wait_note(std::uint32_t ticket, Duration patience) {
  std::unique_lock lock(mutex_);
  if (!wait_for(changed_, lock, patience, [&] { return note_fates_.contains(ticket); })) return std::nullopt;
  const NoteFate fate = note_fates_.at(ticket);
  note_fates_.erase(ticket);
  return fate;
}

std::optional<Note> Reactor::receive_note(std::uint32_t channel, Duration patience) {
  std::unique_lock lock(mutex_);
  if (!wait_for(notes_came_, lock, patience, [&] { return !notes_[channel].empty(); })) return std::nullopt;
  Note note = std::move(notes_[channel].front());
  notes_[channel].pop_front();
  commands_.emplace_back(ReleaseNote{note.sender, note.bytes.size()});
  lock.unlock();
  if (asleep_.exchange(false)) wake();
  return note;
}

void Reactor::discard_notes(std::uint32_t channel) {
  std::unique_lock lock(mutex_);
  for (const Note& note : notes_[channel]) commands_.emplace_back(ReleaseNote{note.sender, note.bytes.size()});
  notes_.erase(channel);
  lock.unlock();
  if (asleep_.exchange(false)) wake();
}

void Reactor::publish(const Parameters& parameters) { submit(parameters, num_tasks_); }

std::deque<PeerChange> Reactor::take_peer_changes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(peer_changes_, {});
}

std::vector<PeerState> Reactor::peer_states() const {
  const std::lock_guard lock(mutex_);
  return peer_states_;
}

std::string Reactor::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Snapshot Reactor::snapshot() {
  return ask_thread([this] { return take_snapshot(); });
}

Snapshot Reactor::take_snapshot() const {
  Snapshot snapshot;
  const Time now = monotonic_now();
  for (std::uint16_t rank = 0; rank < endpoint_.settings().num_ranks; ++rank) {
    if (rank == endpoint_.settings().rank) continue;
    const Path& path = endpoint_.path(rank);
    snapshot.peers.push_back({rank, path.state(), now - path.last_heard(), path.rtt().smoothed(), path.rtt().min(),
                              path.rate().bandwidth_bytes_per_second(), path.pacing_bytes_per_second(),
                              path.card_share(), path.window_bytes(), endpoint_.failed_authentications(rank),
                              path.sealing_phase(), path.opening_phase(), path.counters()});
  }
  snapshot.drops = endpoint_.drops();
  snapshot.kernel_drops = socket_->kernel_drops();
  snapshot.card_bytes_per_second = endpoint_.card_bytes_per_second();
  snapshot.wakeups = wakeups_;
  snapshot.open_operations = endpoint_.open_operations();
  snapshot.early_bytes = endpoint_.early_bytes();
  return snapshot;
}

std::vector<std::uint8_t> Reactor::recording() {
  return ask_thread([this] { return recording_; });
}

void Reactor::stop() {
  stopping_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
}

// ---------------------------------------------------------------------------------------------------- the thread

void Reactor::run() {
  // Signals belong to the interpreter's main thread.
  sigset_t signals;
  sigfillset(&signals);
  for (const int own_fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&signals, own_fault);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  pthread_setname_np(pthread_self(), "holdfast-io");
  prctl(PR_SET_TIMERSLACK, 1UL);
  std::string failure;
  try {
    loop();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;  // from here on nobody leaves a command
    failure_ = failure;
  }
  const Time now = monotonic_now();
  try {
    execute_commands(now);  // whoever waits for an answer gets it
    for (int i = 0; i < goodbyes && failure.empty(); ++i) {
      if (trace_) trace_->on_goodbye();
      endpoint_.say_goodbye();
      transmit(now);
    }
  } catch (const std::exception&) {
    // Goodbyes are a courtesy; the peers notice silence as well.
  }
  changed_.notify_all();
  notes_came_.notify_all();
}

void Reactor::loop() {
  Time leave_by = never;
  while (true) {
    Time now = monotonic_now();
    if (stopping_) {
      leave_by = std::min(leave_by, now + longest_linger);
      if (now >= leave_by || endpoint_.owes_nothing()) return;
    }
    execute_commands(now);
    const std::size_t received = receive();
    // Datagrams that waited in the socket are heard before anybody is declared late or dead.
    now = monotonic_now();
    keep_time(now);
    const bool more_to_send = transmit(now);
    deliver();
    if (more_to_send || !socket_->drained()) continue;
    if (received != 0 && rest(endpoint_.wakeup_spacing())) continue;
    sleep_until(std::min(endpoint_.next_timer(), leave_by));
  }
}

void Reactor::execute_commands(Time now) {
  std::vector<Command> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (Command& command : commands) execute(now, command);
}

void Reactor::execute(Time now, Command& command) {
  if (Call* call = std::get_if<Call>(&command)) {
    if (trace_) trace_->on_call(now, *call);
    const std::uint32_t number = endpoint_.call(now, *call);
    if (trace_) recorded_calls_[number] = {call->data, call->count * element_bytes(call->format)};
  } else if (SendNote* note = std::get_if<SendNote>(&command)) {
    if (trace_) trace_->on_note(now, note->peer, note->channel, note->bytes, note->deadline);
    endpoint_.send_note(now, note->peer, note->channel, std::move(note->bytes), note->deadline);
  } else if (const ReleaseNote* released = std::get_if<ReleaseNote>(&command)) {
    if (trace_) trace_->on_release(released->sender, released->bytes);
    endpoint_.release_note(released->sender, released->bytes);
  } else if (const SkipTo* skip = std::get_if<SkipTo>(&command)) {
    if (trace_) trace_->on_skip(now, skip->operation);
    endpoint_.skip_to(now, skip->operation);
  } else if (Parameters* parameters = std::get_if<Parameters>(&command)) {
    if (trace_) trace_->on_publish(*parameters);
    endpoint_.publish(*parameters);
  } else {
    std::get<OnThread>(command)();
  }
}

std::size_t Reactor::receive() {
  // The time is read after the datagrams: one that came while this thread waited for its core would otherwise seem to
  // have come earlier, and a round trip shorter than the path's light allows.
  Time now = 0;
  return socket_->receive(reads_per_turn, [&](std::span<std::uint8_t> datagram, Duration age) {
    if (now == 0) now = monotonic_now();
    if (trace_) trace_->on_datagram(now, age, datagram);
    endpoint_.receive(now, datagram, age);
  });
}

void Reactor::keep_time(Time now) {
  if (endpoint_.next_timer() > now) return;
  if (trace_) trace_->on_timer(now);
  endpoint_.on_timer(now);
}

// True when there is more to send right away.
bool Reactor::transmit(Time now) {
  if (has_pending_ && !send_pending()) return false;
  for (int i = 0; i < batches_per_turn; ++i) {
    const std::uint64_t card_queue_bytes = socket_->unsent_bytes();
    card_has_room_ = card_queue_bytes < endpoint_.wanted_card_queue_bytes();
    const bool filled = endpoint_.fill(now, batch_, card_queue_bytes);
    if (trace_) trace_->on_fill(now, card_queue_bytes, filled, batch_);
    if (!filled) return false;
    outgoing_.to = &peers_[batch_.peer];
    outgoing_.parts.swap(batch_.parts);
    outgoing_.parts_per_datagram.swap(batch_.parts_per_datagram);
    outgoing_.datagram_bytes = batch_.datagram_bytes;
    outgoing_.num_datagrams = batch_.num_datagrams;
    outgoing_.total_bytes = batch_.total_bytes;
    if (!send_pending()) return false;
  }
  return true;
}

bool Reactor::send_pending() {
  const SendResult result = socket_->send(outgoing_);
  // What the kernel refuses for good is a lost datagram like any other: acknowledgements will tell.
  const bool was_pending = std::exchange(has_pending_, result == SendResult::would_block);
  if (has_pending_ && !was_pending) keep_pending_bytes();
  return !has_pending_;
}

// The batch points into gradients that may be overwritten or freed before the kernel takes it.
void Reactor::keep_pending_bytes() {
  pending_bytes_.clear();
  pending_bytes_.reserve(outgoing_.total_bytes);  // so that nothing moves below
  for (iovec& part : outgoing_.parts) {
    const auto* begin = static_cast<const std::uint8_t*>(part.iov_base);
    part.iov_base = pending_bytes_.data() + pending_bytes_.size();
    pending_bytes_.insert(pending_bytes_.end(), begin, begin + part.iov_len);
  }
}

void Reactor::deliver() {
  auto reports = endpoint_.take_reports();
  auto notes = endpoint_.take_notes();
  auto fates = endpoint_.take_sent_notes();
  auto changes = endpoint_.take_peer_changes();
  if (reports.empty() && notes.empty() && fates.empty() && changes.empty()) return;
  if (trace_) {
    for (const OperationReport& report : reports) trace_->on_report(report, recorded_calls_[report.operation]);
  }
  std::unique_lock lock(mutex_);
  for (OperationReport& report : reports) reports_.push_back(std::move(report));
  for (Note& note : notes) notes_[note.channel].push_back(std::move(note));
  for (const SentNote& note : fates) note_fates_[note.ticket] = note.fate;
  for (const PeerChange& change : changes) peer_states_[change.peer] = change.state;
  peer_changes_.insert(peer_changes_.end(), changes.begin(), changes.end());
  keep_newest(reports_);
  keep_newest(note_fates_);
  keep_newest(peer_changes_);
  joined_ = joined_ || endpoint_.all_peers_alive();
  lock.unlock();
  // Who listens for notes is not woken by the end of every operation, nor who waits for that by notes.
  if (!notes.empty()) notes_came_.notify_all();
  if (!reports.empty() || !fates.empty() || !changes.empty()) changed_.notify_all();
}

// While datagrams stream in, a thread that wakes for each of them spends its time waking up. A pause, of a millisecond
// at most, lets them gather; only a new command ends it.
bool Reactor::rest(Duration pause) {
  if (pause <= 0) return false;
  asleep_ = true;
  pollfd woken{.fd = wake_.get(), .events = POLLIN, .revents = 0};
  const timespec timeout = to_timespec(pause);
  {
    const std::lock_guard lock(mutex_);
    if (!commands_.empty()) pause = 0;  // they came before `asleep_` was set and have not woken us
  }
  if (pause > 0 && !stopping_ && ppoll(&woken, 1, &timeout, nullptr) > 0) drain_wake();
  asleep_ = false;
  return true;
}

void Reactor::sleep_until(Time deadline) {
  asleep_ = true;
  {
    // A command that came before `asleep_` was set has not woken us.
    const std::lock_guard lock(mutex_);
    if (!commands_.empty()) {
      asleep_ = false;
      return;
    }
  }
  ++wakeups_;
  const Duration patience = std::clamp<Duration>(deadline - monotonic_now(), 0, second);
  epoll_event events[2];
  const int count = wait_for_events(events, has_pending_ || !card_has_room_ ? retry_interval : patience);
  asleep_ = false;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.fd == wake_.get()) drain_wake();
  }
}

// With nanoseconds where the kernel can, else rounded up to milliseconds.
int Reactor::wait_for_events(std::span<epoll_event> events, Duration patience) {
  const int most = static_cast<int>(events.size());
  if (has_precise_wait_) {
    const timespec timeout = to_timespec(patience);
    const int count = epoll_pwait2(epoll_.get(), events.data(), most, &timeout, nullptr);
    if (count >= 0 || errno == EINTR) return count;
    has_precise_wait_ = false;  // an old kernel, or a sandbox that does not know the call
  }
  const int count =
      epoll_wait(epoll_.get(), events.data(), most, static_cast<int>((patience + millisecond - 1) / millisecond));
  if (count < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "cannot wait for events");
  return count;
}

void Reactor::drain_wake() {
  std::uint64_t value;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &value, sizeof value);
}

}  // namespace holdfast::io
