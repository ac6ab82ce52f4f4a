#include "relay.h"

#include <poll.h>

namespace holdfast::hostile {

Relay::Relay(const std::string& host, Captured& captured)
    : captured_(captured), socket_(io::Address::parse(host, 0), io::UdpOptions{}) {}

Relay::~Relay() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void Relay::pass_on_to(const Target& target) {
  target_ = target;
  thread_ = std::thread([this] { run(); });
}

void Relay::run() {
  pollfd ready{socket_.fd(), POLLIN, 0};
  while (!stopping_) {
    if (poll(&ready, 1, 20) <= 0) continue;
    socket_.receive(4, [&](std::span<std::uint8_t> datagram, Duration) {
      captured_.add(target_.rank, datagram);
      const auto* to = reinterpret_cast<const sockaddr*>(&target_.address.storage);
      sendto(socket_.fd(), datagram.data(), datagram.size(), 0, to, target_.address.length);
      ++num_passed_on_;
    });
  }
}

}  // namespace holdfast::hostile
