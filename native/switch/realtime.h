// Real time for the thread that makes this, for as long as it lives, where that is allowed.
//
// Linux lets ordinary processes that starve run for 50 ms of every second, ahead of SCHED_FIFO and SCHED_RR. A deadline
// task goes before even that: SCHED_DEADLINE first, SCHED_FIFO where its bandwidth is not to be had.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace holdfast::lab {

class RealtimePriority {
 public:
  RealtimePriority() {
    pthread_getschedparam(pthread_self(), &old_policy_, &old_);
    granted_ = become_deadline_task() || become_fifo_task();
    prctl(PR_SET_TIMERSLACK, 1);  // matters only without it
  }
  ~RealtimePriority() {
    if (granted_) pthread_setschedparam(pthread_self(), old_policy_, &old_);
    prctl(PR_SET_TIMERSLACK, 0);  // 0 stands for the default
  }
  RealtimePriority(const RealtimePriority&) = delete;
  RealtimePriority& operator=(const RealtimePriority&) = delete;
  bool granted() const { return granted_; }

 private:
  // The kernel's struct sched_attr in its first version; the C library has none.
  struct Attributes {
    std::uint32_t size = sizeof(Attributes);
    std::uint32_t policy = 0;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime_ns = 0;
    std::uint64_t deadline_ns = 0;
    std::uint64_t period_ns = 0;
  };

  // Nine tenths of a core, in portions so short that a packet never waits for the next one longer than is told apart.
  static bool become_deadline_task() {
    constexpr std::uint32_t deadline_policy = 6;
    constexpr std::uint64_t reclaim = 2;  // what other deadline tasks leave
    Attributes wanted;
    wanted.policy = deadline_policy;
    wanted.flags = reclaim;
    wanted.runtime_ns = 900'000;
    wanted.deadline_ns = wanted.period_ns = 1'000'000;
    return syscall(SYS_sched_setattr, 0, &wanted, 0) == 0;
  }
  static bool become_fifo_task() {
    sched_param wanted{};
    wanted.sched_priority = 10;  // above workers at SCHED_RR, below the kernel's own threads
    return pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted) == 0;
  }

  int old_policy_ = SCHED_OTHER;
  sched_param old_{};
  bool granted_ = false;
};

}  // namespace holdfast::lab
