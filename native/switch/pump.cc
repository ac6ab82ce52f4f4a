#include "switch/pump.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <future>
#include <stdexcept>
#include <string>
#include <utility>

#include "io/clock.h"
#include "switch/capacity.h"
#include "switch/realtime.h"

namespace holdfast::lab {
namespace {

using io::monotonic_now;
using io::throw_errno;

// Waking for each packet takes a whole core, and the kernel then stalls a real-time thread for 50 ms a second. Twice as
// often took half a core from the ranks on a machine whose turns change slowly, and kept no promise of a profile any
// better.
constexpr Duration turn_interval = 100 * microsecond;
// Few, so that reading a burst does not make what is due late.
constexpr int reads_per_turn = 8;
// A network card collects packets before it interrupts its host; one write per packet would cost most of a core. Only
// while more of the same path is under way: the last packet of a message waits for nobody.
constexpr Duration collecting_time = 150 * microsecond;
constexpr std::size_t max_frame_bytes = sizeof(VnetHeader) + 0xffff;
constexpr std::uint64_t wake_event = ~std::uint64_t{0};
constexpr std::chrono::seconds answer_limit{10};

Duration thread_cpu() {
  timespec value{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &value);
  return value.tv_sec * second + value.tv_nsec;
}

timespec to_timespec(Duration duration) { return {duration / second, duration % second}; }

void watch(int epoll, int fd, std::uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("watch descriptor " + std::to_string(fd));
}

}  // namespace

Pump::Pump(std::vector<int> descriptors, std::vector<std::uint32_t> addresses, std::uint64_t seed)
    : descriptors_(std::move(descriptors)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      fabric_(descriptors_.size(), seed, monotonic_now()),
      batches_(descriptors_.size() * descriptors_.size()),
      frame_(max_frame_bytes),
      gone_(descriptors_.size(), false),
      reset_at_(monotonic_now()) {
  if (addresses.size() != descriptors_.size()) throw std::invalid_argument("one address per descriptor is needed");
  if (epoll_.get() < 0 || wake_.get() < 0) throw_errno("make an event queue");
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (!port_of_address_.emplace(addresses[i], static_cast<std::uint16_t>(i)).second) {
      throw std::invalid_argument("two ports have the same address");
    }
  }
  for (std::size_t i = 0; i < descriptors_.size(); ++i) {
    const int flags = fcntl(descriptors_[i], F_GETFL);
    if (flags < 0 || fcntl(descriptors_[i], F_SETFL, flags | O_NONBLOCK) != 0) {
      throw_errno("use descriptor " + std::to_string(descriptors_[i]));
    }
    watch(epoll_.get(), descriptors_[i], i);
  }
  watch(epoll_.get(), wake_.get(), wake_event);
}

void Pump::run() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(running_, true)) throw std::logic_error("the switch already runs");
  }
  // Whatever ends the loop, whoever asked gets an answer, and the next one asks without it.
  const auto end = [this] {
    const std::lock_guard lock(mutex_);
    running_ = false;
    for (const auto& task : std::exchange(tasks_, {})) task();
  };
  try {
    const RealtimePriority priority;
    realtime_ = priority.granted();
    cpu_ = thread_cpu();
    cpu_at_reset_ = cpu_;
    loop();
    cpu_ = thread_cpu();
  } catch (...) {
    end();
    throw;
  }
  end();
}

void Pump::stop() {
  stopping_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

template <class Question>
auto Pump::ask(Question question) {
  // Shared, because a function must be copyable.
  const auto task = std::make_shared<std::packaged_task<decltype(question())()>>(std::move(question));
  auto answer = task->get_future();
  std::unique_lock lock(mutex_);
  if (running_) {
    tasks_.emplace_back([task] { (*task)(); });
    // First out of the way: the switch may take this thread's core as soon as it wakes, and would find the lock held.
    lock.unlock();
    has_tasks_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
    if (answer.wait_for(answer_limit) != std::future_status::ready) {
      throw std::runtime_error("the switch does not answer");
    }
  } else {
    (*task)();
  }
  return answer.get();
}

void Pump::run_tasks() {
  if (!has_tasks_) return;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // whoever holds it will be done by the next turn, which has_tasks_ keeps near
  has_tasks_ = false;
  const auto tasks = std::exchange(tasks_, {});
  lock.unlock();
  for (const auto& task : tasks) task();
}

void Pump::configure(const Conditions& conditions) {
  conditions.validate();
  ask([this, conditions] { fabric_.configure(monotonic_now(), conditions); });
}

void Pump::draw_anew(std::uint64_t seed) {
  ask([this, seed] { fabric_.draw_anew(monotonic_now(), seed); });
}

SwitchReport Pump::report() {
  return ask([this] { return make_report(); });
}

void Pump::reset() {
  ask([this] { reset_now(); });
}

double Pump::capacity_bound_s(Time start, std::vector<std::uint64_t> bytes_out, std::vector<std::uint64_t> bytes_in) {
  return ask([this, start, out = std::move(bytes_out), in = std::move(bytes_in)] {
    return lab::capacity_bound_s(fabric_, monotonic_now(), start, out, in);
  });
}

std::vector<double> Pump::frozen_s(Time start, Time end) {
  return ask([this, start, end] { return lab::frozen_s(fabric_, monotonic_now(), start, end); });
}

SwitchReport Pump::make_report() {
  const Time now = monotonic_now();
  fabric_.advance(now);
  SwitchReport report;
  report.duration_s = static_cast<double>(now - reset_at_) / second;
  for (std::size_t i = 0; i < fabric_.num_ports(); ++i) {
    report.ports.push_back(fabric_.port_report(i));
    const Losses& losses = report.ports.back().losses;
    for (std::size_t cause = 0; cause < losses.size(); ++cause) report.losses[cause] += losses[cause];
  }
  report.lateness_p50_us = lateness_.quantile_us(0.5);
  report.lateness_p99_us = lateness_.quantile_us(0.99);
  report.lateness_p999_us = lateness_.quantile_us(0.999);
  report.lateness_max_us = lateness_.max_us();
  report.lateness_counts = lateness_.counts();
  report.realtime = realtime_;
  report.cpu_s = static_cast<double>((running_ ? thread_cpu() : cpu_) - cpu_at_reset_) / second;
  report.num_wakeups = num_wakeups_;
  report.num_reads = num_reads_;
  report.num_writes = num_writes_;
  return report;
}

void Pump::reset_now() {
  const Time now = monotonic_now();
  fabric_.advance(now);
  fabric_.reset_counters();
  lateness_ = {};
  reset_at_ = now;
  cpu_at_reset_ = running_ ? thread_cpu() : cpu_;
  num_wakeups_ = num_reads_ = num_writes_ = 0;
}

void Pump::loop() {
  while (!stopping_) {
    turn_began_ = monotonic_now();
    run_tasks();
    const bool more_to_read = take_turn();
    deliver();
    wait(more_to_read);
  }
}

// One read from each port that has something, in turns, up to the limit.
bool Pump::take_turn() {
  int reads = 0;
  while (!readable_.empty() && reads < reads_per_turn) {
    std::erase_if(readable_, [&](std::uint16_t port) { return reads++ < reads_per_turn && !read_from(port); });
  }
  return !readable_.empty();
}

// False when there is nothing more.
bool Pump::read_from(std::size_t port) {
  const ssize_t got = read(descriptors_[port], frame_.data(), frame_.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    drop_port(port);
    return false;
  }
  ++num_reads_;
  admit(port, static_cast<std::size_t>(got));
  return true;
}

void Pump::admit(std::size_t port, std::size_t frame_bytes) {
  const SuperPacket super = SuperPacket::parse({frame_.data(), frame_bytes});
  if (super.fault() == SuperPacket::Fault::not_ipv4) return;  // what an IPv6 stack sends by itself is nobody's loss
  if (super.fault() == SuperPacket::Fault::malformed) return fabric_.count_loss(port, Loss::malformed);
  const auto target = port_of_address_.find(super.destination());
  if (target == port_of_address_.end() || target->second == port) return fabric_.count_loss(port, Loss::unroutable);
  const Time now = monotonic_now();
  for (std::size_t i = 0; i < super.num_packets(); ++i) {
    const auto number = pool_.take();
    if (!number) return fabric_.count_loss(port, Loss::refused);
    Packet& packet = pool_[*number];
    super.cut(i, packet);
    fabric_.admit(now, {*number, packet.num_bytes, static_cast<std::uint16_t>(port), target->second});
  }
}

// Writes what is due. Packets of one path keep their order; those of several paths to one host are put together path by
// path, or packets that take turns could never be merged.
void Pump::deliver() {
  fabric_.advance(monotonic_now());
  free_lost_packets();
  for (const Delivery& delivery : fabric_.deliveries()) {
    const std::size_t index = delivery.parcel.to * descriptors_.size() + delivery.parcel.from;
    Batch& batch = batches_[index];
    const Packet& packet = pool_[delivery.parcel.packet];
    if (batch.merger.empty()) open_batches_.push_back(index);
    if (!batch.merger.add(packet)) {
      write_batch(batch);
      batch.merger.add(packet);
    }
    batch.deliveries.push_back(delivery);
  }
  fabric_.deliveries().clear();
  const Time now = monotonic_now();
  std::erase_if(open_batches_, [&](std::size_t index) {
    if (may_wait(now, batches_[index])) return false;
    write_batch(batches_[index]);
    return true;
  });
}

bool Pump::may_wait(Time now, const Batch& batch) {
  const Delivery& oldest = batch.deliveries.front();
  return now < oldest.due + collecting_time && fabric_.has_more(oldest.parcel.from, oldest.parcel.to);
}

Time Pump::next_deadline() {
  Time next = fabric_.next_event();
  for (const std::size_t index : open_batches_) {
    next = std::min(next, batches_[index].deliveries.front().due + collecting_time);
  }
  return next;
}

void Pump::write_batch(Batch& batch) {
  const std::uint16_t port = batch.deliveries.front().parcel.to;
  const std::span<const iovec> frame = batch.merger.frame();
  ++num_writes_;
  const ssize_t written = gone_[port] ? -1 : writev(descriptors_[port], frame.data(), static_cast<int>(frame.size()));
  const Time now = monotonic_now();
  for (const Delivery& delivery : batch.deliveries) {
    if (written < 0) {
      fabric_.count_loss(port, Loss::refused);
    } else {
      lateness_.add(now - delivery.due);
    }
    pool_.give_back(delivery.parcel.packet);
  }
  batch.deliveries.clear();
  batch.merger.clear();
}

void Pump::free_lost_packets() {
  for (const std::uint32_t number : fabric_.lost_packets()) pool_.give_back(number);
  fabric_.lost_packets().clear();
}

// At most one wake-up per interval while there is traffic; as long as it takes when there is none.
void Pump::wait(bool more_to_read) {
  readable_.clear();
  const Time earliest = turn_began_ + turn_interval;
  Time now = monotonic_now();
  if (now < earliest && !more_to_read) {
    const timespec until = to_timespec(earliest);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    now = monotonic_now();
  }
  const Time next = more_to_read || has_tasks_ ? now : next_deadline();
  const timespec patience = to_timespec(std::max<Duration>(0, next - now));
  std::array<epoll_event, 64> events;
  const int count = epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 next == never ? nullptr : &patience, nullptr);
  if (count < 0 && errno != EINTR) throw_errno("wait for packets");
  ++num_wakeups_;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == wake_event) {
      std::uint64_t value;
      [[maybe_unused]] const ssize_t got = read(wake_.get(), &value, sizeof value);
    } else {
      readable_.push_back(static_cast<std::uint16_t>(events[i].data.u64));
    }
  }
}

void Pump::drop_port(std::size_t port) {
  gone_[port] = true;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptors_[port], nullptr);
}

}  // namespace holdfast::lab
