// A place on the wire between honest ranks: what arrives for a rank is passed on unchanged, and a copy is kept.
#pragma once

#include <atomic>
#include <thread>

#include "job.h"

namespace holdfast::hostile {

class Relay {
 public:
  // Listens; a thread of its own passes datagrams on once it knows to whom.
  Relay(const std::string& host, Captured& captured);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  std::uint16_t port() const { return socket_.local().port(); }
  void pass_on_to(const Target& target);
  const Target& target() const { return target_; }
  std::uint64_t num_passed_on() const { return num_passed_on_; }

 private:
  void run();

  Captured& captured_;
  io::UdpSocket socket_;
  Target target_;
  std::atomic<std::uint64_t> num_passed_on_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace holdfast::hostile
