// The switch at work: moves packets between TUN devices in one thread, as the fabric says.
//
// One thread calls run(); any other may call the rest. Questions and changes are carried out by the running thread
// between two turns, so that it never waits for a lock that somebody of lower priority holds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/time.h"
#include "io/file_descriptor.h"
#include "switch/conditions.h"
#include "switch/fabric.h"
#include "switch/lateness.h"
#include "switch/packet.h"
#include "switch/report.h"
#include "switch/super_packet.h"

namespace holdfast::lab {

class Pump {
 public:
  // Port i is the TUN device behind descriptors[i] (not owned, made non-blocking), addresses[i] its host's, in host
  // byte order.
  Pump(std::vector<int> descriptors, std::vector<std::uint32_t> addresses, std::uint64_t seed);
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  // Until stop(), which may come first. A device that is gone is a host that has left; the others go on.
  void run();
  void stop();

  void configure(const Conditions& conditions);
  void draw_anew(std::uint64_t seed);
  SwitchReport report();
  void reset();
  // On CLOCK_MONOTONIC. See capacity.h.
  double capacity_bound_s(Time start, std::vector<std::uint64_t> bytes_out, std::vector<std::uint64_t> bytes_in);
  std::vector<double> frozen_s(Time start, Time end);

 private:
  // Packets of one path that are due, on their way into one write.
  struct Batch {
    Merger merger;
    std::vector<Delivery> deliveries;
  };

  template <class Question>
  auto ask(Question question);  // has it answered between two turns, and waits for that
  void loop();
  void run_tasks();
  bool take_turn();  // true when there is more to read
  bool read_from(std::size_t port);
  void admit(std::size_t port, std::size_t frame_bytes);
  void deliver();
  bool may_wait(Time now, const Batch& batch);
  void write_batch(Batch& batch);
  Time next_deadline();
  void free_lost_packets();
  void wait(bool more_to_read);
  void drop_port(std::size_t port);
  SwitchReport make_report();
  void reset_now();

  const std::vector<int> descriptors_;
  std::unordered_map<std::uint32_t, std::uint16_t> port_of_address_;
  io::FileDescriptor epoll_;
  io::FileDescriptor wake_;
  Fabric fabric_;
  PacketPool pool_;
  std::vector<Batch> batches_;  // by to x ports + from
  std::vector<std::size_t> open_batches_;
  std::vector<std::uint8_t> frame_;
  std::vector<std::uint16_t> readable_;
  std::vector<bool> gone_;

  Lateness lateness_;
  Time reset_at_;
  Duration cpu_at_reset_ = 0;
  Duration cpu_ = 0;
  Time turn_began_ = 0;
  bool realtime_ = false;
  std::uint64_t num_wakeups_ = 0, num_reads_ = 0, num_writes_ = 0;

  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  bool running_ = false;
  std::atomic<bool> has_tasks_{false};
  std::atomic<bool> stopping_{false};
};

}  // namespace holdfast::lab
