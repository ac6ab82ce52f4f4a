#include "switch/link_queue.h"

#include <algorithm>
#include <cmath>

namespace holdfast::lab {
namespace {

constexpr double rounding_bytes = 1e-3;

}  // namespace

void LinkQueue::advance(Time now, double limit_bytes) {
  while (now_ < now) {
    const Rates& rates = rates_.at(now_);
    const Time end = std::min(rates.until, now);
    flow(static_cast<double>(end - now_), service(rates), arrival(rates), limit_bytes);
    now_ = end;
  }
}

// Fluid in, fluid out, for a time in which neither rate changes. The backlog goes straight until it is empty or full.
void LinkQueue::flow(double duration, double service, double arrival, double limit) {
  cross_traffic_bytes_ += arrival * duration;
  while (duration > 0) {
    if (backlog_ <= 0 && arrival <= service) return;  // what comes is through at once
    double admitted = arrival;
    if (backlog_ > limit) admitted = 0;  // the limit was lowered
    if (backlog_ == limit) admitted = std::min(arrival, service);
    const double growth = admitted - service;
    double step = duration, target = backlog_ + growth * duration;
    if (growth < 0 && backlog_ > limit && target < limit) target = limit;
    if (growth > 0 && target > limit) target = limit;
    if (growth < 0 && target < 0) target = 0;
    if (target != backlog_ + growth * duration) step = std::min(duration, (target - backlog_) / growth);
    served_ += service * step;
    backlog_ = target;
    peak_ = std::max(peak_, backlog_);
    duration -= step;
  }
}

void LinkQueue::push(const Parcel& parcel) {
  if (waiting_.empty() && backlog_ <= 0) served_ = 0;  // so that it keeps its precision for ever
  backlog_ += parcel.bytes;
  peak_ = std::max(peak_, backlog_);
  waiting_.push_back({parcel, served_ + backlog_});
}

bool LinkQueue::pop(Parcel& parcel) {
  if (waiting_.empty() || waiting_.front().through_at > served_ + rounding_bytes) return false;
  parcel = waiting_.front().parcel;
  waiting_.pop_front();
  return true;
}

Time LinkQueue::next_event() {
  if (waiting_.empty()) return never;
  double left = waiting_.front().through_at - served_;
  Time at = now_;
  while (at < now_ + second) {
    const Rates& rates = rates_.at(at);
    const double rate = service(rates);
    if (rate > 0 && left <= rate * static_cast<double>(rates.until - at)) {
      return at + static_cast<Duration>(std::ceil(left / rate));
    }
    if (rates.until == never) return never;
    left -= rate * static_cast<double>(rates.until - at);
    at = rates.until;
  }
  return at;
}

}  // namespace holdfast::lab
