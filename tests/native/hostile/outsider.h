// Somebody who can send datagrams to every rank, knows all that travels in the clear, and has no key.
#pragma once

#include <span>
#include <string>

#include "job.h"
#include "sim/random.h"

namespace holdfast::hostile {

class Outsider {
 public:
  Outsider(const Job& job, const Captured& captured, std::uint64_t seed);

  struct Flood {
    std::map<std::uint16_t, Counts> sent;  // by target, by kind
    std::uint64_t answers = 0;             // datagrams that came back
    double seconds = 0;
  };

  // Sends `count` datagrams of these kinds in turn to all targets in turn: as fast as the kernel takes them, or
  // `per_second` at most. Throws std::invalid_argument for a kind it does not know or has no datagrams for.
  Flood flood(std::uint64_t count, std::span<const std::string> kinds, std::uint64_t per_second);

 private:
  // A header and a body that lies elsewhere, so that nothing long is copied.
  struct Composed {
    std::uint8_t header[header_bytes];
    std::size_t header_size = 0;
    const std::uint8_t* body = nullptr;
    std::size_t body_size = 0;
    Bytes owned;  // where the body had to be made
  };
  using Compose = void (Outsider::*)(const Target&, Composed&);

  static Compose composer_of(const std::string& kind);
  void send(const Target& target, std::span<Composed> batch);

  Header plausible(const Target& target);
  const std::uint8_t* random_body(std::size_t size);
  void put(const Header& header, std::size_t body_size, Composed& out);
  const Bytes& captured_for(std::uint16_t receiver);

  void compose_random(const Target& target, Composed& out);
  void compose_short(const Target& target, Composed& out);
  void compose_long(const Target& target, Composed& out);
  void compose_version(const Target& target, Composed& out);
  void compose_malformed(const Target& target, Composed& out);
  void compose_job(const Target& target, Composed& out);
  void compose_epoch(const Target& target, Composed& out);
  void compose_sender(const Target& target, Composed& out);
  void compose_phase(const Target& target, Composed& out);
  void compose_forged_data(const Target& target, Composed& out);
  void compose_forged_end(const Target& target, Composed& out);
  void compose_forged_ack(const Target& target, Composed& out);
  void compose_forged_bye(const Target& target, Composed& out);
  void compose_replay(const Target& target, Composed& out);
  void compose_garbled(const Target& target, Composed& out);
  void compose_redirected(const Target& target, Composed& out);

  Job job_;
  sim::Random random_;
  Bytes noise_;
  std::map<std::uint16_t, std::vector<Bytes>> captured_;
  io::UdpSocket socket_;
};

}  // namespace holdfast::hostile
