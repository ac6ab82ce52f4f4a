// Whole endpoints back to back on a virtual clock, and one endpoint against a peer that holds the keys and means harm.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <stdexcept>
#include <string>

#include "core/endpoint.h"
#include "testing/check.h"

using namespace holdfast;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr Time start = 100 * second;

ProcessId process_of(std::uint16_t rank) {
  ProcessId id{};
  id.fill(static_cast<std::uint8_t>(0x50 + rank));
  return id;
}

EndpointSettings settings_for(std::uint16_t rank, std::uint16_t num_ranks) {
  EndpointSettings settings;
  settings.rank = rank;
  settings.num_ranks = num_ranks;
  settings.job = 77;
  settings.epoch = 3;
  settings.job_key.fill(9);
  for (std::uint16_t peer = 0; peer < num_ranks; ++peer) settings.peers.push_back({process_of(peer), false});
  return settings;
}

using Change = std::function<void(EndpointSettings&)>;

// Endpoints joined by a network that delays everything alike and does what `filter` says to each datagram.
struct Network {
  struct Datagram {
    Time arrives_at;
    std::uint64_t order;
    std::uint16_t from;
    std::uint16_t to;
    Bytes bytes;
    bool operator<(const Datagram& other) const {
      return std::pair(arrives_at, order) > std::pair(other.arrives_at, other.order);
    }
  };

  Time now = start;
  Duration delay = 500 * microsecond;
  std::vector<std::unique_ptr<Endpoint>> ranks;
  std::vector<bool> frozen;
  std::priority_queue<Datagram> in_flight;
  std::uint64_t num_sent = 0;
  std::uint64_t num_wakes = 0;
  std::function<bool(std::uint16_t from, std::uint16_t to, Bytes&)> filter = [](auto, auto, Bytes&) { return true; };
  std::vector<std::vector<OperationReport>> reports;
  std::vector<std::vector<Note>> notes;
  std::vector<std::vector<SentNote>> fates;
  bool readers_are_there = true;
  std::uint64_t card_queue_bytes = 0;
  std::vector<std::string> changes;  // "1 alive; 1 dead; "

  explicit Network(std::uint16_t num_ranks, const Change& change = [](EndpointSettings&) {}) {
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      EndpointSettings settings = settings_for(rank, num_ranks);
      change(settings);
      ranks.push_back(std::make_unique<Endpoint>(settings, now));
    }
    frozen.resize(num_ranks);
    reports.resize(num_ranks);
    notes.resize(num_ranks);
    fates.resize(num_ranks);
    changes.resize(num_ranks);
  }

  Endpoint& operator[](std::uint16_t rank) { return *ranks[rank]; }

  bool flush(std::uint16_t rank) {
    static thread_local TransmitBatch batch;
    bool any = false;
    while (ranks[rank]->fill(now, batch, card_queue_bytes)) {
      any = true;
      std::size_t part = 0;
      for (std::uint32_t i = 0; i < batch.num_datagrams; ++i) {
        Bytes bytes;
        for (std::uint32_t piece = 0; piece < batch.parts_per_datagram[i]; ++piece, ++part) {
          const auto* at = static_cast<const std::uint8_t*>(batch.parts[part].iov_base);
          bytes.insert(bytes.end(), at, at + batch.parts[part].iov_len);
        }
        // All of one size but the last, or segmentation offload would cut them wrong.
        HF_CHECK(i + 1 < batch.num_datagrams ? bytes.size() == batch.datagram_bytes
                                             : bytes.size() <= batch.datagram_bytes);
        if (filter(rank, batch.peer, bytes)) {
          in_flight.push({now + delay, num_sent, rank, batch.peer, std::move(bytes)});
        }
        ++num_sent;
      }
      HF_EQUAL(part, batch.parts.size());
    }
    collect(rank);
    return any;
  }

  void collect(std::uint16_t rank) {
    for (auto& report : ranks[rank]->take_reports()) reports[rank].push_back(std::move(report));
    for (auto& note : ranks[rank]->take_notes()) {
      if (readers_are_there) ranks[rank]->release_note(note.sender, note.bytes.size());
      notes[rank].push_back(std::move(note));
    }
    for (auto& fate : ranks[rank]->take_sent_notes()) fates[rank].push_back(fate);
    for (const auto& change : ranks[rank]->take_peer_changes()) {
      static constexpr const char* names[] = {"joining", "alive", "dead", "left"};
      changes[rank] += std::to_string(change.peer) + " " + names[static_cast<int>(change.state)] + "; ";
    }
  }

  void run_until(Time end) {
    for (std::uint16_t rank = 0; rank < ranks.size(); ++rank) {
      if (!frozen[rank]) flush(rank);
    }
    while (true) {
      Time next = in_flight.empty() ? never : in_flight.top().arrives_at;
      for (std::uint16_t rank = 0; rank < ranks.size(); ++rank) {
        if (!frozen[rank]) next = std::min(next, ranks[rank]->next_timer());
      }
      if (next > end) break;
      now = std::max(now, next);
      step();
    }
    now = end;
  }
  void run_for(Duration duration) { run_until(now + duration); }

  void step() {
    while (!in_flight.empty() && in_flight.top().arrives_at <= now) {
      Datagram datagram = in_flight.top();
      in_flight.pop();
      if (frozen[datagram.to]) continue;
      ranks[datagram.to]->receive(now, datagram.bytes);
    }
    for (std::uint16_t rank = 0; rank < ranks.size(); ++rank) {
      if (frozen[rank]) continue;
      const bool due = ranks[rank]->next_timer() <= now;
      if (due) {
        ranks[rank]->on_timer(now);
        ++num_wakes;
      }
      flush(rank);
      // A timer that is still due after it was served would make a reactor spin.
      if (due) HF_CHECK(ranks[rank]->next_timer() > now);
    }
  }

  void join() {
    run_for(50 * millisecond);
    for (const auto& rank : ranks) HF_CHECK(rank->all_peers_alive());
  }
};

Call call_on(std::vector<float>& data, Delivery delivery, Duration deadline = 0) {
  Call call;
  call.data = reinterpret_cast<std::uint8_t*>(data.data());
  call.count = static_cast<std::uint32_t>(data.size());
  call.delivery = delivery;
  call.deadline = deadline;
  return call;
}

// Rank r holds element i as r + i % 8: means over up to eight ranks are exact enough to compare.
std::vector<std::vector<float>> gradients(std::size_t num_ranks, std::size_t count) {
  std::vector<std::vector<float>> all(num_ranks, std::vector<float>(count));
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) all[rank][i] = static_cast<float>(rank + i % 8);
  }
  return all;
}

// The mean of gradients() on n ranks is (n - 1) / 2 + i % 8.
bool is_mean(const std::vector<float>& data, std::size_t num_ranks) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    const float expected = static_cast<float>(num_ranks - 1) / 2 + static_cast<float>(i % 8);
    if (std::abs(data[i] - expected) > 1e-5f * std::max(1.0f, expected)) return false;
  }
  return true;
}

std::uint64_t drops(const Endpoint& endpoint, Drop drop) { return endpoint.drops()[static_cast<std::size_t>(drop)]; }

std::uint64_t all_drops(const Endpoint& endpoint) {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : endpoint.drops()) sum += count;
  return sum;
}

// Rank 1 of a job of `num_ranks`, in the hands of somebody who knows its keys and says whatever he likes.
struct Rogue {
  EndpointSettings settings;
  Endpoint victim;
  Sealer sealer;
  std::uint64_t next = 0;
  Time now = start;

  explicit Rogue(
      const Change& change = [](EndpointSettings&) {}, std::uint16_t num_ranks = 2,
      const ProcessId& process = process_of(1))
      : settings([&] {
          EndpointSettings made = settings_for(0, num_ranks);
          change(made);
          return made;
        }()),
        victim(settings, start),
        sealer(settings.job_key, Direction{settings.epoch, 1, 0, process, process_of(0)}, settings.protection,
               1u << 20) {}

  Bytes sealed(Header header, const Bytes& payload) {
    header.job = settings.job;
    header.epoch = settings.epoch;
    header.sender = 1;
    header.key_phase = sealer.next_phase();
    Bytes bytes(header_bytes + payload.size() + tag_bytes);
    encode(header, std::span<std::uint8_t, header_bytes>(bytes.data(), header_bytes));
    sealer.seal(header.transmission, {bytes.data(), header_bytes}, payload, bytes.data() + header_bytes,
                std::span<std::uint8_t, tag_bytes>(bytes.data() + bytes.size() - tag_bytes, tag_bytes));
    return bytes;
  }

  // Says it, and answers how the victim dropped it.
  std::string say(Header header, const Bytes& payload = {}) {
    header.transmission = next++;
    return deliver(sealed(header, payload));
  }

  std::string deliver(Bytes datagram) {
    const DropCounts before = victim.drops();
    victim.receive(now, datagram);
    for (std::size_t i = 0; i < num_drops; ++i) {
      if (victim.drops()[i] != before[i]) return name(static_cast<Drop>(i));
    }
    return "accepted";
  }

  Header data_header(std::uint32_t operation, std::uint32_t total, Stage stage = Stage::contribution) const {
    Header header;
    header.type = PacketType::data;
    header.stage = stage;
    header.format = Format::f32;
    header.operation = operation;
    header.total = total;
    header.offset =
        stage == Stage::contribution
            ? shard_range(total, settings.num_ranks, responsible_shard(0, operation, settings.num_ranks)).begin
            : shard_range(total, settings.num_ranks, responsible_shard(1, operation, settings.num_ranks)).begin;
    return header;
  }
  // One block of a contribution to the victim's shard.
  std::string contribute(std::uint32_t operation, std::uint32_t total) {
    return say(data_header(operation, total), Bytes(64));
  }

  // What the victim sends back, as headers; acks are read into `acked`.
  std::vector<Header> replies(std::vector<AckRange>* acked = nullptr) {
    Opener opener(settings.job_key, Direction{settings.epoch, 0, 1, process_of(0), process_of(1)}, settings.protection);
    std::vector<Header> headers;
    TransmitBatch batch;
    while (victim.fill(now, batch)) {
      if (batch.peer != 1) continue;
      std::size_t part = 0;
      for (std::uint32_t i = 0; i < batch.num_datagrams; ++i) {
        Bytes bytes;
        for (std::uint32_t piece = 0; piece < batch.parts_per_datagram[i]; ++piece, ++part) {
          const auto* at = static_cast<const std::uint8_t*>(batch.parts[part].iov_base);
          bytes.insert(bytes.end(), at, at + batch.parts[part].iov_len);
        }
        Header header;
        const std::size_t payload_size = bytes.size() - header_bytes - tag_bytes;
        HF_CHECK(!decode(bytes, payload_size, header));
        const std::span<std::uint8_t> payload(bytes.data() + header_bytes, payload_size);
        HF_CHECK(
            !opener.open(header, std::span(bytes).first(header_bytes), payload,
                         std::span<const std::uint8_t, tag_bytes>(bytes.data() + bytes.size() - tag_bytes, tag_bytes)));
        if (header.type == PacketType::ack && acked != nullptr) *acked = decode_ack(payload)->ranges;
        headers.push_back(header);
      }
    }
    return headers;
  }

  std::string acknowledge(std::vector<AckRange> ranges, std::uint32_t window = 1 << 20) {
    Ack ack;
    ack.receive_window = window;
    ack.ranges = std::move(ranges);
    Header header;
    header.type = PacketType::ack;
    return say(header, encode(ack));
  }
  void become_alive() {
    replies();
    HF_EQUAL(acknowledge({{0, 0}}), "accepted");
    HF_CHECK(victim.path(1).state() == PeerState::alive);
  }
};

}  // namespace

// -- joining and operations -------------------------------------------------------------------------------------------

HF_CASE(ranks_join_within_two_round_trips) {
  Network network(3);
  network.run_for(3 * millisecond);
  for (std::uint16_t rank = 0; rank < 3; ++rank) HF_CHECK(network[rank].all_peers_alive());
  HF_EQUAL(network.changes[0], "1 alive; 2 alive; ");
}

HF_CASE(a_rank_that_comes_later_joins_when_it_comes) {
  Network network(2);
  network.frozen[1] = true;
  network.run_for(3 * second);
  HF_CHECK(!network[0].all_peers_alive());
  HF_EQUAL(network.changes[0], "");  // never there: not dead either
  network.frozen[1] = false;
  network.run_for(30 * millisecond);
  HF_CHECK(network[0].all_peers_alive() && network[1].all_peers_alive());
}

HF_CASE(exact_and_bounded_agree_to_the_bit_without_loss) {
  for (const std::uint16_t ranks : {2, 3, 4}) {
    for (const std::size_t count : {1u, 2u, 17u, 1000u, 50'001u}) {
      Network network(ranks);
      network.join();
      auto bounded = gradients(ranks, count);
      auto exact = gradients(ranks, count);
      for (std::uint16_t rank = 0; rank < ranks; ++rank) {
        HF_EQUAL(network[rank].call(network.now, call_on(bounded[rank], Delivery::bounded)), 0u);
        HF_EQUAL(network[rank].call(network.now, call_on(exact[rank], Delivery::exact)), 1u);
      }
      network.run_for(400 * millisecond);
      for (std::uint16_t rank = 0; rank < ranks; ++rank) {
        HF_EQUAL(network.reports[rank].size(), 2u);
        for (const OperationReport& report : network.reports[rank]) {
          HF_CHECK(report.status == Status::done && report.missing.empty());
          HF_CHECK(report.contributions.end == StageEnd::complete && report.results.end == StageEnd::complete);
          HF_EQUAL(report.delivered, report.expected);
        }
        HF_CHECK(is_mean(bounded[rank], ranks) && is_mean(exact[rank], ranks));
        HF_CHECK(bounded[rank] == bounded[0] && exact[rank] == exact[0]);
        HF_EQUAL(network[rank].open_operations(), 0u);
        HF_EQUAL(all_drops(network[rank]), 0u);
      }
    }
  }
}

HF_CASE(every_protection_and_datagram_size_carries_the_same) {
  for (const Protection protection : {Protection::encrypted, Protection::authenticated, Protection::insecure}) {
    for (const std::uint32_t datagram : {300u, 1472u, 8972u, 65'000u}) {
      Network network(2, [&](EndpointSettings& settings) {
        settings.protection = protection;
        settings.datagram_bytes = datagram;
        for (PeerSettings& peer : settings.peers) peer.same_host = datagram == 65'000;
      });
      network.join();
      auto data = gradients(2, 30'000);
      for (std::uint16_t rank = 0; rank < 2; ++rank)
        network[rank].call(network.now, call_on(data[rank], Delivery::exact));
      network.run_for(second);
      HF_CHECK(is_mean(data[0], 2) && data[0] == data[1]);
      HF_EQUAL(network.reports[0].size(), 1u);
    }
  }
}

HF_CASE(ranks_with_different_datagram_sizes_speak_of_the_same_blocks) {
  Network network(3, [](EndpointSettings& settings) {
    settings.datagram_bytes = settings.rank == 0 ? 1472 : settings.rank == 1 ? 8972 : 600;
  });
  network.join();
  auto data = gradients(3, 20'011);
  for (std::uint16_t rank = 0; rank < 3; ++rank)
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
  network.run_for(second);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    HF_CHECK(is_mean(data[rank], 3));
    HF_EQUAL(all_drops(network[rank]), 0u);
  }
}

HF_CASE(exact_survives_a_fifth_of_all_datagrams_lost_doubled_or_reordered) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    Network network(3, [](EndpointSettings& settings) { settings.packets_per_key = 60; });
    network.join();
    std::mt19937 random(seed);
    network.filter = [&](std::uint16_t from, std::uint16_t to, Bytes& bytes) {
      const auto later = static_cast<Duration>(random() % 5'000'000);
      if (random() % 10 == 0) network.in_flight.push({network.now + later, ++network.num_sent, from, to, bytes});
      return random() % 5 != 0;
    };
    auto data = gradients(3, 40'000);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::exact, 20 * second));
      network.run_for(millisecond);
    }
    network.run_for(20 * second);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      HF_EQUAL(network.reports[rank].size(), 1u);
      HF_CHECK(network.reports[rank].at(0).status == Status::done);
      HF_CHECK(is_mean(data[rank], 3) && data[rank] == data[0]);
      HF_CHECK(network[rank].path((rank + 1) % 3).counters().resent > 0);
      HF_CHECK(drops(network[rank], Drop::replay) > 0);
      HF_CHECK(network[rank].path((rank + 1) % 3).sealing_phase() >= 2);  // re-keyed in flight, under loss
      HF_EQUAL(drops(network[rank], Drop::authentication), 0u);
    }
    network.filter = [](auto, auto, Bytes&) { return true; };
    network.run_for(second);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      HF_CHECK(network[rank].path((rank + 1) % 3).bytes_in_flight() <= 64);  // at most a heartbeat
    }
  }
}

HF_CASE(bounded_under_loss_ends_in_time_and_reports_what_is_missing) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    Network network(3);
    network.join();
    std::mt19937 random(seed);
    network.filter = [&](auto, auto, Bytes&) { return random() % 10 != 0; };
    auto data = gradients(3, 30'000);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::bounded, 200 * millisecond));
    }
    network.run_for(200 * millisecond);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      HF_EQUAL(network.reports[rank].size(), 1u);
      const OperationReport& report = network.reports[rank].at(0);
      HF_CHECK(report.status == Status::done && report.elapsed <= 200 * millisecond);
      std::uint64_t missing = 0;
      for (const ElementRange& range : report.missing) {
        missing += range.size();
        for (std::uint32_t i = range.begin; i < range.end; ++i) HF_EQUAL(data[rank][i], 0.0f);
      }
      HF_CHECK(missing > 0 && missing < 30'000);
      HF_CHECK(report.delivered <= (30'000 - missing) * 3);
      HF_CHECK(report.delivered > (30'000 - missing) * 2);
    }
  }
}

HF_CASE(a_rank_a_second_late_costs_the_others_neither_time_nor_its_shard) {
  Network network(3);
  network.join();
  auto data = gradients(3, 3000);
  for (const std::uint16_t rank : {0, 1}) {
    network[rank].call(network.now, call_on(data[rank], Delivery::bounded, 400 * millisecond));
  }
  Parameters parameters;
  parameters.t_b = 100 * millisecond;
  network[2].publish(parameters);  // what an uncalled operation goes by
  network.run_for(second);
  for (const std::uint16_t rank : {0, 1}) {
    HF_EQUAL(network.reports[rank].size(), 1u);
    HF_CHECK(network.reports[rank].at(0).elapsed <= 400 * millisecond);
  }
  network[2].call(network.now, call_on(data[2], Delivery::bounded, 400 * millisecond));
  network.run_for(second);
  HF_EQUAL(network.reports[2].size(), 1u);
  HF_CHECK(network.reports[2].at(0).waited_for_call > 900 * millisecond);
}

HF_CASE(the_duty_of_an_uncalled_operation_is_served_with_the_published_bound) {
  Network network(3);
  Parameters parameters;
  parameters.t_b = 100 * millisecond;
  for (std::uint16_t rank = 0; rank < 3; ++rank) network[rank].publish(parameters);
  network.join();
  auto data = gradients(3, 3000);
  for (const std::uint16_t rank : {0, 1}) network[rank].call(network.now, call_on(data[rank], Delivery::bounded));
  network.run_for(300 * millisecond);
  for (const std::uint16_t rank : {0, 1}) {
    HF_EQUAL(network.reports[rank].size(), 1u);
    HF_CHECK(network.reports[rank].at(0).missing.empty());  // shard 2 came from the late rank's I/O thread
    HF_EQUAL(network.reports[rank].at(0).delivered, 2u * 3000);
    HF_CHECK(data[rank] == data[0]);
  }
  network[2].call(network.now, call_on(data[2], Delivery::bounded));
  HF_CHECK(data[2] == data[0]);  // everything was waiting for it
}

HF_CASE(one_rank_alone_needs_no_network) {
  Network network(1);
  auto data = gradients(1, 100);
  const auto before = data[0];
  network[0].call(network.now, call_on(data[0], Delivery::exact));
  network.run_for(second);
  HF_EQUAL(network.reports[0].size(), 1u);
  HF_CHECK(data[0] == before);
  HF_EQUAL(network.num_sent, 0u);
  HF_EQUAL(network[0].next_timer(), never);
}

HF_CASE(many_operations_in_flight_keep_apart) {
  Network network(2);
  network.join();
  std::vector<std::vector<std::vector<float>>> data;
  for (int i = 0; i < 20; ++i) data.push_back(gradients(2, 500 + 37 * static_cast<std::size_t>(i)));
  for (std::uint16_t rank = 0; rank < 2; ++rank) {
    for (auto& operation : data) network[rank].call(network.now, call_on(operation[rank], Delivery::exact));
    network.run_for(20 * millisecond);
  }
  network.run_for(second);
  for (auto& operation : data) HF_CHECK(is_mean(operation[0], 2) && operation[0] == operation[1]);
  HF_EQUAL(network.reports[1].size(), 20u);
}

// -- notes ------------------------------------------------------------------------------------------------------------

HF_CASE(notes_of_any_size_arrive_once_under_loss) {
  Network network(2);
  network.join();
  std::mt19937 random(4);
  network.filter = [&](auto, auto, Bytes&) { return random() % 4 != 0; };
  std::vector<Bytes> sent;
  for (const std::size_t size : {0u, 1u, 1000u, 100'000u}) {
    Bytes bytes(size);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    sent.push_back(bytes);
    network[0].send_note(network.now, 1, 42, bytes, 10 * second);
  }
  network.run_for(10 * second);
  HF_EQUAL(network.notes[1].size(), 4u);
  for (const Note& note : network.notes[1]) {
    HF_EQUAL(note.channel, 42u);
    HF_CHECK(note.bytes == sent[note.number]);
  }
  HF_EQUAL(network.fates[0].size(), 4u);
  for (const SentNote& fate : network.fates[0]) HF_CHECK(fate.fate == NoteFate::delivered);
}

HF_CASE(a_note_that_cannot_arrive_fails_at_its_deadline) {
  Network network(2);
  network.join();
  network.filter = [](auto, auto, Bytes& bytes) { return bytes[1] != static_cast<std::uint8_t>(PacketType::data); };
  network[0].send_note(network.now, 1, 1, Bytes(10), 300 * millisecond);
  network.run_for(300 * millisecond - 1);
  HF_EQUAL(network.fates[0].size(), 0u);
  network.run_for(1);
  HF_EQUAL(network.fates[0].size(), 1u);
  HF_CHECK(network.fates[0][0].fate == NoteFate::deadline_exceeded);
}

HF_CASE(notes_given_up_half_way_do_not_fill_the_inbox) {
  Network network(2, [](EndpointSettings& settings) { settings.max_note_bytes = 10'000; });
  network.join();
  for (int i = 0; i < 5; ++i) {
    int seen = 0;
    network.filter = [&](auto, auto, Bytes& bytes) {
      return bytes[1] != static_cast<std::uint8_t>(PacketType::data) || ++seen == 1;
    };
    network[0].send_note(network.now, 1, 1, Bytes(9'000), 50 * millisecond);
    network.run_for(100 * millisecond);
  }
  network.filter = [](auto, auto, Bytes&) { return true; };
  network[0].send_note(network.now, 1, 1, Bytes(9'000, 7), second);
  network.run_for(second);
  HF_EQUAL(network.notes[1].size(), 1u);
  HF_CHECK(network.fates[0].back().fate == NoteFate::delivered);
}

HF_CASE(an_oversized_note_is_not_reported_as_delivered) {
  Network network(2, [](EndpointSettings& settings) { settings.max_note_bytes = 1000; });
  network.join();
  network[0].send_note(network.now, 1, 1, Bytes(1000), 500 * millisecond);
  network[0].send_note(network.now, 1, 1, Bytes(1001), 500 * millisecond);
  network[0].send_note(network.now, 1, 1, Bytes(1000), 500 * millisecond);
  network.run_for(600 * millisecond);
  HF_EQUAL(network.notes[1].size(), 2u);
  HF_EQUAL(network.fates[0].size(), 3u);
  HF_CHECK(network.fates[0][0].fate == NoteFate::delivered);
  HF_CHECK(network.fates[0][1].fate == NoteFate::delivered);  // the one that fits does not wait for the one that cannot
  HF_CHECK(network.fates[0][2].fate == NoteFate::deadline_exceeded);
}

HF_CASE(notes_that_nobody_takes_hold_up_their_sender_and_only_them) {
  Network network(3, [](EndpointSettings& settings) { settings.max_note_bytes = 1000; });
  network.join();
  network.readers_are_there = false;
  network[0].send_note(network.now, 1, 1, Bytes(1000), 500 * millisecond);
  network.run_for(100 * millisecond);
  network[0].send_note(network.now, 1, 1, Bytes(1), 100 * millisecond);
  network[2].send_note(network.now, 1, 1, Bytes(1000), 100 * millisecond);
  network.run_for(200 * millisecond);
  HF_EQUAL(network.notes[1].size(), 2u);  // one of each sender
  HF_CHECK(network.fates[0].back().fate == NoteFate::deadline_exceeded);
  HF_CHECK(network.fates[2].back().fate == NoteFate::delivered);
  network[1].release_note(0, 1000);
  network[0].send_note(network.now, 1, 1, Bytes(1000), 500 * millisecond);
  network.run_for(100 * millisecond);
  HF_EQUAL(network.notes[1].size(), 3u);
  HF_CHECK(network.fates[0].back().fate == NoteFate::delivered);
}

HF_CASE(a_note_to_nobody_is_an_error_of_the_caller) {
  Network network(2);
  for (const std::uint16_t peer : {0, 2}) {  // itself, and a rank that does not exist
    HF_THROWS(network[0].send_note(network.now, peer, 1, Bytes(1), second), std::invalid_argument);
  }
}

HF_CASE(a_note_half_sent_when_its_sender_stops_arrives_when_it_goes_on) {
  Network network(2);
  network.join();
  network[0].send_note(network.now, 1, 1, Bytes(2'000'000, 3), 60 * second);
  network.run_for(8 * millisecond);
  network.frozen[0] = true;
  network.run_for(3 * second);
  HF_EQUAL(network.changes[1], "0 alive; 0 dead; ");
  network.frozen[0] = false;
  network.run_for(5 * second);
  HF_EQUAL(network.notes[1].size() == 1, network.fates[0].at(0).fate == NoteFate::delivered);
}

// -- who is alive -----------------------------------------------------------------------------------------------------

HF_CASE(an_idle_pair_stays_alive_on_heartbeats_alone) {
  Network network(2);
  network.join();
  const std::uint64_t sent_before = network.num_sent;
  const std::uint64_t wakes_before = network.num_wakes;
  network.run_for(20 * second);
  HF_EQUAL(network.changes[0], "1 alive; ");
  // Four heartbeats a second each way and their acks; an idle process does next to nothing.
  HF_CHECK(network.num_sent - sent_before <= 20 * 2 * 2 * 5);
  HF_CHECK(network.num_wakes - wakes_before <= 20 * 2 * 12);
}

HF_CASE(a_second_of_silence_is_death_and_not_a_moment_less) {
  Network network(2);
  network.join();
  auto data = gradients(2, 100);
  network[0].call(network.now, call_on(data[0], Delivery::exact, 30 * second));
  network[0].send_note(network.now, 1, 1, Bytes(10), 30 * second);
  network.run_for(10 * millisecond);
  const Time last_heard = network[0].path(1).last_heard();
  network.frozen[1] = true;
  network.in_flight = {};
  network.run_until(last_heard + second - 1);
  network[0].on_timer(network.now);
  network.collect(0);
  HF_EQUAL(network.changes[0], "1 alive; ");
  network[0].send_note(network.now, 1, 1, Bytes(10), 30 * second);
  network.run_until(last_heard + second);
  HF_EQUAL(network.changes[0], "1 alive; 1 dead; ");
  HF_EQUAL(network.reports[0].size(), 1u);
  HF_CHECK(network.reports[0].at(0).status == Status::peer_dead);
  HF_CHECK(network.reports[0].at(0).culprits == std::vector<std::uint16_t>{1});
  HF_CHECK(network.fates[0].back().fate == NoteFate::peer_dead);
  HF_EQUAL(network[0].path(1).bytes_in_flight(), 0u);
  HF_EQUAL(network[0].open_operations(), 0u);

  // What is asked for now fails at once; nothing waits for nobody.
  const auto more = gradients(2, 100);
  network[0].call(network.now, call_on(data[0], Delivery::exact, 30 * second));
  network[0].send_note(network.now, 1, 1, Bytes(10), 30 * second);
  network.run_for(1);
  HF_EQUAL(network.reports[0].size(), 2u);
  HF_CHECK(network.reports[0].at(1).status == Status::peer_dead);
  HF_CHECK(network.fates[0].back().fate == NoteFate::peer_dead);
  network.run_for(10 * second);
  HF_EQUAL(network[0].path(1).bytes_in_flight(), 0u);  // calling the dead fills nothing
}

HF_CASE(a_peer_that_stopped_and_goes_on_is_alive_again) {
  Network network(2);
  network.join();
  network.frozen[1] = true;
  network.run_for(2 * second);
  HF_EQUAL(network.changes[0], "1 alive; 1 dead; ");
  network.frozen[1] = false;
  network.run_for(second);
  HF_EQUAL(network.changes[0], "1 alive; 1 dead; 1 alive; ");
  auto data = gradients(2, 5000);
  for (std::uint16_t rank = 0; rank < 2; ++rank) network[rank].call(network.now, call_on(data[rank], Delivery::exact));
  network.run_for(second);
  HF_CHECK(is_mean(data[0], 2) && is_mean(data[1], 2));
}

HF_CASE(own_sleep_is_not_the_peers_silence) {
  Network network(2);
  network.join();
  network.frozen[0] = true;
  network.run_for(700 * millisecond);  // the peer has not yet given up
  network.now += 0;
  network.frozen[0] = false;
  network.run_for(2 * second);
  HF_EQUAL(network.changes[0], "1 alive; ");
  network.frozen[0] = true;
  network.run_for(10 * second);
  network.frozen[0] = false;
  network.run_for(400 * millisecond);
  HF_EQUAL(network.changes[0], "1 alive; ");  // it slept ten seconds and accuses nobody
  HF_EQUAL(network.changes[1], "0 alive; 0 dead; 0 alive; ");
}

HF_CASE(a_path_that_works_one_way_only_is_dead_both_ways) {
  Network network(2);
  network.join();
  network.filter = [](std::uint16_t from, auto, Bytes&) { return from != 0; };
  network.run_for(3 * second);
  HF_EQUAL(network.changes[0], "1 alive; 1 dead; ");
  HF_EQUAL(network.changes[1], "0 alive; 0 dead; ");
}

HF_CASE(a_goodbye_is_heard_at_once_and_holds_nothing_back) {
  Network network(3);
  network.join();
  network[0].send_note(network.now, 2, 1, Bytes(500'000), 30 * second);
  auto data = gradients(3, 1000);
  network[0].call(network.now, call_on(data[0], Delivery::exact, 30 * second));
  network.run_for(millisecond);
  HF_CHECK(network[0].path(2).bytes_in_flight() > 0);
  network[2].say_goodbye();
  network.filter = [](std::uint16_t from, auto, Bytes& bytes) {  // its last word, and then it is gone
    return from != 2 || bytes[1] == static_cast<std::uint8_t>(PacketType::bye);
  };
  network.in_flight = {};
  network.run_for(millisecond);
  network.frozen[2] = true;
  HF_CHECK(network[0].path(2).state() == PeerState::left);
  HF_EQUAL(network[0].path(2).bytes_in_flight(), 0u);
  HF_CHECK(network.fates[0].at(0).fate == NoteFate::peer_dead);
  HF_CHECK(network.reports[0].at(0).status == Status::peer_dead);
  HF_EQUAL(network[0].path(2).next_timer(), never);
  network.run_for(5 * second);
  HF_EQUAL(network.changes[0], "1 alive; 2 alive; 2 left; ");
}

// -- rate and windows -------------------------------------------------------------------------------------------------

HF_CASE(in_flight_stays_within_the_receivers_window) {
  Network network(2, [](EndpointSettings& settings) { settings.receive_buffer_bytes = 200'000; });
  network.delay = 20 * millisecond;
  network.run_for(200 * millisecond);
  std::uint64_t most = 0;
  network.filter = [&](auto, auto, Bytes&) {
    most = std::max(most, network[0].path(1).bytes_in_flight());
    return true;
  };
  network[0].send_note(network.now, 1, 1, Bytes(3'000'000), 60 * second);
  network.run_for(10 * second);
  HF_EQUAL(network.notes[1].size(), 1u);
  HF_CHECK(most > 50'000);
  HF_CHECK(most <= 100'000);  // half of the buffer
}

HF_CASE(heartbeats_neither_set_nor_forget_the_rate) {
  Network network(2);
  network.run_for(10 * second);
  HF_EQUAL(network[0].path(1).rate().bandwidth_bytes_per_second(), 0.0);
  network[0].send_note(network.now, 1, 1, Bytes(5'000'000), 60 * second);
  network.run_for(5 * second);
  const double before = network[0].path(1).rate().bandwidth_bytes_per_second();
  HF_CHECK(before > 10e6);
  for (int i = 0; i < 60; ++i) {
    network[0].send_note(network.now, 1, 1, Bytes(100), 60 * second);
    network.run_for(second);
  }
  HF_CHECK(network[0].path(1).rate().bandwidth_bytes_per_second() >= before);
}

HF_CASE(a_window_of_two_datagrams_does_not_wait_for_delayed_acks) {
  Network network(2, [](EndpointSettings& settings) {
    settings.datagram_bytes = 65'000;
    settings.receive_buffer_bytes = 4 * 65'000;
    for (PeerSettings& peer : settings.peers) peer.same_host = true;
  });
  network.delay = 10 * microsecond;
  network.join();
  network[0].send_note(network.now, 1, 1, Bytes(40 * 64'000), second);
  network.run_for(2 * millisecond);  // 20 round trips take 0.4 ms; 20 delayed acks would take 20 ms
  HF_EQUAL(network.notes[1].size(), 1u);
}

// -- what strangers send ----------------------------------------------------------------------------------------------

HF_CASE(a_flood_of_random_bytes_changes_nothing_but_counters) {
  Rogue rogue;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes(random() % 1500);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    if (!bytes.empty() && random() % 2 == 0) bytes[0] = wire_version;
    rogue.victim.receive(rogue.now, bytes);
  }
  HF_EQUAL(all_drops(rogue.victim), 20'000u);
  HF_EQUAL(rogue.victim.open_operations(), 0u);
  HF_EQUAL(rogue.victim.early_bytes(), 0u);
  HF_CHECK(rogue.victim.path(1).state() == PeerState::joining);
  HF_EQUAL(rogue.replies().size(), 1u);  // its own first ping: strangers get no answer
}

HF_CASE(foreign_job_epoch_and_sender_are_dropped_by_name) {
  Rogue rogue;
  Header header;
  header.type = PacketType::ping;
  const auto with = [&](std::uint32_t job, std::uint32_t epoch, std::uint16_t sender) {
    header.job = job;
    header.epoch = epoch;
    header.sender = sender;
    Bytes bytes(header_bytes + tag_bytes);
    encode(header, std::span<std::uint8_t, header_bytes>(bytes.data(), header_bytes));
    return rogue.deliver(bytes);
  };
  HF_EQUAL(with(78, 3, 1), "foreign_job");
  HF_EQUAL(with(77, 2, 1), "foreign_epoch");
  HF_EQUAL(with(77, 4, 1), "foreign_epoch");
  HF_EQUAL(with(77, 3, 2), "unknown_sender");
  HF_EQUAL(with(77, 3, 0), "unknown_sender");  // its own name
  HF_EQUAL(with(77, 3, 65'535), "unknown_sender");
  HF_EQUAL(with(77, 3, 1), "authentication");
  HF_EQUAL(rogue.victim.failed_authentications(1), 1u);
}

HF_CASE(replays_and_stale_numbers_are_dropped_without_a_trace) {
  Rogue rogue;
  Header ping;
  ping.type = PacketType::ping;
  ping.transmission = 5;
  const Bytes first = rogue.sealed(ping, {});
  HF_EQUAL(rogue.deliver(first), "accepted");
  HF_EQUAL(rogue.deliver(first), "replay");
  ping.transmission = 5 + 8192;
  HF_EQUAL(rogue.deliver(rogue.sealed(ping, {})), "accepted");
  HF_EQUAL(rogue.deliver(first), "too_old");
  // A forged number does not move the window.
  ping.transmission = 1'000'000;
  Bytes forged = rogue.sealed(ping, {});
  forged.back() ^= 1;
  HF_EQUAL(rogue.deliver(forged), "authentication");
  ping.transmission = 5 + 8193;
  HF_EQUAL(rogue.deliver(rogue.sealed(ping, {})), "accepted");
}

HF_CASE(a_goodbye_or_end_without_the_key_is_not_believed) {
  Rogue rogue;
  rogue.become_alive();
  Header bye;
  bye.type = PacketType::bye;
  bye.transmission = 100;
  Bytes forged = rogue.sealed(bye, {});
  forged[forged.size() - 3] ^= 0x10;
  HF_EQUAL(rogue.deliver(forged), "authentication");
  HF_CHECK(rogue.victim.path(1).state() == PeerState::alive);
  HF_EQUAL(rogue.deliver(rogue.sealed(bye, {})), "accepted");
  HF_CHECK(rogue.victim.path(1).state() == PeerState::left);
}

HF_CASE(a_restarted_process_and_its_old_datagrams_are_strangers) {
  Rogue restarted([](EndpointSettings&) {}, 2, process_of(9));
  Header ping;
  ping.type = PacketType::ping;
  HF_EQUAL(restarted.say(ping), "authentication");
  HF_EQUAL(restarted.victim.failed_authentications(1), 1u);
}

// -- what a peer with the keys can do ---------------------------------------------------------------------------------

HF_CASE(an_ack_of_something_never_sent_is_refused_and_revives_nobody) {
  Rogue rogue;
  HF_EQUAL(rogue.acknowledge({{0, 0}}), "acknowledges_unsent");
  HF_CHECK(rogue.victim.path(1).state() == PeerState::joining);
  HF_EQUAL(rogue.replies().size(), 1u);
  HF_EQUAL(rogue.acknowledge({{0, 1}}), "acknowledges_unsent");
  HF_EQUAL(rogue.acknowledge({{max_transmission, max_transmission}}), "acknowledges_unsent");
  HF_EQUAL(rogue.acknowledge({{0, 0}}), "accepted");
  HF_CHECK(rogue.victim.path(1).state() == PeerState::alive);
}

HF_CASE(malformed_acks_are_counted) {
  Rogue rogue;
  Header ack;
  ack.type = PacketType::ack;
  HF_EQUAL(rogue.say(ack, Bytes(1)), "malformed");
  HF_EQUAL(rogue.say(ack, Bytes(26)), "malformed");  // no ranges
  HF_EQUAL(rogue.say(ack, Bytes(700)), "malformed");
}

HF_CASE(a_receive_window_of_nothing_slows_but_does_not_stop) {
  Rogue rogue;
  rogue.become_alive();
  HF_EQUAL(rogue.acknowledge({{0, 0}}, 0), "accepted");
  rogue.victim.send_note(rogue.now, 1, 1, Bytes(100'000), second);
  int data = 0;
  for (const Header& header : rogue.replies()) data += header.type == PacketType::data ? 1 : 0;
  HF_EQUAL(data, 1);
}

HF_CASE(a_jump_in_numbers_is_acknowledged_without_wrapping) {
  Rogue rogue;
  Header ping;
  ping.type = PacketType::ping;
  ping.flags = flag::ack_now;
  HF_EQUAL(rogue.say(ping), "accepted");
  ping.transmission = max_transmission;
  HF_EQUAL(rogue.deliver(rogue.sealed(ping, {})), "accepted");
  std::vector<AckRange> acked;
  rogue.replies(&acked);
  HF_EQUAL(acked.size(), 1u);
  HF_EQUAL(acked.at(0).first, max_transmission);
  HF_EQUAL(rogue.deliver(rogue.sealed(ping, {})), "replay");
  ping.transmission = UINT64_MAX;
  HF_EQUAL(rogue.deliver(rogue.sealed(ping, {})), "malformed");
}

HF_CASE(operations_are_held_open_up_to_the_cap_and_not_one_more) {
  Rogue rogue([](EndpointSettings& settings) { settings.max_open_operations = 5; });
  for (std::uint32_t operation = 0; operation < 5; ++operation) HF_EQUAL(rogue.contribute(operation, 64), "accepted");
  HF_EQUAL(rogue.contribute(5, 64), "beyond_window");
  HF_EQUAL(rogue.contribute(UINT32_MAX, 64), "beyond_window");
  HF_EQUAL(rogue.victim.open_operations(), 5u);
  std::vector<float> data(64);
  rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
  HF_EQUAL(rogue.contribute(5, 64), "accepted");
  HF_EQUAL(rogue.contribute(6, 64), "beyond_window");
}

HF_CASE(early_bytes_are_held_up_to_the_cap_and_not_one_more) {
  const std::size_t idle =
      Operation::bookkeeping_bytes({64, 0, Format::f32, Delivery::bounded, true}, 2);  // 32 floats of sum on top
  for (const std::size_t too_few : {0u, 1u}) {
    Rogue rogue([&](EndpointSettings& settings) { settings.early_bytes_cap = 2 * (idle + 128) - too_few; });
    HF_EQUAL(rogue.contribute(0, 64), "accepted");
    HF_EQUAL(rogue.contribute(1, 64), too_few == 0 ? "accepted" : "early_over_cap");
    HF_EQUAL(rogue.contribute(2, 64), "early_over_cap");
    HF_CHECK(rogue.victim.early_bytes() <= rogue.settings.early_bytes_cap);
    // The own call frees what was early.
    std::vector<float> data(64);
    rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
    HF_EQUAL(rogue.contribute(2, 64), "accepted");
  }
}

HF_CASE(huge_totals_allocate_nothing_beyond_the_caps) {
  Rogue rogue([](EndpointSettings& settings) { settings.early_bytes_cap = 1 << 20; });
  // 4 GiB each: only the bitmaps would take 24 MB.
  Header end;
  end.type = PacketType::end;
  end.stage = Stage::contribution;
  end.format = Format::f32;
  end.total = 1u << 30;
  for (std::uint32_t operation = 0; operation < 64; ++operation) {
    end.operation = operation;
    HF_EQUAL(rogue.say(end), "early_over_cap");
  }
  HF_EQUAL(rogue.victim.open_operations(), 0u);
  HF_EQUAL(rogue.victim.early_bytes(), 0u);
}

HF_CASE(totals_above_what_was_agreed_are_oversized) {
  Rogue rogue([](EndpointSettings& settings) { settings.max_operation_bytes = 4000; });
  HF_EQUAL(rogue.contribute(0, 1000), "accepted");
  HF_EQUAL(rogue.contribute(1, 1001), "oversized");
  HF_EQUAL(rogue.contribute(1, UINT32_MAX), "oversized");
}

HF_CASE(what_found_no_room_is_not_acknowledged) {
  Rogue rogue([](EndpointSettings& settings) { settings.max_open_operations = 1; });
  Header ping;
  ping.type = PacketType::ping;
  ping.flags = flag::ack_now;
  HF_EQUAL(rogue.say(ping), "accepted");               // 0
  HF_EQUAL(rogue.contribute(0, 64), "accepted");       // 1
  HF_EQUAL(rogue.contribute(1, 64), "beyond_window");  // 2
  HF_EQUAL(rogue.say(ping), "accepted");               // 3
  HF_EQUAL(rogue.contribute(0, 64), "duplicate");      // 4: arrived, only not needed
  HF_EQUAL(rogue.say(ping), "accepted");               // 5
  std::vector<AckRange> acked;
  rogue.replies(&acked);
  const std::vector<AckRange> expected{{3, 5}, {0, 1}};
  HF_CHECK(acked == expected);
}

HF_CASE(exact_gets_through_a_receiver_that_had_no_room_at_first) {
  Network network(2, [](EndpointSettings& settings) { settings.max_open_operations = 2; });
  network.join();
  std::vector<std::vector<std::vector<float>>> data;
  for (int i = 0; i < 6; ++i) data.push_back(gradients(2, 4000));
  for (auto& operation : data) network[0].call(network.now, call_on(operation[0], Delivery::exact, 10 * second));
  network.run_for(300 * millisecond);
  HF_CHECK(drops(network[1], Drop::beyond_window) > 0);
  for (auto& operation : data) network[1].call(network.now, call_on(operation[1], Delivery::exact, 10 * second));
  network.run_for(5 * second);
  HF_EQUAL(network.reports[0].size(), 6u);
  for (const auto& report : network.reports[0]) HF_CHECK(report.status == Status::done);
  for (auto& operation : data) HF_CHECK(is_mean(operation[0], 2) && is_mean(operation[1], 2));
}

HF_CASE(a_peer_writes_only_where_it_may) {
  Rogue rogue;
  std::vector<float> data(64, 1.0f);
  rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
  Header header = rogue.data_header(0, 64, Stage::result);  // it owns 32-64
  header.offset = 0;
  HF_EQUAL(rogue.say(header, Bytes(64, 0x7f)), "misplaced");
  header.offset = 16;
  HF_EQUAL(rogue.say(header, Bytes(128, 0x7f)), "misplaced");
  header.offset = 40;
  HF_EQUAL(rogue.say(header, Bytes(64, 0x7f)), "misplaced");
  header.offset = 48;
  HF_EQUAL(rogue.say(header, Bytes(68, 0x7f)), "malformed");  // beyond the bucket
  header.type = PacketType::hole;
  header.offset = 16;
  header.missing = 32;
  HF_EQUAL(rogue.say(header), "misplaced");
  HF_CHECK(data == std::vector<float>(64, 1.0f));
}

HF_CASE(a_peer_cannot_inflate_the_reported_share) {
  Rogue rogue;
  std::vector<float> data(64, 1.0f);
  rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
  HF_EQUAL(rogue.say(rogue.data_header(0, 64), Bytes(128)), "accepted");
  Header result = rogue.data_header(0, 64, Stage::result);
  result.missing = UINT32_MAX;
  HF_EQUAL(rogue.say(result, Bytes(128)), "malformed");
  result.missing = 32;
  HF_EQUAL(rogue.say(result, Bytes(128)), "accepted");
  const auto reports = rogue.victim.take_reports();
  HF_EQUAL(reports.size(), 1u);
  HF_EQUAL(reports.at(0).delivered, 96u);
}

HF_CASE(a_peer_that_never_acknowledges_results_does_not_keep_them) {
  Rogue rogue;
  rogue.become_alive();
  Parameters common;
  common.t_b = 50 * millisecond;
  rogue.victim.publish(common);
  std::vector<std::vector<float>> data(10, std::vector<float>(64, 1.0f));
  for (std::uint32_t operation = 0; operation < 10; ++operation) {
    rogue.victim.call(rogue.now, call_on(data[operation], Delivery::exact, 100 * millisecond));
    Header header = rogue.data_header(operation, 64);
    header.flags = flag::exact;
    HF_EQUAL(rogue.say(header, Bytes(128)), "accepted");
    header = rogue.data_header(operation, 64, Stage::result);
    header.flags = flag::exact;
    HF_EQUAL(rogue.say(header, Bytes(128)), "accepted");
  }
  HF_EQUAL(rogue.victim.take_reports().size(), 10u);
  HF_EQUAL(rogue.victim.open_operations(), 10u);
  Header ping;
  ping.type = PacketType::ping;
  for (int i = 0; i < 10; ++i) {
    rogue.now += 20 * millisecond;
    rogue.victim.on_timer(rogue.now);
    rogue.replies();
    rogue.say(ping);
    rogue.acknowledge({{0, 0}});  // it hears us, it says, only the results never
  }
  HF_CHECK(rogue.victim.path(1).state() == PeerState::alive);
  HF_EQUAL(rogue.victim.open_operations(), 0u);
}

HF_CASE(a_peer_that_acknowledges_only_the_past_does_not_hear_us) {
  Rogue rogue;
  rogue.become_alive();
  rogue.victim.send_note(rogue.now, 1, 1, Bytes(10), 60 * second);
  Header ping;
  ping.type = PacketType::ping;
  for (int i = 0; i < 60; ++i) {
    rogue.replies();
    rogue.now += 20 * millisecond;
    rogue.say(ping);
    rogue.victim.on_timer(rogue.now);
    if (rogue.victim.path(1).state() == PeerState::alive) rogue.acknowledge({{0, 0}});
    if (rogue.victim.path(1).state() == PeerState::dead) break;
  }
  HF_CHECK(rogue.victim.path(1).state() == PeerState::dead);
  HF_EQUAL(rogue.now, start + second);
}

HF_CASE(settings_that_could_never_work_are_refused) {
  const auto refused = [](const Change& change) {
    EndpointSettings settings = settings_for(0, 2);
    change(settings);
    try {
      Endpoint endpoint(settings, start);
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  HF_CHECK(!refused([](EndpointSettings&) {}));
  HF_CHECK(refused([](EndpointSettings& settings) { settings.datagram_bytes = 255; }));
  HF_CHECK(!refused([](EndpointSettings& settings) { settings.datagram_bytes = 256; }));
  HF_CHECK(!refused([](EndpointSettings& settings) { settings.datagram_bytes = 65'280; }));
  HF_CHECK(refused([](EndpointSettings& settings) { settings.datagram_bytes = 65'281; }));
  HF_CHECK(refused([](EndpointSettings& settings) { settings.peers.pop_back(); }));
  HF_CHECK(refused([](EndpointSettings& settings) { settings.rank = 2; }));
  HF_CHECK(refused([](EndpointSettings& settings) { settings.packets_per_key = 0; }));
  HF_CHECK(refused([](EndpointSettings& settings) { ++settings.packets_per_key; }));
}

HF_CASE(short_notes_never_finished_are_capped_in_number) {
  Rogue rogue;
  Header note;
  note.type = PacketType::data;
  note.stage = Stage::note;
  note.format = Format::bytes;
  note.total = 17;
  std::uint32_t accepted = 0;
  for (note.operation = 0; note.operation < 5000; ++note.operation) {
    note.missing = note.operation;
    accepted += rogue.say(note, Bytes(16)) == "accepted" ? 1 : 0;
  }
  HF_EQUAL(accepted, 1024u);
}

HF_CASE(talk_after_a_goodbye_revives_nobody) {
  Rogue rogue;
  rogue.become_alive();
  Header bye;
  bye.type = PacketType::bye;
  HF_EQUAL(rogue.say(bye), "accepted");
  Header ping;
  ping.type = PacketType::ping;
  ping.flags = flag::ack_now;
  HF_EQUAL(rogue.say(ping), "accepted");
  rogue.acknowledge({{0, 0}});
  HF_CHECK(rogue.victim.path(1).state() == PeerState::left);
}

HF_CASE(an_operation_that_disagrees_names_the_peer_and_leaves_the_memory_alone) {
  Rogue rogue;
  std::vector<float> data(64, 1.0f);
  HF_EQUAL(rogue.contribute(0, 96), "accepted");
  rogue.victim.call(rogue.now, call_on(data, Delivery::bounded));
  const auto reports = rogue.victim.take_reports();
  HF_EQUAL(reports.size(), 1u);
  HF_CHECK(reports.at(0).status == Status::mismatch);
  HF_CHECK(reports.at(0).culprits == std::vector<std::uint16_t>{1});
  HF_CHECK(data == std::vector<float>(64, 1.0f));
  HF_EQUAL(rogue.contribute(0, 96), "late");
}

HF_CASE(random_authenticated_packets_break_nothing) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    Rogue rogue(
        [](EndpointSettings& settings) {
          settings.early_bytes_cap = 1 << 16;
          settings.max_note_bytes = 1 << 14;
          settings.max_open_operations = 8;
        },
        3);
    std::mt19937 random(seed);
    std::vector<std::vector<float>> data(40, std::vector<float>(300, 1.0f));
    std::size_t called = 0, reported = 0;
    const auto pick = [&random](auto... values) {
      const std::uint32_t choices[] = {static_cast<std::uint32_t>(values)...};
      return choices[random() % std::size(choices)];
    };
    for (int i = 0; i < 3000; ++i) {
      Header header;
      header.type = static_cast<PacketType>(1 + random() % 6);
      header.stage = static_cast<Stage>(random() % 4);
      header.format = header.stage == Stage::note ? Format::bytes : random() % 8 == 0 ? Format::f64 : Format::f32;
      if (header.type > PacketType::end) header.stage = Stage::none;
      header.flags = static_cast<std::uint8_t>(random() % 16) & (random() % 4 != 0 ? 5 : 15);
      header.credit = static_cast<std::uint8_t>(random());
      header.operation = random() % 8 == 0 ? random() : static_cast<std::uint32_t>(called + random() % 4);
      header.total = pick(300, 300, 300, 0, 299, 17, UINT32_MAX, random());
      header.offset = pick(0, 100, 200, 116, 216, 16, 32, random() % 300, UINT32_MAX);
      header.missing = pick(0, 0, 16, 32, 100, UINT32_MAX, random());
      Bytes payload(pick(0, 64, 128, 400, 272, random() % 1400));
      if (header.type == PacketType::bye && random() % 50 != 0) header.type = PacketType::ping;
      rogue.say(header, payload);
      if (random() % 20 == 0) rogue.acknowledge({{random() % 200, 200 + random() % 50}});
      if (random() % 60 == 0 && called < data.size()) {
        rogue.victim.call(rogue.now, call_on(data[called++], random() % 3 == 0 ? Delivery::exact : Delivery::bounded,
                                             200 * millisecond));
      }
      rogue.now += random() % 2'000'000;
      if (rogue.victim.next_timer() <= rogue.now) rogue.victim.on_timer(rogue.now);
      rogue.replies();
      for (const OperationReport& report : rogue.victim.take_reports()) {
        HF_CHECK(report.delivered <= report.expected);
        ++reported;
      }
      HF_CHECK(rogue.victim.early_bytes() <= (1 << 16));
    }
    rogue.now += second;
    rogue.victim.on_timer(rogue.now);
    reported += rogue.victim.take_reports().size();
    HF_EQUAL(reported, called);  // every call ends, whatever the peer does
  }
}

// -- losing exactly what the end of a stage goes by -------------------------------------------------------------------

namespace {

bool is_end(const Bytes& datagram) { return datagram[1] == static_cast<std::uint8_t>(PacketType::end); }
bool is_data(const Bytes& datagram) { return datagram[1] == static_cast<std::uint8_t>(PacketType::data); }
bool is_marked_data(const Bytes& datagram) { return is_data(datagram) && (datagram[2] & flag::last_percentile) != 0; }

// One bounded operation on three ranks, with an early wait of 20 ms, and two packets lost beside what `filter` takes.
Duration longest_with(const std::function<bool(const Bytes&)>& takes, std::size_t elements = 60'000,
                      std::vector<OperationReport>* reports = nullptr) {
  Network network(3);
  network.join();
  int to_lose = 2;
  network.filter = [&](auto, auto, Bytes& datagram) {
    if (is_data(datagram) && !is_marked_data(datagram) && to_lose-- > 0) return false;
    return !takes(datagram);
  };
  auto data = gradients(3, elements);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    Call call = call_on(data[rank], Delivery::bounded, 400 * millisecond);
    call.contributions = {20 * millisecond, 100u + rank};
    call.results = {20 * millisecond, 200u + rank};
    network[rank].call(network.now, call);
  }
  network.run_for(second);
  Duration longest = 0;
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    HF_EQUAL(network.reports[rank].size(), 1u);
    const OperationReport& report = network.reports[rank].at(0);
    HF_CHECK(report.status == Status::done && report.elapsed <= 400 * millisecond);
    longest = std::max(longest, report.elapsed);
    if (reports != nullptr) reports->push_back(report);
  }
  return longest;
}

}  // namespace

HF_CASE(losing_ends_or_marks_costs_an_early_wait_and_losing_both_the_bound) {
  const Duration with_all = longest_with([](const Bytes&) { return false; });
  const Duration without_marks = longest_with(is_marked_data);
  const Duration without_ends = longest_with(is_end);
  const Duration without_both =
      longest_with([](const Bytes& datagram) { return is_end(datagram) || is_marked_data(datagram); });
  HF_CHECK(with_all < 20 * millisecond);       // a quarter of the wait after the ends
  HF_CHECK(without_marks < 20 * millisecond);  // the ends say as much
  HF_CHECK(without_ends >= 20 * millisecond && without_ends < 100 * millisecond);
  HF_CHECK(without_both >= 200 * millisecond);
}

HF_CASE(samples_arrive_even_when_all_data_that_carries_them_is_lost) {
  std::vector<OperationReport> reports;
  longest_with(is_data, 3000, &reports);
  for (std::uint16_t rank = 0; rank < 3; ++rank) {
    for (std::uint16_t peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      HF_EQUAL(reports[rank].peers[peer].contributions_sample_us, 100u + peer);
    }
  }
}

HF_CASE(losing_a_fifth_of_all_pings_and_acks_makes_no_stage_wait_for_its_bound) {
  // Windows and credits travel in these, too: what was said before, or is said next, holds.
  std::mt19937 random(1);
  const Duration elapsed = longest_with([&](const Bytes& datagram) {
    const auto type = static_cast<PacketType>(datagram[1]);
    return (type == PacketType::ack || type == PacketType::ping) && random() % 5 == 0;
  });
  HF_CHECK(elapsed < 200 * millisecond);
}

HF_CASE(elements_that_come_after_the_close_are_counted_once) {
  Network network(2);
  network.join();
  auto data = gradients(2, 3200);
  // Rank 1's contribution comes when rank 0 has closed its sum.
  network[0].call(network.now, call_on(data[0], Delivery::bounded, 20 * millisecond));
  network.run_for(30 * millisecond);
  HF_EQUAL(network.reports[0].size(), 1u);
  HF_EQUAL(network.reports[0].at(0).late_elements, 0u);
  Header late;
  std::uint64_t late_elements = 0;
  network.filter = [&](std::uint16_t from, auto, Bytes& datagram) {
    const std::size_t payload = datagram.size() - header_bytes - tag_bytes;
    if (from == 1 && is_data(datagram) && !decode(datagram, payload, late)) {
      late_elements += covered_elements(late, payload);
    }
    return true;
  };
  network[1].call(network.now, call_on(data[1], Delivery::bounded, 20 * millisecond));
  network.run_for(50 * millisecond);
  network.filter = [](auto, auto, Bytes&) { return true; };
  for (int i = 0; i < 2; ++i) {
    for (std::uint16_t rank = 0; rank < 2; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::bounded, 20 * millisecond));
    }
    network.run_for(50 * millisecond);
  }
  HF_EQUAL(network.reports[0].size(), 3u);
  HF_CHECK(late_elements > 0);
  HF_EQUAL(network.reports[0].at(1).late_elements, late_elements);
  HF_EQUAL(network.reports[0].at(2).late_elements, 0u);
}

HF_CASE(without_room_in_the_card_acks_and_ends_leave_and_data_waits) {
  Network network(2);
  network.join();
  auto data = gradients(2, 32);
  TransmitBatch batch;
  const auto types_sent = [&](bool card_has_room) {
    std::vector<PacketType> types;
    const std::uint64_t waiting = card_has_room ? 0 : network[0].wanted_card_queue_bytes();
    while (network[0].fill(network.now, batch, waiting)) {
      std::size_t part = 0;
      for (std::uint32_t i = 0; i < batch.num_datagrams; part += batch.parts_per_datagram[i++]) {
        types.push_back(static_cast<PacketType>(static_cast<const std::uint8_t*>(batch.parts[part].iov_base)[1]));
      }
    }
    return types;
  };
  const auto has = [](const std::vector<PacketType>& types, PacketType type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  network[1].call(network.now, call_on(data[1], Delivery::bounded, second));
  network.flush(1);
  network.now += 2 * millisecond;
  while (!network.in_flight.empty()) {
    Network::Datagram datagram = network.in_flight.top();
    network.in_flight.pop();
    network[datagram.to].receive(network.now, datagram.bytes);
  }
  network[0].call(network.now, call_on(data[0], Delivery::bounded, second));
  const auto without_room = types_sent(false);
  HF_CHECK(has(without_room, PacketType::ack));
  HF_CHECK(!has(without_room, PacketType::data));
  HF_CHECK(has(types_sent(true), PacketType::data));
  network.now += 10 * millisecond;
  network[0].on_timer(network.now);
  const auto afterwards = types_sent(false);
  HF_CHECK(has(afterwards, PacketType::end));
  HF_CHECK(!has(afterwards, PacketType::data));
}

HF_CASE(what_stays_on_the_host_says_nothing_about_the_card) {
  const auto card_queue_after_an_operation = [](bool same_host) {
    Network network(3, [same_host](EndpointSettings& settings) {
      for (PeerSettings& peer : settings.peers) peer.same_host = same_host;
    });
    network.join();
    auto data = gradients(3, 200'000);
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::exact, second));
    }
    network.run_for(second);
    HF_CHECK(is_mean(data[0], 3));
    return network[0].wanted_card_queue_bytes();
  };
  HF_CHECK(card_queue_after_an_operation(false) > 32 * 1024);
  HF_EQUAL(card_queue_after_an_operation(true), 32u * 1024);
}

HF_CASE(a_report_tells_what_the_network_dropped_of_what_was_sent_here) {
  Network network(2);
  network.join();
  auto data = gradients(2, 100'000);
  const auto reduce = [&] {
    for (std::uint16_t rank = 0; rank < 2; ++rank) {
      network[rank].call(network.now, call_on(data[rank], Delivery::bounded, second));
    }
    network.run_for(second);
  };
  reduce();
  const OperationReport& clean = network.reports[0].at(0);
  HF_CHECK(clean.datagrams_expected > 100);
  HF_EQUAL(clean.datagrams_received, clean.datagrams_expected);
  int seen = 0;
  network.filter = [&](std::uint16_t, std::uint16_t to, Bytes&) { return to != 0 || ++seen % 10 != 0; };
  reduce();
  const OperationReport& lossy = network.reports[0].at(1);
  const double received_ratio =
      static_cast<double>(lossy.datagrams_received) / static_cast<double>(lossy.datagrams_expected);
  HF_CHECK(received_ratio > 0.87 && received_ratio < 0.93);
}

HF_CASE(each_path_keeps_to_its_share_of_a_busy_card_while_an_operation_is_open) {
  Network network(4);
  network.join();
  network.card_queue_bytes = 1000;  // never empty: the card is the bottleneck
  network.delay = 5 * millisecond;
  auto data = gradients(4, 4'000'000);
  for (std::uint16_t rank = 0; rank < 4; ++rank) {
    network[rank].call(network.now, call_on(data[rank], Delivery::exact, 10 * second));
  }
  for (int i = 0; i < 200 && network[0].card_bytes_per_second() == 0; ++i) network.run_for(5 * millisecond);
  HF_EQUAL(network[0].open_operations(), 1u);
  const double card = network[0].card_bytes_per_second();
  HF_CHECK(card > 0);
  for (std::uint16_t peer = 1; peer < 4; ++peer) {
    const double share = network[0].path(peer).pacing_bytes_per_second() / card;
    HF_CHECK(share > 0.31 && share < 0.37);
  }
  network.run_for(10 * second);
  HF_CHECK(is_mean(data[0], 4));
}

HF_TEST_MAIN
