// SCHED_FIFO for the thread that makes this, for as long as it lives, where that is allowed.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

namespace holdfast::lab {

class RealtimePriority {
 public:
  RealtimePriority() {
    pthread_getschedparam(pthread_self(), &old_policy_, &old_);
    sched_param wanted{};
    wanted.sched_priority = 10;  // above workers at SCHED_RR, below the kernel's own threads
    granted_ = pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted) == 0;
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
  int old_policy_ = SCHED_OTHER;
  sched_param old_{};
  bool granted_ = false;
};

}  // namespace holdfast::lab
