#include "fuzz/job.h"

#include <algorithm>
#include <limits>

#include "fuzz/check.h"

namespace holdfast::fuzz {
namespace {

constexpr std::size_t max_pile = 2000;  // beyond it the oldest is lost, as in any network
constexpr Duration honest_delay = 100 * microsecond;

// The simulator's network only carries datagrams to the pile: at once, and all of them.
sim::Scenario without_network(sim::Scenario load) {
  load.delay_us = 0;
  load.rate_gbps = load.port_rate_gbps = 1e9;
  load.port_queue_bytes = std::numeric_limits<std::int64_t>::max();
  return load;
}

std::vector<EndpointSettings> endpoint_settings(const JobSettings& job) {
  EndpointSettings settings;
  settings.num_ranks = job.num_ranks;
  settings.job = 5;
  settings.epoch = 2;
  settings.job_key.fill(0x33);
  settings.protection = job.protection;
  settings.datagram_bytes = job.datagram_bytes;
  settings.receive_buffer_bytes = job.receive_buffer_bytes;
  settings.early_bytes_cap = job.early_bytes_cap;
  settings.max_note_bytes = job.max_note_bytes;
  settings.silence_limit = job.silence_limit;
  settings.heartbeat_interval = job.silence_limit / 4;
  settings.peers.resize(job.num_ranks);
  for (std::uint16_t rank = 0; rank < job.num_ranks; ++rank) {
    settings.peers[rank].process.fill(static_cast<std::uint8_t>(rank + 1));
  }
  std::vector<EndpointSettings> all(job.num_ranks, settings);
  for (std::uint16_t rank = 0; rank < job.num_ranks; ++rank) all[rank].rank = rank;
  return all;
}

}  // namespace

Job::Job(const JobSettings& settings)
    : settings_([&] {
        JobSettings made = settings;
        made.load = without_network(settings.load);
        return made;
      }()),
      workload_(settings_.load, settings.num_ranks, 0, settings.seed),
      steering_(settings_.load, settings.seed),
      network_(settings_.load, settings.num_ranks, 0, settings.seed, events_),
      truth_(workload_, settings.num_ranks),
      next_call_(settings.num_ranks, 0) {
  for (const EndpointSettings& one : endpoint_settings(settings_)) {
    hosts_.push_back(
        std::make_unique<sim::Host>(one, workload_, 1 << 20, steering_, network_, events_, truth_, violations_));
  }
  for (const auto& host : hosts_) host->start(now_);
  serve_events(now_);
}

// ---------------------------------------------------------------------------------------------------- ranks

void Job::publish(const Parameters& parameters) {
  for (const auto& host : hosts_) host->publish(parameters);
}

void Job::call(std::uint16_t rank) {
  if (next_call_[rank] >= workload_.operations().size()) return;
  pass(1);  // never in the same nanosecond as the end of a stage
  hosts_[rank]->on_call(now_, next_call_[rank]++);
  serve_events(now_);
}

void Job::call_everything() {
  for (std::uint16_t rank = 0; rank < num_ranks(); ++rank) {
    while (next_call_[rank] < workload_.operations().size()) call(rank);
  }
}

void Job::send_note() {
  if (next_note_ >= workload_.notes().size()) return;
  const std::size_t note = next_note_++;
  hosts_[workload_.notes()[note].from]->on_send_note(now_, note);
  serve_events(now_);
}

void Job::thaw(std::uint16_t rank) {
  hosts_[rank]->on_thaw(now_);
  pass(100 * microsecond);
}

// ---------------------------------------------------------------------------------------------------- time

void Job::serve_events(Time until) {
  while (events_.next_time() <= until) {
    const sim::Event event = events_.pop();
    now_ = std::max(now_, event.at);
    switch (event.kind) {
      case sim::EventKind::reaches_port: network_.on_reaches_port(now_, event.subject); break;
      case sim::EventKind::reaches_host: pile_.push_back(network_.take(event.subject)); break;
      case sim::EventKind::wakes: hosts_[event.subject]->on_wake(now_); break;
      case sim::EventKind::calls: hosts_[event.subject]->on_call(now_, static_cast<std::uint32_t>(event.detail)); break;
      case sim::EventKind::sends_note: hosts_[event.subject]->on_send_note(now_, event.detail); break;
      default: FUZZ_CHECK(!"an event that nobody schedules here");
    }
    if (pile_.size() > max_pile) pile_.pop_front();
  }
}

void Job::pass(Duration time) {
  const Time until = now_ + time;
  serve_events(until);
  now_ = until;
}

void Job::deliver_all(Time limit) {
  const Time next = pile_.empty() ? events_.next_time() : now_ + honest_delay;
  serve_events(std::min(next, limit));
  now_ = std::max(now_, std::min(next, limit));
  for (std::size_t waiting = pile_.size(); waiting > 0; --waiting) {
    sim::Datagram datagram = std::move(pile_.front());
    pile_.pop_front();
    give(std::move(datagram));
  }
}

// ---------------------------------------------------------------------------------------------------- datagrams

void Job::give(sim::Datagram datagram) {
  hosts_[datagram.to]->on_datagram(now_, std::move(datagram));
  serve_events(now_);
}

sim::Datagram Job::pick(Input& input, bool keep) {
  const std::size_t index = input.below(static_cast<std::uint32_t>(std::min<std::size_t>(pile_.size(), 256)));
  sim::Datagram datagram = pile_[index];
  if (!keep) pile_.erase(pile_.begin() + static_cast<std::ptrdiff_t>(index));
  return datagram;
}

void Job::disturb(Input& input) {
  const std::uint32_t choice = input.below(8);
  if (pile_.empty()) return;
  const bool sealed = settings_.protection != Protection::insecure;
  if (choice <= 1) return give(pick(input, false));
  if (choice == 2) return static_cast<void>(pick(input, false));
  if (choice == 3 || !sealed) return give(pick(input, true));
  sim::Datagram copy = pick(input, true);
  switch (choice) {
    case 4: {
      const std::uint32_t at = input.below(static_cast<std::uint32_t>(copy.bytes.size()));
      copy.bytes[at] ^= static_cast<std::uint8_t>(1u << input.below(8));
      copy.origin = sim::Origin::corrupted;
      break;
    }
    case 5:
      copy.bytes.resize(input.below(static_cast<std::uint32_t>(copy.bytes.size())));
      copy.origin = sim::Origin::truncated;
      break;
    case 6: {
      const auto elsewhere = static_cast<std::uint16_t>(input.below(num_ranks()));
      if (elsewhere == copy.to) return;
      copy.to = elsewhere;
      copy.origin = sim::Origin::forged;
      break;
    }
    default: copy.bytes.insert(copy.bytes.end(), 1 + input.below(20), 0); copy.origin = sim::Origin::forged;
  }
  give(std::move(copy));
}

// ---------------------------------------------------------------------------------------------------- questions

bool Job::formed() const {
  return std::ranges::all_of(hosts_, [](const auto& host) { return host->joined(); });
}

bool Job::quiet() const {
  return std::ranges::all_of(hosts_, [](const auto& host) {
    const Endpoint& endpoint = host->endpoint();
    if (host->dead()) return true;
    return host->settled() && endpoint.open_operations() == 0 && endpoint.early_bytes() == 0 && endpoint.owes_nothing();
  });
}

void Job::check_course() const {
  if (!violations_.empty()) fail(violations_.texts().front().c_str(), __FILE__, __LINE__);
}

}  // namespace holdfast::fuzz
