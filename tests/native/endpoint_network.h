// Whole endpoints on a virtual clock, and a network between them that a case may spoil.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "core/endpoint.h"
#include "testing/check.h"

namespace holdfast::testing {

using Bytes = std::vector<std::uint8_t>;

constexpr Time start = 100 * second;

inline ProcessId process_of(std::uint16_t rank) {
  ProcessId id{};
  id.fill(static_cast<std::uint8_t>(0x50 + rank));
  return id;
}

inline EndpointSettings settings_for(std::uint16_t rank, std::uint16_t num_ranks) {
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

inline Call call_on(std::vector<float>& data, Delivery delivery, Duration deadline = 0) {
  Call call;
  call.data = reinterpret_cast<std::uint8_t*>(data.data());
  call.count = static_cast<std::uint32_t>(data.size());
  call.delivery = delivery;
  call.deadline = deadline;
  return call;
}

// Rank r holds element i as r + i % 8: means over up to eight ranks are exact enough to compare.
inline std::vector<std::vector<float>> gradients(std::size_t num_ranks, std::size_t count) {
  std::vector<std::vector<float>> all(num_ranks, std::vector<float>(count));
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) all[rank][i] = static_cast<float>(rank + i % 8);
  }
  return all;
}

// The mean of gradients() on n ranks is (n - 1) / 2 + i % 8.
inline bool is_mean(const std::vector<float>& data, std::size_t num_ranks) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    const float expected = static_cast<float>(num_ranks - 1) / 2 + static_cast<float>(i % 8);
    if (std::abs(data[i] - expected) > 1e-5f * std::max(1.0f, expected)) return false;
  }
  return true;
}

inline std::uint64_t drops(const Endpoint& endpoint, Drop drop) {
  return endpoint.drops()[static_cast<std::size_t>(drop)];
}

inline std::uint64_t all_drops(const Endpoint& endpoint) {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : endpoint.drops()) sum += count;
  return sum;
}

}  // namespace holdfast::testing
