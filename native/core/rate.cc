#include "core/rate.h"

#include <algorithm>
#include <cmath>

namespace holdfast {
namespace {

constexpr std::uint32_t initial_receive_window = 256 * 1024;

std::variant<DelayRule, ModelRule> make_rule(RateRule rule, std::uint32_t datagram_bytes) {
  if (rule == RateRule::delay) return DelayRule(datagram_bytes);
  return ModelRule(datagram_bytes);
}

}  // namespace

RateController::RateController(RateRule rule, std::uint32_t datagram_bytes, bool same_host)
    : datagram_bytes_(datagram_bytes),
      same_host_(same_host),
      receive_window_(initial_receive_window),
      rule_(make_rule(rule, datagram_bytes)) {}

DeliverySnapshot RateController::on_sent(Time now, std::uint64_t bytes_in_flight) {
  if (bytes_in_flight == 0) {
    first_sent_at_ = now;
    delivered_at_ = now;
  }
  return {delivered_bytes_, delivered_at_, first_sent_at_, app_limited_until_ != 0};
}

void RateController::on_acknowledged(Time now, std::uint64_t bytes, const DeliverySnapshot& newest, Time newest_sent_at,
                                     Duration rtt, Duration queue) {
  delivered_bytes_ += bytes;
  delivered_at_ = now;
  first_sent_at_ = newest_sent_at;
  if (app_limited_until_ != 0 && delivered_bytes_ > app_limited_until_) app_limited_until_ = 0;

  RateSample sample;
  sample.now = now;
  sample.acknowledged_bytes = bytes;
  sample.lost_bytes = lost_bytes_;
  sample.app_limited = newest.app_limited;
  sample.rtt = rtt;
  sample.queue = queue;
  sample.round_started = newest.delivered_bytes >= round_ends_at_;
  if (sample.round_started) round_ends_at_ = delivered_bytes_;
  lost_bytes_ = 0;
  const Duration base = rtt > 0 ? (base_rtt() == 0 ? rtt : std::min(base_rtt(), rtt)) : base_rtt();
  const Duration interval = std::max(newest_sent_at - newest.first_sent_at, now - newest.delivered_at);
  // A sample shorter than a round trip measures how acks were bunched, not what the path carries.
  if (interval >= std::max(base, microsecond)) {
    sample.bytes_per_second = static_cast<double>(delivered_bytes_ - newest.delivered_bytes) / in_seconds(interval);
  }
  std::visit([&](auto& rule) { rule.on_sample(sample); }, rule_);
}

void RateController::on_lost(std::uint64_t bytes) { lost_bytes_ += bytes; }

void RateController::set_fair_bandwidth(double bytes_per_second) {
  if (ModelRule* model = std::get_if<ModelRule>(&rule_)) model->set_fair_bandwidth(bytes_per_second);
}

void RateController::on_app_limited(std::uint64_t bytes_in_flight) {
  app_limited_until_ = std::max<std::uint64_t>(1, delivered_bytes_ + bytes_in_flight);
}

double RateController::pacing_bytes_per_second(double card_share) const {
  if (same_host_) return HUGE_VAL;
  return std::visit([card_share](const auto& rule) { return rule.pacing_bytes_per_second(card_share); }, rule_);
}

std::uint64_t RateController::window_bytes(Duration tolerable_queue) const {
  const std::uint64_t most = std::max<std::uint64_t>(receive_window_, datagram_bytes_);
  if (same_host_) return most;
  const ModelRule* model = std::get_if<ModelRule>(&rule_);
  const double wanted = model ? model->window_bytes(tolerable_queue) : std::get<DelayRule>(rule_).window_bytes();
  return std::min(most, static_cast<std::uint64_t>(std::min(wanted, static_cast<double>(most))));
}

double RateController::bandwidth_bytes_per_second() const {
  return std::visit([](const auto& rule) { return rule.bandwidth_bytes_per_second(); }, rule_);
}

Duration RateController::base_rtt() const {
  return std::visit([](const auto& rule) { return rule.base_rtt(); }, rule_);
}

}  // namespace holdfast
