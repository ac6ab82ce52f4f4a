// The attacker as a program: one command a line on standard input, one line of JSON in answer.
//
//   job JOB EPOCH NUM_RANKS DATAGRAM_BYTES
//   target RANK HOST PORT PROCESS                        an honest rank; PROCESS in hexadecimal, as all keys and ids
//   relay HOST                                           -> port
//   pass_on PORT RANK                                    what arrives at this relay goes to this rank
//   passed                                               -> datagrams passed on so far, by rank
//   flood COUNT SEED PER_SECOND KIND...                  outsider; PER_SECOND 0 is as fast as it goes
//   seat HOST                                            -> port; insider
//   sit RANK PROCESS KEY TOTAL NUM_OPERATIONS EXACT_DEADLINE_MS ONLY_HEARTBEATS
//   lie KIND COUNT PATIENCE_MS
//   status
//   quit
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "insider.h"
#include "outsider.h"
#include "relay.h"

namespace {

using namespace holdfast;
using namespace holdfast::hostile;

template <std::size_t size>
std::array<std::uint8_t, size> from_hex(const std::string& text) {
  std::array<std::uint8_t, size> out{};
  if (text.size() != 2 * size)
    throw std::invalid_argument("expected " + std::to_string(size) + " bytes in hexadecimal");
  for (std::size_t i = 0; i < size; ++i) {
    out[i] = static_cast<std::uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
  return out;
}

template <class Value>
Value next(std::istream& words) {
  Value value{};
  if (!(words >> value)) throw std::invalid_argument("the command lacks a word");
  return value;
}

template <class Key>
std::string json(const std::map<Key, std::uint64_t>& counts) {
  std::ostringstream out;
  for (const auto& [key, count] : counts) out << (out.tellp() == 0 ? "" : ", ") << '"' << key << "\": " << count;
  return "{" + out.str() + "}";
}

class Attacker {
 public:
  std::string obey(const std::string& line) {
    std::istringstream words(line);
    const auto verb = next<std::string>(words);
    if (verb == "job") return know_job(words);
    if (verb == "target") return add_target(words);
    if (verb == "relay") return open_relay(words);
    if (verb == "pass_on") return pass_on(words);
    if (verb == "passed") return passed();
    if (verb == "flood") return flood(words);
    if (verb == "seat") return take_seat(words);
    if (verb == "sit") return sit_down(words);
    if (verb == "lie") return lie(words);
    if (verb == "status") return status();
    throw std::invalid_argument("no command " + verb);
  }

 private:
  std::string know_job(std::istream& words) {
    job_.job = next<std::uint32_t>(words);
    job_.epoch = next<std::uint32_t>(words);
    job_.num_ranks = next<std::uint16_t>(words);
    job_.datagram_bytes = next<std::uint32_t>(words);
    return "{}";
  }

  std::string add_target(std::istream& words) {
    Target target;
    target.rank = next<std::uint16_t>(words);
    const auto host = next<std::string>(words);
    target.address = io::Address::parse(host, next<std::uint16_t>(words));
    target.process = from_hex<16>(next<std::string>(words));
    job_.targets.push_back(target);
    return "{}";
  }

  std::string open_relay(std::istream& words) {
    relays_.push_back(std::make_unique<Relay>(next<std::string>(words), captured_));
    return "{\"port\": " + std::to_string(relays_.back()->port()) + "}";
  }

  std::string pass_on(std::istream& words) {
    const auto port = next<std::uint16_t>(words);
    const auto rank = next<std::uint16_t>(words);
    for (const auto& relay : relays_) {
      if (relay->port() == port) relay->pass_on_to(target_of(rank));
    }
    return "{}";
  }

  std::string passed() const {
    std::map<std::uint16_t, std::uint64_t> by_rank;
    for (const auto& relay : relays_) by_rank[relay->target().rank] += relay->num_passed_on();
    return json(by_rank);
  }

  const Target& target_of(std::uint16_t rank) const {
    for (const Target& target : job_.targets) {
      if (target.rank == rank) return target;
    }
    throw std::invalid_argument("no target of rank " + std::to_string(rank));
  }

  std::string flood(std::istream& words) {
    const auto count = next<std::uint64_t>(words);
    const auto seed = next<std::uint64_t>(words);
    const auto per_second = next<std::uint64_t>(words);
    std::vector<std::string> kinds;
    for (std::string kind; words >> kind;) kinds.push_back(kind);
    const Outsider::Flood flood = Outsider(job_, captured_, seed).flood(count, kinds, per_second);
    std::ostringstream out;
    for (const auto& [rank, sent] : flood.sent) {
      out << (out.tellp() == 0 ? "" : ", ") << '"' << rank << "\": " << json(sent);
    }
    return "{\"sent\": {" + out.str() + "}, \"answers\": " + std::to_string(flood.answers) +
           ", \"seconds\": " + std::to_string(flood.seconds) + "}";
  }

  std::string take_seat(std::istream& words) {
    insider_ = std::make_unique<Insider>(next<std::string>(words));
    return "{\"port\": " + std::to_string(insider_->port()) + "}";
  }

  Insider& insider() const {
    if (!insider_) throw std::invalid_argument("take a seat first");
    return *insider_;
  }

  std::string sit_down(std::istream& words) {
    Insider::Seat seat;
    seat.rank = next<std::uint16_t>(words);
    seat.process = from_hex<16>(next<std::string>(words));
    seat.key = from_hex<32>(next<std::string>(words));
    seat.schedule.total = next<std::uint32_t>(words);
    seat.num_operations = next<std::uint32_t>(words);
    seat.exact_deadline = next<std::uint32_t>(words) * millisecond;
    seat.only_heartbeats = next<int>(words) != 0;
    insider().sit_down(job_, seat);
    return "{}";
  }

  std::string lie(std::istream& words) {
    const auto kind = next<std::string>(words);
    const auto count = next<std::uint64_t>(words);
    const bool told = insider().lie(kind, count, next<std::uint32_t>(words) * millisecond);
    return told ? "{\"told\": true}" : "{\"told\": false}";
  }

  std::string status() const {
    const Insider::Account status = insider().status();
    std::ostringstream out;
    out << "{\"joined\": " << (status.joined ? "true" : "false") << ", \"next_operation\": " << status.next_operation
        << ", \"operations_done\": " << status.operations_done
        << ", \"operations_failed\": " << status.operations_failed << ", \"lies\": " << json(status.lies)
        << ", \"heard\": " << json(status.heard) << ", \"said\": " << json(status.said)
        << ", \"bytes_heard\": " << status.bytes_heard << ", \"bytes_said\": " << status.bytes_said << "}";
    return out.str();
  }

  Job job_;
  Captured captured_;
  std::vector<std::unique_ptr<Relay>> relays_;
  std::unique_ptr<Insider> insider_;
};

}  // namespace

int main() {
  Attacker attacker;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    try {
      std::cout << attacker.obey(line) << std::endl;
    } catch (const std::exception& error) {
      std::cout << "{\"error\": \"" << error.what() << "\"}" << std::endl;
    }
  }
  return 0;
}
