#include "insider.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "io/clock.h"

namespace holdfast::hostile {
namespace {

// Every heartbeat can carry a lie.
constexpr Duration heartbeat_interval = 500 * microsecond;
// One in so many stays true, so that the seat stays alive even when nothing it says is acknowledged.
constexpr std::uint64_t true_heartbeat_every = 4;

constexpr Duration bounded_deadline = 200 * millisecond;

const char* type_name(std::uint8_t type) {
  static constexpr const char* names[] = {"unknown", "data", "hole", "end", "ack", "ping", "bye"};
  return names[type < std::size(names) ? type : 0];
}

bool belongs_to_message(std::uint8_t type) {
  const auto packet = static_cast<PacketType>(type);
  return packet == PacketType::data || packet == PacketType::hole || packet == PacketType::end;
}

}  // namespace

Insider::Insider(const std::string& host) : socket_(io::Address::parse(host, 0), io::UdpOptions{}) {}

Insider::~Insider() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void Insider::sit_down(const Job& job, const Seat& seat) {
  job_ = job;
  seat_ = seat;
  EndpointSettings settings;
  settings.rank = seat.rank;
  settings.num_ranks = job.num_ranks;
  settings.job = job.job;
  settings.epoch = job.epoch;
  settings.job_key = seat.key;
  settings.datagram_bytes = job.datagram_bytes;
  settings.heartbeat_interval = heartbeat_interval;
  settings.peers.resize(job.num_ranks);
  settings.peers[seat.rank].process = seat.process;
  for (const Target& target : job.targets) {
    settings.peers[target.rank] = {target.process, true};
    addresses_[target.rank] = target.address;
    processes_[target.rank] = target.process;
    sealers_[target.rank] =
        std::make_unique<Sealer>(seat.key, Direction{job.epoch, seat.rank, target.rank, seat.process, target.process},
                                 Protection::encrypted, default_packets_per_key);
  }
  endpoint_ = std::make_unique<Endpoint>(settings, io::monotonic_now());
  Parameters parameters;
  parameters.t_b = parameters.t_c = bounded_deadline / 2;
  endpoint_->publish(parameters);
  thread_ = std::thread([this] { run(); });
}

bool Insider::lie(const std::string& kind, std::uint64_t count, Duration patience) {
  {
    const std::lock_guard lock(mutex_);
    lie_of(kind, Occasion{job_, seat_.schedule, seat_.rank, job_.targets.front().rank, 0, 0});  // refuses unknown kinds
    lie_kind_ = kind;
    for (const Target& target : job_.targets) lies_left_[target.rank] = count;
  }
  const Time give_up_at = io::monotonic_now() + patience;
  while (io::monotonic_now() < give_up_at) {
    {
      const std::lock_guard lock(mutex_);
      if (std::ranges::all_of(lies_left_, [](const auto& left) { return left.second == 0; })) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

Insider::Account Insider::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

// ---------------------------------------------------------------------------------------------------- the thread

void Insider::run() {
  pollfd ready{socket_.fd(), POLLIN, 0};
  while (!stopping_) {
    const Time now = io::monotonic_now();
    receive(now);
    if (endpoint_->next_timer() <= now) endpoint_->on_timer(now);
    transmit(now);
    take_part(now);
    const Duration patience = std::clamp<Duration>(endpoint_->next_timer() - io::monotonic_now(), 0, millisecond);
    const timespec timeout{0, static_cast<long>(patience)};
    ppoll(&ready, 1, &timeout, nullptr);
  }
}

void Insider::receive(Time now) {
  socket_.receive(4, [&](std::span<std::uint8_t> datagram, Duration) {
    const std::uint8_t type = datagram.size() > 1 ? datagram[1] : 0;
    {
      const std::lock_guard lock(mutex_);
      ++status_.heard[type_name(type)];
      status_.bytes_heard += datagram.size();
    }
    if (seat_.only_heartbeats && belongs_to_message(type)) return;
    endpoint_->receive(now, datagram);
  });
  const std::lock_guard lock(mutex_);
  status_.joined = status_.joined || endpoint_->all_peers_alive();
}

void Insider::transmit(Time now) {
  while (endpoint_->fill(now, batch_)) {
    std::size_t part = 0;
    for (std::uint32_t i = 0; i < batch_.num_datagrams; ++i) {
      Bytes datagram;
      for (std::uint32_t piece = 0; piece < batch_.parts_per_datagram[i]; ++piece, ++part) {
        const auto* at = static_cast<const std::uint8_t*>(batch_.parts[part].iov_base);
        datagram.insert(datagram.end(), at, at + batch_.parts[part].iov_len);
      }
      const auto lie = replacement_of(batch_.peer, datagram);
      say(batch_.peer, lie ? *lie : datagram);
    }
  }
}

void Insider::say(std::uint16_t peer, std::span<const std::uint8_t> datagram) {
  const io::Address& to = addresses_.at(peer);
  sendto(socket_.fd(), datagram.data(), datagram.size(), 0, reinterpret_cast<const sockaddr*>(&to.storage), to.length);
  const std::lock_guard lock(mutex_);
  ++status_.said[type_name(datagram[1])];
  status_.bytes_said += datagram.size();
}

std::optional<Bytes> Insider::replacement_of(std::uint16_t peer, std::span<const std::uint8_t> heartbeat) {
  if (static_cast<PacketType>(heartbeat[1]) != PacketType::ping) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (!status_.joined || lies_left_[peer] == 0 || ++num_heartbeats_ % true_heartbeat_every == 0) return std::nullopt;
  --lies_left_[peer];
  ++status_.lies[peer];
  const auto kind_and_victim = std::pair(lie_kind_, peer);
  const Occasion occasion{
      job_, seat_.schedule, seat_.rank, peer, endpoint_->next_operation(), lies_told_[kind_and_victim]++};
  return sealed(peer, lie_of(lie_kind_, occasion), heartbeat);
}

// With the number that the heartbeat would have had, so that numbers stay in order.
Bytes Insider::sealed(std::uint16_t peer, Lie lie, std::span<const std::uint8_t> heartbeat) {
  Header replaced;
  decode(heartbeat, heartbeat.size() - header_bytes - tag_bytes, replaced);
  lie.header.transmission = replaced.transmission;
  lie.header.key_phase = replaced.key_phase;
  Bytes bytes(header_bytes + lie.payload.size() + tag_bytes);
  encode(lie.header, std::span<std::uint8_t, header_bytes>(bytes.data(), header_bytes));
  Sealer* sealer = sealers_.at(peer).get();
  std::optional<Sealer> of_that_epoch;
  if (lie.header.epoch != job_.epoch) {
    of_that_epoch.emplace(seat_.key, Direction{lie.header.epoch, seat_.rank, peer, seat_.process, processes_.at(peer)},
                          Protection::encrypted, default_packets_per_key);
    sealer = &*of_that_epoch;
  }
  sealer->seal(lie.header.transmission, {bytes.data(), header_bytes}, lie.payload, bytes.data() + header_bytes,
               std::span<std::uint8_t, tag_bytes>(bytes.data() + bytes.size() - tag_bytes, tag_bytes));
  return bytes;
}

// Rank r holds (r + 1) * ((i + operation) % 251) at element i, as the honest ranks do: sums of it are exact.
void Insider::take_part(Time now) {
  for (const OperationReport& report : endpoint_->take_reports()) {
    calling_ = false;
    const std::lock_guard lock(mutex_);
    ++(report.status == Status::done ? status_.operations_done : status_.operations_failed);
  }
  endpoint_->take_notes();
  endpoint_->take_sent_notes();
  endpoint_->take_peer_changes();
  const std::uint32_t operation = endpoint_->next_operation();
  {
    const std::lock_guard lock(mutex_);
    status_.next_operation = operation;
    if (calling_ || !status_.joined || operation >= seat_.num_operations) return;
  }
  gradient_.resize(seat_.schedule.total);
  for (std::size_t i = 0; i < gradient_.size(); ++i) {
    gradient_[i] = static_cast<float>((seat_.rank + 1u) * ((i + operation) % 251));
  }
  Call call;
  call.data = reinterpret_cast<std::uint8_t*>(gradient_.data());
  call.count = seat_.schedule.total;
  call.delivery = seat_.schedule.is_exact(operation) ? Delivery::exact : Delivery::bounded;
  call.average = call.delivery == Delivery::bounded;
  call.deadline = call.delivery == Delivery::exact ? seat_.exact_deadline : bounded_deadline;
  endpoint_->call(now, call);
  calling_ = true;
}

}  // namespace holdfast::hostile
