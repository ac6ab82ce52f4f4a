#include "sim/world.h"

#include <algorithm>
#include <limits>
#include <string>

#include "sim/random.h"

namespace holdfast::sim {
namespace {

Duration from_ms(double ms) { return static_cast<Duration>(ms * static_cast<double>(millisecond)); }

constexpr Time join_limit = 30 * second;
constexpr Duration longest_quieting = 5 * second;  // on top of the duty limit
constexpr Duration quiet_check_interval = 20 * millisecond;

}  // namespace

World::World(const Scenario& scenario, std::uint64_t seed, Steering* steering) : scenario_(scenario), seed_(seed) {
  Random random(seed, 0);
  const auto span = static_cast<std::uint64_t>(scenario.max_ranks - scenario.min_ranks + 1);
  num_ranks_ = static_cast<std::uint16_t>(static_cast<std::uint64_t>(scenario.min_ranks) + random.below(span));
  if (scenario.num_groups > 1) {
    const auto group_size = std::max<std::int64_t>(2, num_ranks_ / scenario.num_groups);
    num_ranks_ = static_cast<std::uint16_t>(group_size * scenario.num_groups);
  }
  victim_ = static_cast<std::uint16_t>(random.below(num_ranks_));
  if (scenario.victim >= 0) victim_ = static_cast<std::uint16_t>(scenario.victim % num_ranks_);
  workload_ = std::make_unique<Workload>(scenario_, num_ranks_, victim_, seed);
  network_ = std::make_unique<Network>(scenario_, num_ranks_, victim_, seed, events_);
  truth_ = std::make_unique<Truth>(*workload_, num_ranks_);
  if (steering == nullptr) own_steering_ = std::make_unique<ScenarioSteering>(scenario_, seed);
  Steering& decides = steering == nullptr ? *own_steering_ : *steering;
  for (const EndpointSettings& settings : endpoint_settings(seed)) {
    hosts_.push_back(std::make_unique<Host>(settings, *workload_, static_cast<std::size_t>(scenario.socket_queue_bytes),
                                            decides, *network_, events_, *truth_, violations_));
  }
}

std::vector<EndpointSettings> World::endpoint_settings(std::uint64_t seed) const {
  Random random(seed, 3);
  EndpointSettings settings;
  settings.num_ranks = num_ranks_;
  settings.num_groups = static_cast<std::uint16_t>(scenario_.num_groups);
  settings.job = static_cast<std::uint32_t>(random.bits());
  settings.epoch = 1 + static_cast<std::uint32_t>(random.below(1000));
  for (std::uint8_t& byte : settings.job_key) byte = static_cast<std::uint8_t>(random.bits());
  const auto drawn = random.chance(0.5) ? Protection::encrypted : Protection::authenticated;
  settings.protection = scenario_.protection >= 0 ? static_cast<Protection>(scenario_.protection) : drawn;
  if (scenario_.packets_per_key > 0) settings.packets_per_key = static_cast<std::uint64_t>(scenario_.packets_per_key);
  settings.datagram_bytes = static_cast<std::uint32_t>(scenario_.datagram_bytes);
  settings.receive_buffer_bytes = static_cast<std::uint64_t>(scenario_.receive_buffer_bytes);
  settings.early_bytes_cap = static_cast<std::uint64_t>(scenario_.early_bytes_cap);
  settings.max_note_bytes = static_cast<std::uint64_t>(scenario_.note_assembly_bytes);
  settings.peers.resize(num_ranks_);
  // Where everything is packed no network is too fast for it.
  const bool packs = scenario_.packing >= 0 ? scenario_.packing != 0 : random.chance(0.5);
  if (packs) settings.pack_below_bytes_per_second = std::numeric_limits<double>::infinity();
  for (PeerSettings& peer : settings.peers) {
    for (std::uint8_t& byte : peer.process) byte = static_cast<std::uint8_t>(random.bits());
    peer.same_host = scenario_.same_host;
  }
  std::vector<EndpointSettings> all(num_ranks_, settings);
  for (std::uint16_t rank = 0; rank < num_ranks_; ++rank) all[rank].rank = rank;
  return all;
}

void World::step() {
  const Event event = events_.pop();
  now_ = event.at;
  switch (event.kind) {
    case EventKind::reaches_port: network_->on_reaches_port(now_, event.subject); return;
    case EventKind::reaches_host: {
      Datagram datagram = network_->take(event.subject);
      Host& host = *hosts_[datagram.to];
      host.on_datagram(now_, std::move(datagram));
      return;
    }
    case EventKind::wakes: hosts_[event.subject]->on_wake(now_); return;
    case EventKind::calls: hosts_[event.subject]->on_call(now_, static_cast<std::uint32_t>(event.detail)); return;
    case EventKind::sends_note: hosts_[event.subject]->on_send_note(now_, event.detail); return;
    case EventKind::freezes: hosts_[event.subject]->on_freeze(now_); return;
    case EventKind::thaws: hosts_[event.subject]->on_thaw(now_); return;
    case EventKind::dies: hosts_[event.subject]->on_death(now_); return;
    case EventKind::clock_jumps:
      hosts_[event.subject]->on_clock_jump(now_, static_cast<Duration>(event.detail));
      return;
  }
}

template <class Done>
bool World::advance_until(Time limit, Done done) {
  while (!done()) {
    if (events_.next_time() > limit) {
      now_ = limit;
      return done();
    }
    step();
  }
  return true;
}

void World::form_job() {
  Parameters parameters;
  parameters.t_b = from_ms(scenario_.deadline_ms / 2);
  parameters.t_c = from_ms(scenario_.t_c_ms);
  parameters.early_wait_ratio = scenario_.early_wait_ratio;
  parameters.credit = static_cast<std::uint8_t>(scenario_.credit);
  parameters.deterministic = workload_->deterministic();
  parameters.duty_limit = from_ms(scenario_.duty_limit_ms);
  parameters.division = workload_->division();
  parameters.repair_grace = workload_->repairs() ? from_ms(scenario_.t_c_ms) : 0;
  for (const auto& host : hosts_) {
    host->publish(parameters);
    host->start(now_);
  }
  formed_ = advance_until(join_limit, [this] {
    return std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return host->joined(); });
  });
  if (!formed_) violations_.add("join", "the job did not form within 30 s");
}

void World::schedule_load() {
  for (const PlannedOperation& operation : workload_->operations()) {
    for (std::uint16_t rank = 0; rank < num_ranks_; ++rank) {
      if (operation.call_at[rank] == never) continue;
      events_.schedule(started_at_ + operation.call_at[rank], EventKind::calls, rank, operation.number);
    }
  }
  for (std::size_t note = 0; note < workload_->notes().size(); ++note) {
    const PlannedNote& planned = workload_->notes()[note];
    events_.schedule(started_at_ + planned.at, EventKind::sends_note, planned.from, note);
  }
}

void World::schedule_faults() {
  const Time start = started_at_ + from_ms(scenario_.fault_start_ms);
  network_->start_faults_at(start);
  if (scenario_.freeze_ms > 0) {
    for (std::int64_t i = 0; i < scenario_.num_freezes; ++i) {
      const Time begin = start + i * from_ms(scenario_.freeze_every_ms);
      events_.schedule(begin, EventKind::freezes, victim_);
      events_.schedule(begin + from_ms(scenario_.freeze_ms), EventKind::thaws, victim_);
    }
  }
  if (scenario_.dies) events_.schedule(start, EventKind::dies, victim_);
  if (scenario_.clock_jump_ms > 0) {
    events_.schedule(start, EventKind::clock_jumps, victim_,
                     static_cast<std::uint64_t>(from_ms(scenario_.clock_jump_ms)));
  }
}

bool World::quiet() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) {
    if (host->dead()) return true;
    return host->endpoint().open_operations() == 0 && host->endpoint().early_bytes() == 0 &&
           host->all_paths_were_idle();
  });
}

Duration World::longest_deadline() const {
  Duration longest = from_ms(std::max(scenario_.exact_deadline_ms, scenario_.note_deadline_ms));
  for (const auto& host : hosts_) {
    for (const HostOperation& operation : host->operations()) longest = std::max(longest, operation.deadline);
  }
  return longest;
}

void World::run() {
  form_job();
  if (!formed_) return;
  started_at_ = now_;
  network_->start_load_at(started_at_);
  schedule_load();
  schedule_faults();
  // Every call is made by then, frozen hosts included; after that each has its deadline.
  const Duration freezes = from_ms(scenario_.freeze_ms + scenario_.fault_start_ms +
                                   static_cast<double>(scenario_.num_freezes) * scenario_.freeze_every_ms);
  const Time last_call = started_at_ + workload_->last_call() + freezes;
  advance_until(last_call, [] { return false; });
  advance_until(last_call + longest_deadline() + second, [this] {
    return std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return host->settled(); });
  });
  const Time limit = now_ + from_ms(scenario_.duty_limit_ms) + longest_quieting;
  while (!quiet() && now_ < limit) {
    advance_until(now_ + quiet_check_interval, [] { return false; });
    for (const auto& host : hosts_) host->note_idle_paths();
  }
}

}  // namespace holdfast::sim
