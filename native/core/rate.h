// How fast to send on one peer path. The controller keeps the books that every rule needs - what was delivered between
// a packet's departure and its acknowledgement, and where one round trip ends and the next begins - and asks one of two
// rules what follows from them.
//
// Between processes of one host there is no link to share: there the receiver's buffer is the only limit.
#pragma once

#include <cstdint>
#include <variant>

#include "core/queue_allowance.h"
#include "core/rate_delay.h"
#include "core/rate_model.h"
#include "core/rate_sample.h"
#include "core/time.h"

namespace holdfast {

enum class RateRule : std::uint8_t {
  delay,  // OptiReduce 3.2.3: follow the round-trip time between two thresholds
  model,  // after BBR: follow the largest delivery rate seen, whatever is lost
};

// What the path had delivered when a packet left; from it and its ack comes one bandwidth sample.
struct DeliverySnapshot {
  std::uint64_t delivered_bytes = 0;
  Time delivered_at = 0;
  Time first_sent_at = 0;
  bool app_limited = false;
};

class RateController {
 public:
  RateController(RateRule rule, std::uint32_t datagram_bytes, bool same_host);

  DeliverySnapshot on_sent(Time now, std::uint64_t bytes_in_flight);
  // `newest` is the latest-sent packet among those newly acknowledged.
  void on_acknowledged(Time now, std::uint64_t bytes, const DeliverySnapshot& newest, Time newest_sent_at, Duration rtt,
                       Duration queue = 0);
  void on_lost(std::uint64_t bytes);
  // The sender has nothing more to send, or starts anew, with this much in flight: samples until that much and one more
  // packet were delivered say little about the path.
  void on_app_limited(std::uint64_t bytes_in_flight);
  void set_receive_window(std::uint32_t bytes) { receive_window_ = bytes; }

  // `card_share`: most that this path may take of the card it leaves through; 0: not known.
  double pacing_bytes_per_second(double card_share = 0) const;
  // Most bytes in flight. A longer queue at the peer's port than the tolerable one makes them fewer.
  std::uint64_t window_bytes(Duration tolerable_queue = QueueAllowance::least) const;
  // What each path of this rank gets when they share its network card equally; 0: not known.
  void set_fair_bandwidth(double bytes_per_second);
  double bandwidth_bytes_per_second() const;
  Duration base_rtt() const;
  bool same_host() const { return same_host_; }

 private:
  std::uint32_t datagram_bytes_;
  bool same_host_;
  std::uint32_t receive_window_;
  std::variant<DelayRule, ModelRule> rule_;

  std::uint64_t delivered_bytes_ = 0;
  std::uint64_t lost_bytes_ = 0;  // since the last acknowledgement
  Time delivered_at_ = 0;
  Time first_sent_at_ = 0;
  std::uint64_t app_limited_until_ = 0;  // delivered_bytes_ at which the app-limited stretch ends; 0: not limited
  std::uint64_t round_ends_at_ = 0;
};

}  // namespace holdfast
