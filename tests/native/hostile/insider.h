// A rank's seat in the hands of an attacker: a real endpoint that joins, heartbeats and, if told to, takes part in
// operations, while some of its heartbeats are replaced by lies under the right key and the next number.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "lies.h"

namespace holdfast::hostile {

class Insider {
 public:
  explicit Insider(const std::string& host);
  ~Insider();
  Insider(const Insider&) = delete;
  Insider& operator=(const Insider&) = delete;

  std::uint16_t port() const { return socket_.local().port(); }

  struct Seat {
    std::uint16_t rank = 0;
    ProcessId process{};
    JobKey key{};
    // Hears neither data nor ends, so it serves nobody: nothing but heartbeats and acks of heartbeats.
    bool only_heartbeats = false;
    Schedule schedule;
    std::uint32_t num_operations = 0;  // to take part in
    Duration exact_deadline = 0;       // how long it waits in an exact one
  };
  void sit_down(const Job& job, const Seat& seat);

  // Tells every honest rank `count` lies of this kind. False when that took longer than `patience`.
  bool lie(const std::string& kind, std::uint64_t count, Duration patience);

  struct Account {
    bool joined = false;
    std::uint32_t next_operation = 0;
    std::uint64_t operations_done = 0;            // ended well
    std::uint64_t operations_failed = 0;          // with an error
    std::map<std::uint16_t, std::uint64_t> lies;  // told so far, by victim
    Counts heard;                                 // datagrams by packet type
    Counts said;
    std::uint64_t bytes_heard = 0;
    std::uint64_t bytes_said = 0;
  };
  Account status() const;

 private:
  void run();
  void receive(Time now);
  void transmit(Time now);
  void say(std::uint16_t peer, std::span<const std::uint8_t> datagram);
  std::optional<Bytes> replacement_of(std::uint16_t peer, std::span<const std::uint8_t> heartbeat);
  Bytes sealed(std::uint16_t peer, Lie lie, std::span<const std::uint8_t> heartbeat);
  void take_part(Time now);

  Job job_;
  Seat seat_;
  io::UdpSocket socket_;
  std::unique_ptr<Endpoint> endpoint_;
  std::map<std::uint16_t, io::Address> addresses_;
  std::map<std::uint16_t, ProcessId> processes_;
  std::map<std::uint16_t, std::unique_ptr<Sealer>> sealers_;
  TransmitBatch batch_;
  std::vector<float> gradient_;
  bool calling_ = false;

  mutable std::mutex mutex_;  // guards all below
  std::string lie_kind_;
  std::map<std::uint16_t, std::uint64_t> lies_left_;
  std::map<std::pair<std::string, std::uint16_t>, std::uint64_t> lies_told_;  // by kind and victim
  Account status_;
  std::uint64_t num_heartbeats_ = 0;

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace holdfast::hostile
