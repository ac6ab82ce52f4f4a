#include "outsider.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "io/clock.h"

namespace holdfast::hostile {
namespace {

constexpr std::size_t max_udp_bytes = 65'507;
constexpr std::size_t batch_size = 64;
constexpr std::size_t usual_body_bytes = 256;

io::UdpOptions plain_socket() {
  io::UdpOptions options;
  options.use_segmentation = false;  // the receiver's kernel then counts every datagram it drops
  return options;
}

}  // namespace

Outsider::Outsider(const Job& job, const Captured& captured, std::uint64_t seed)
    : job_(job),
      random_(seed, 1),
      noise_(4 * max_udp_bytes),
      socket_(io::Address::parse("127.0.0.1", 0), plain_socket()) {
  if (job.targets.empty()) throw std::invalid_argument("no targets");
  for (std::uint8_t& byte : noise_) byte = static_cast<std::uint8_t>(random_.bits());
  for (const Target& target : job.targets) captured_[target.rank] = captured.of(target.rank);
}

Outsider::Compose Outsider::composer_of(const std::string& kind) {
  static const std::map<std::string, Compose> composers{
      {"random", &Outsider::compose_random},
      {"short", &Outsider::compose_short},
      {"long", &Outsider::compose_long},
      {"version", &Outsider::compose_version},
      {"malformed", &Outsider::compose_malformed},
      {"job", &Outsider::compose_job},
      {"epoch", &Outsider::compose_epoch},
      {"sender", &Outsider::compose_sender},
      {"phase", &Outsider::compose_phase},
      {"forged_data", &Outsider::compose_forged_data},
      {"forged_end", &Outsider::compose_forged_end},
      {"forged_ack", &Outsider::compose_forged_ack},
      {"forged_bye", &Outsider::compose_forged_bye},
      {"replay", &Outsider::compose_replay},
      {"garbled", &Outsider::compose_garbled},
      {"redirected", &Outsider::compose_redirected},
  };
  const auto found = composers.find(kind);
  if (found == composers.end()) throw std::invalid_argument("no datagrams of kind " + kind);
  return found->second;
}

// ---------------------------------------------------------------------------------------------------- sending

Outsider::Flood Outsider::flood(std::uint64_t count, std::span<const std::string> kinds, std::uint64_t per_second) {
  if (kinds.empty()) throw std::invalid_argument("a flood of nothing");
  std::vector<Compose> composers;
  for (const std::string& kind : kinds) composers.push_back(composer_of(kind));
  std::vector<std::vector<std::uint64_t>> sent(job_.targets.size(), std::vector<std::uint64_t>(kinds.size()));
  std::vector<Composed> batch(batch_size);
  const Time started = io::monotonic_now();
  std::uint64_t done = 0;
  for (std::size_t turn = 0; done < count; ++turn) {
    const std::size_t target = turn % job_.targets.size();
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(batch_size, count - done));
    for (std::size_t i = 0; i < size; ++i) {
      const auto kind = static_cast<std::size_t>(random_.below(kinds.size()));
      (this->*composers[kind])(job_.targets[target], batch[i]);
      ++sent[target][kind];
    }
    send(job_.targets[target], {batch.data(), size});
    done += size;
    if (per_second == 0) continue;
    const Time due = started + static_cast<Duration>(done * static_cast<std::uint64_t>(second) / per_second);
    if (const Duration ahead = due - io::monotonic_now(); ahead > 0) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(ahead));
    }
  }
  Flood flood;
  flood.seconds = static_cast<double>(io::monotonic_now() - started) / second;
  for (std::size_t target = 0; target < sent.size(); ++target) {
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      flood.sent[job_.targets[target].rank][kinds[kind]] = sent[target][kind];
    }
  }
  // Whoever were to answer would have done so while the others were served; give the last ones a moment, too.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  flood.answers = socket_.receive(1 << 20, [](std::span<std::uint8_t>, Duration) {});
  return flood;
}

void Outsider::send(const Target& target, std::span<Composed> batch) {
  mmsghdr messages[batch_size] = {};
  iovec parts[2 * batch_size];
  for (std::size_t i = 0; i < batch.size(); ++i) {
    parts[2 * i] = {batch[i].header, batch[i].header_size};
    parts[2 * i + 1] = {const_cast<std::uint8_t*>(batch[i].body), batch[i].body_size};
    msghdr& header = messages[i].msg_hdr;
    header.msg_name = const_cast<sockaddr_storage*>(&target.address.storage);
    header.msg_namelen = target.address.length;
    header.msg_iov = &parts[2 * i];
    header.msg_iovlen = 2;
  }
  std::size_t done = 0;
  while (done < batch.size()) {
    const int sent = sendmmsg(socket_.fd(), messages + done, static_cast<unsigned>(batch.size() - done), 0);
    if (sent > 0) {
      done += static_cast<std::size_t>(sent);
    } else if (errno != EAGAIN && errno != ENOBUFS && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "cannot send to rank " + std::to_string(target.rank));
    }
  }
}

// ---------------------------------------------------------------------------------------------------- composing

// What the target would take for the header of a peer's contribution.
Header Outsider::plausible(const Target& target) {
  Header header;
  header.type = PacketType::data;
  header.stage = Stage::contribution;
  header.format = Format::f32;
  header.job = job_.job;
  header.epoch = job_.epoch;
  const auto step = static_cast<std::uint16_t>(1 + random_.below(job_.num_ranks - 1u));
  header.sender = static_cast<std::uint16_t>((target.rank + step) % job_.num_ranks);
  // Far ahead of all honest ones, so that the tag and nothing else gives it away.
  header.transmission = (1ull << 40) + (random_.bits() >> 24);
  header.operation = static_cast<std::uint32_t>(random_.below(1024));
  header.total = 1u << 20;
  header.offset = static_cast<std::uint32_t>(random_.below(1u << 19));
  return header;
}

const std::uint8_t* Outsider::random_body(std::size_t size) {
  return noise_.data() + random_.below(noise_.size() - size);
}

// The body is payload and tag, both noise.
void Outsider::put(const Header& header, std::size_t body_size, Composed& out) {
  encode(header, std::span<std::uint8_t, header_bytes>(out.header));
  out.header_size = header_bytes;
  out.body = random_body(body_size);
  out.body_size = body_size;
}

const Bytes& Outsider::captured_for(std::uint16_t receiver) {
  const std::vector<Bytes>& all = captured_.at(receiver);
  if (all.empty()) throw std::invalid_argument("nothing was captured for rank " + std::to_string(receiver));
  return all[random_.below(all.size())];
}

void Outsider::compose_random(const Target&, Composed& out) {
  out.header_size = 0;
  out.body_size = random_.below(2 * usual_body_bytes);
  out.body = random_body(out.body_size);
}

void Outsider::compose_short(const Target& target, Composed& out) {
  put(plausible(target), random_.below(tag_bytes), out);
  out.header_size = out.body_size == 0 ? random_.below(header_bytes + 1) : header_bytes;
}

void Outsider::compose_long(const Target& target, Composed& out) {
  const std::size_t longest = (max_udp_bytes - header_bytes - tag_bytes) / 4;
  const std::size_t elements = longest - random_.below(64);
  put(plausible(target), 4 * elements + tag_bytes, out);
}

void Outsider::compose_version(const Target& target, Composed& out) {
  put(plausible(target), usual_body_bytes + tag_bytes, out);
  out.header[0] = static_cast<std::uint8_t>(wire_version + 1 + random_.below(254));
}

void Outsider::compose_malformed(const Target& target, Composed& out) {
  Header header = plausible(target);
  switch (random_.below(5)) {
    case 0:
      header.flags = flag::exact;
      header.division = 1;  // what is exact is divided evenly
      break;
    case 1: header.stage = Stage::none; break;
    case 2: header.offset = header.total + 1; break;
    case 3: header.packed_elements = 16; break;      // and not packed
    default: header.type = PacketType::ping; break;  // with a payload
  }
  put(header, usual_body_bytes + tag_bytes, out);
}

void Outsider::compose_job(const Target& target, Composed& out) {
  Header header = plausible(target);
  header.job += 1 + static_cast<std::uint32_t>(random_.below(UINT32_MAX - 1));
  put(header, usual_body_bytes + tag_bytes, out);
}

void Outsider::compose_epoch(const Target& target, Composed& out) {
  Header header = plausible(target);
  header.epoch += 1 + static_cast<std::uint32_t>(random_.below(UINT32_MAX - 1));
  put(header, usual_body_bytes + tag_bytes, out);
}

void Outsider::compose_sender(const Target& target, Composed& out) {
  Header header = plausible(target);
  const bool itself = random_.chance(0.5);
  header.sender = itself ? target.rank : static_cast<std::uint16_t>(job_.num_ranks + random_.below(60'000));
  put(header, usual_body_bytes + tag_bytes, out);
}

void Outsider::compose_phase(const Target& target, Composed& out) {
  Header header = plausible(target);
  header.key_phase = static_cast<std::uint8_t>(100 + random_.below(56));
  put(header, usual_body_bytes + tag_bytes, out);
}

void Outsider::compose_forged_data(const Target& target, Composed& out) {
  Header header = plausible(target);
  header.key_phase = static_cast<std::uint8_t>(random_.below(2));  // the current key, or the next
  put(header, usual_body_bytes + tag_bytes, out);
}

void Outsider::compose_forged_end(const Target& target, Composed& out) {
  Header header = plausible(target);
  header.type = PacketType::end;
  header.flags = flag::last_percentile | flag::ack_now;
  put(header, tag_bytes, out);
}

void Outsider::compose_forged_ack(const Target& target, Composed& out) {
  Header header = plausible(target);
  header.type = PacketType::ack;
  header.stage = Stage::none;
  out.owned = encode(Ack{.receive_window = UINT32_MAX, .ranges = {{0, random_.below(1000)}}});
  put(header, out.owned.size() + tag_bytes, out);
  out.owned.insert(out.owned.end(), out.body, out.body + tag_bytes);
  out.body = out.owned.data();
}

void Outsider::compose_forged_bye(const Target& target, Composed& out) {
  Header header = plausible(target);
  header.type = PacketType::bye;
  header.stage = Stage::none;
  put(header, tag_bytes, out);
}

void Outsider::compose_replay(const Target& target, Composed& out) {
  const Bytes& datagram = captured_for(target.rank);
  out.header_size = 0;
  out.body = datagram.data();
  out.body_size = datagram.size();
}

void Outsider::compose_garbled(const Target& target, Composed& out) {
  out.owned = captured_for(target.rank);
  out.owned[random_.below(out.owned.size())] ^= static_cast<std::uint8_t>(1u << random_.below(8));
  out.header_size = 0;
  out.body = out.owned.data();
  out.body_size = out.owned.size();
}

// What was meant for another rank.
void Outsider::compose_redirected(const Target& target, Composed& out) {
  const auto first = static_cast<std::size_t>(random_.below(job_.targets.size()));
  for (std::size_t turn = 0; turn < job_.targets.size(); ++turn) {
    const std::uint16_t other = job_.targets[(first + turn) % job_.targets.size()].rank;
    if (other == target.rank || captured_.at(other).empty()) continue;
    const Bytes& datagram = captured_for(other);
    out.header_size = 0;
    out.body = datagram.data();
    out.body_size = datagram.size();
    return;
  }
  throw std::invalid_argument("nothing was captured that was meant for another rank");
}

}  // namespace holdfast::hostile
