// How fast to send on one peer path: a model of the path's bandwidth and round-trip time (after BBR, without its
// reaction to isolated loss), and the pacer that spreads datagrams at that rate.
//
// Between processes of one host there is no link to share: there the receiver's buffer is the only limit.
#pragma once

#include <cstdint>
#include <deque>

#include "core/time.h"

namespace holdfast {

// What the path had delivered when a packet left; from it and its ack comes one bandwidth sample.
struct DeliverySnapshot {
  std::uint64_t delivered_bytes = 0;
  Time delivered_at = 0;
  Time first_sent_at = 0;
  bool app_limited = false;
};

class RateController {
 public:
  RateController(std::uint32_t datagram_bytes, bool same_host);

  DeliverySnapshot on_sent(Time now, std::uint64_t bytes_in_flight);
  // `newest` is the latest-sent packet among those newly acknowledged.
  void on_acknowledged(Time now, std::uint64_t bytes, const DeliverySnapshot& newest, Time newest_sent_at,
                       Duration rtt);
  // The sender has nothing more to send, or starts anew, with this much in flight: samples until that much and one more
  // packet were delivered say little about the path.
  void on_app_limited(std::uint64_t bytes_in_flight);
  void set_receive_window(std::uint32_t bytes) { receive_window_ = bytes; }

  double pacing_bytes_per_second() const;
  std::uint64_t window_bytes() const;  // most bytes in flight
  double bandwidth_bytes_per_second() const { return bandwidth_.empty() ? 0.0 : bandwidth_.front().value; }
  bool same_host() const { return same_host_; }

 private:
  enum class Phase : std::uint8_t { startup, drain, probe };
  struct Sample {
    std::uint64_t round;
    double value;
  };

  void add_bandwidth_sample(double value, bool app_limited);
  void add_aggregation_sample(Time now, std::uint64_t bytes);
  void advance_phase(Time now, bool round_started, bool app_limited);
  double gain() const;

  std::uint32_t datagram_bytes_;
  bool same_host_;
  std::uint32_t receive_window_;
  Phase phase_ = Phase::startup;

  std::uint64_t delivered_bytes_ = 0;
  Time delivered_at_ = 0;
  Time first_sent_at_ = 0;
  std::uint64_t app_limited_until_ = 0;  // delivered_bytes_ at which the app-limited stretch ends; 0: not limited

  std::uint64_t round_ = 0;
  std::uint64_t round_ends_at_ = 0;
  std::deque<Sample> bandwidth_;  // maximum over the last rounds: falling values, front is the maximum
  Duration min_rtt_ = 0;
  Time min_rtt_at_ = 0;

  double startup_best_ = 0;
  int startup_rounds_without_growth_ = 0;
  std::size_t cycle_index_ = 0;
  Time cycle_started_at_ = 0;

  // Acks come in lumps (batching, scheduling): how many bytes a lump may exceed the model by.
  Time aggregation_started_at_ = 0;
  std::uint64_t aggregated_bytes_ = 0;
  std::deque<Sample> aggregation_;
};

// Lets bytes go at a rate, in bursts of about half a millisecond, so that a wake-up moves more than one packet.
class Pacer {
 public:
  explicit Pacer(std::uint32_t datagram_bytes) : datagram_bytes_(datagram_bytes) {}

  // When the next datagram may leave; not later than `now` means: now.
  Time ready_at() const { return ready_at_; }
  void on_sent(Time now, std::uint64_t bytes, double bytes_per_second);
  // At most this many bytes in one offload batch (16 kB or half a millisecond of the rate, whichever is less).
  std::uint64_t batch_bytes(double bytes_per_second) const;

 private:
  std::uint32_t datagram_bytes_;
  Time ready_at_ = 0;
};

}  // namespace holdfast
