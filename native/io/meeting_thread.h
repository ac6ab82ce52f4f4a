// The thread on which a rank meets the others of its host, one operation after the other, in the order of calls.
//
// So a bucket is averaged while the backward pass goes on with the next one, and whoever waits may be interrupted.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "io/host_meeting.h"

namespace holdfast::io {

class MeetingThread {
 public:
  MeetingThread(std::shared_ptr<SharedMemory> memory, std::uint16_t member, std::uint16_t num_members);
  ~MeetingThread();  // stops
  MeetingThread(const MeetingThread&) = delete;
  MeetingThread& operator=(const MeetingThread&) = delete;

  // Takes part in the next operation, whose number it returns. Its data must stay until it is reported.
  std::uint64_t call(const MeetingCall& call);
  std::uint64_t next_number() const;  // what the next call will get
  // The report is given once.
  std::optional<MeetingReport> wait(std::uint64_t number, Duration patience);
  void give_up(Status status, const std::vector<std::uint16_t>& culprits) { meeting_.give_up(status, culprits); }
  // Leaves: what is under way fails for all members, and no memory of the callers is in use afterwards.
  void stop();

 private:
  void run();

  HostMeeting meeting_;
  const std::uint16_t member_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<MeetingCall> calls_;
  std::map<std::uint64_t, MeetingReport> reports_;
  std::uint64_t next_number_ = 0;
  bool meeting_now_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace holdfast::io
