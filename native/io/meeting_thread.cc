#include "io/meeting_thread.h"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <utility>

namespace holdfast::io {

MeetingThread::MeetingThread(std::shared_ptr<SharedMemory> memory, std::uint16_t member, std::uint16_t num_members)
    : meeting_(std::move(memory), member, num_members), member_(member), thread_([this] { run(); }) {}

MeetingThread::~MeetingThread() { stop(); }

std::uint64_t MeetingThread::call(const MeetingCall& call) {
  const std::lock_guard lock(mutex_);
  if (stopping_) throw std::runtime_error("this rank has left the meeting");
  calls_.push_back(call);
  changed_.notify_all();
  return next_number_++;
}

std::uint64_t MeetingThread::next_number() const {
  const std::lock_guard lock(mutex_);
  return next_number_;
}

std::optional<MeetingReport> MeetingThread::wait(std::uint64_t number, Duration patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::nanoseconds(patience), [&] { return stopping_ || reports_.contains(number); });
  if (!reports_.contains(number)) {
    if (stopping_) throw std::runtime_error("this rank has left the meeting");
    return std::nullopt;
  }
  return std::move(reports_.extract(number).mapped());
}

void MeetingThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (meeting_now_) meeting_.give_up(Status::peer_dead, {member_});
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void MeetingThread::run() {
  // Signals belong to the interpreter's main thread.
  sigset_t signals;
  sigfillset(&signals);
  for (const int own_fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&signals, own_fault);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  pthread_setname_np(pthread_self(), "holdfast-host");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (stopping_) return;
    const MeetingCall call = calls_.front();
    calls_.pop_front();
    meeting_now_ = true;
    lock.unlock();
    MeetingReport report = meeting_.meet(call);
    lock.lock();
    meeting_now_ = false;
    reports_.emplace(report.number, std::move(report));
    changed_.notify_all();
  }
}

}  // namespace holdfast::io
