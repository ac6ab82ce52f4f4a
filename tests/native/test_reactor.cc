// Several reactors in one process on real loopback sockets, called from many threads at once. An ordinary test, and
// what the thread sanitizer looks at: results are checked exactly, every wait has a limit.
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/keys.h"
#include "io/reactor.h"
#include "testing/check.h"

namespace {

using namespace holdfast;
using io::Address;
using io::Reactor;
using io::UdpSocket;

// Far beyond what anything here takes, also under a sanitizer on a busy machine.
constexpr Duration patience = 40 * second;

// The harness counts failures without a lock, so what threads find is kept here and checked when they have ended.
class Findings {
 public:
  void require(bool holds, const std::string& what) {
    if (holds) return;
    const std::lock_guard lock(mutex_);
    texts_.insert(what);
  }
  void check() const {
    std::string all;
    for (const std::string& text : texts_) all += text + "; ";
    HF_EQUAL(all, "");
  }

 private:
  std::mutex mutex_;
  std::set<std::string> texts_;
};

class Threads {
 public:
  explicit Threads(Findings& findings) : findings_(findings) {}
  ~Threads() { join(); }

  void start(std::function<void()> body) {
    threads_.emplace_back([this, body = std::move(body)] {
      try {
        body();
      } catch (const std::exception& error) {
        findings_.require(false, std::string("threw: ") + error.what());
      }
    });
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  Findings& findings_;
  std::vector<std::thread> threads_;
};

struct JobOptions {
  std::uint32_t epoch = 0;
  Protection protection = Protection::encrypted;
  std::uint64_t packets_per_key = default_packets_per_key;
  bool deterministic = false;
  bool record = false;
  std::vector<std::uint16_t> ports = {};  // empty: any free ones
};

class Job {
 public:
  explicit Job(std::uint16_t num_ranks, const JobOptions& options = {}) {
    std::vector<std::unique_ptr<UdpSocket>> sockets;
    std::vector<Address> addresses;
    EndpointSettings settings;
    settings.num_ranks = num_ranks;
    settings.epoch = options.epoch;
    settings.protection = options.protection;
    settings.packets_per_key = options.packets_per_key;
    settings.job_key.fill(0x5a);
    settings.silence_limit = patience;  // a sanitized thread on a busy machine is slow, not dead
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      const std::uint16_t port = options.ports.empty() ? 0 : options.ports[rank];
      sockets.push_back(std::make_unique<UdpSocket>(Address::parse("127.0.0.1", port), io::UdpOptions{}));
      addresses.push_back(sockets.back()->local());
      ports.push_back(sockets.back()->local().port());
      PeerSettings peer{.process = {}, .same_host = true};
      fill_random(peer.process);
      settings.peers.push_back(peer);
    }
    settings.receive_buffer_bytes = sockets[0]->granted_receive_buffer_bytes();
    for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
      settings.rank = rank;
      reactors.push_back(std::make_unique<Reactor>(std::move(sockets[rank]), settings, addresses, options.record));
      reactors.back()->publish(parameters(0, options.deterministic));
    }
  }

  static Parameters parameters(std::uint32_t from_operation, bool deterministic = false) {
    Parameters block;
    block.from_operation = from_operation;
    block.t_b = block.t_c = patience / 4;
    block.deterministic = deterministic;
    return block;
  }

  void wait_joined() {
    for (const auto& reactor : reactors) HF_CHECK(reactor->wait_joined(patience).empty());
  }
  Reactor& operator[](std::size_t rank) { return *reactors[rank]; }
  std::uint16_t num_ranks() const { return static_cast<std::uint16_t>(reactors.size()); }

  std::vector<std::unique_ptr<Reactor>> reactors;
  std::vector<std::uint16_t> ports;
};

Call call_on(std::vector<float>& data, Delivery delivery, bool average = false) {
  Call call;
  call.data = reinterpret_cast<std::uint8_t*>(data.data());
  call.count = static_cast<std::uint32_t>(data.size());
  call.layout = 7;
  call.delivery = delivery;
  call.deadline = patience / 2;
  call.average = average;
  return call;
}

// Small whole numbers, so that every sum of them is exact in any order. The same for all callers of a rank: whichever
// of them gets which operation number, the operation's result is the same.
std::vector<float> gradient(std::uint16_t rank, std::uint32_t count) {
  std::vector<float> values(count);
  for (std::uint32_t i = 0; i < count; ++i) values[i] = static_cast<float>((i % 101) * (rank + 1u));
  return values;
}

std::vector<float> sum_of_gradients(std::uint16_t num_ranks, std::uint32_t count) {
  std::vector<float> sum(count, 0.0f);
  for (std::uint16_t rank = 0; rank < num_ranks; ++rank) {
    const std::vector<float> values = gradient(rank, count);
    std::transform(sum.begin(), sum.end(), values.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

// One caller of one rank: operations one after the other, each checked element by element.
void reduce_repeatedly(Reactor& reactor, std::uint16_t rank, std::uint16_t num_ranks, Delivery delivery, int times,
                       Findings& findings, std::atomic<int>& num_complete) {
  constexpr std::uint32_t count = 20'000;
  const std::vector<float> expected = sum_of_gradients(num_ranks, count);
  for (int i = 0; i < times; ++i) {
    std::vector<float> data = gradient(rank, count);
    const std::uint32_t operation = reactor.call(call_on(data, delivery));
    const std::optional<OperationReport> report = reactor.wait(operation, patience);
    findings.require(report.has_value(), "an operation did not end");
    if (!report) {
      reactor.stop();  // `data` must outlive what the reactor does with it
      return;
    }
    findings.require(report->operation == operation && report->total == count, "another operation's report");
    findings.require(report->status == Status::done, "an operation failed");
    const bool complete = report->delivered == report->expected;
    findings.require(complete || delivery == Delivery::bounded, "an exact operation is incomplete");
    if (complete) {
      findings.require(data == expected, "a complete result is wrong");
      ++num_complete;
    }
    for (const ElementRange& range : report->missing) {
      findings.require(
          std::all_of(data.begin() + range.begin, data.begin() + range.end, [](float x) { return x == 0; }),
          "a missing element is not zero");
    }
  }
}

void reduce_from_all_ranks(Job& job, int callers_per_rank, Delivery delivery, int times, Threads& threads,
                           Findings& findings, std::atomic<int>& num_complete) {
  for (std::uint16_t rank = 0; rank < job.num_ranks(); ++rank) {
    for (int caller = 0; caller < callers_per_rank; ++caller) {
      threads.start([&job, rank, delivery, times, &findings, &num_complete] {
        reduce_repeatedly(job[rank], rank, job.num_ranks(), delivery, times, findings, num_complete);
      });
    }
  }
}

void sum_once(Job& job) {
  Findings findings;
  std::atomic<int> num_complete = 0;
  {
    Threads threads(findings);
    reduce_from_all_ranks(job, 1, Delivery::exact, 1, threads, findings, num_complete);
  }
  findings.check();
  HF_EQUAL(num_complete.load(), static_cast<int>(job.num_ranks()));
}

std::vector<std::uint8_t> note_of(std::uint16_t sender, std::uint16_t receiver, std::uint32_t index) {
  std::vector<std::uint8_t> bytes(1 + (index * 7919) % 30'000);
  std::iota(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(sender * 16 + receiver + index));
  return bytes;
}

std::uint32_t channel_of(std::uint16_t sender) { return 100u + sender; }

void send_notes(Reactor& reactor, std::uint16_t rank, std::uint16_t peer, std::uint32_t count, Findings& findings) {
  for (std::uint32_t index = 0; index < count; ++index) {
    const std::uint32_t ticket = reactor.send_note(peer, channel_of(rank), note_of(rank, peer, index), patience);
    findings.require(reactor.wait_note(ticket, patience) == NoteFate::delivered, "a note was not delivered");
  }
}

void receive_notes(Reactor& reactor, std::uint16_t rank, std::uint16_t peer, std::uint32_t count, Findings& findings) {
  for (std::uint32_t index = 0; index < count; ++index) {
    const std::optional<Note> note = reactor.receive_note(channel_of(peer), patience);
    findings.require(note.has_value(), "a note did not come");
    if (!note) return;
    findings.require(note->sender == peer && note->bytes == note_of(peer, rank, index), "a note is not what was sent");
  }
}

// Everything a thread may ask while others work.
void look_until(Reactor& reactor, const std::atomic<bool>& done, Findings& findings) {
  std::uint64_t last_sent = 0;
  while (!done) {
    const io::Snapshot snapshot = reactor.snapshot();
    std::uint64_t sent = 0;
    for (const io::PeerSnapshot& peer : snapshot.peers) sent += peer.counters.datagrams_sent;
    findings.require(sent >= last_sent, "a counter went backwards");
    last_sent = sent;
    for (const PeerChange& change : reactor.take_peer_changes()) {
      findings.require(change.state == PeerState::alive, "a peer is gone");
    }
    findings.require(reactor.failure().empty(), "the thread failed");
    reactor.publish(Job::parameters(1u << 20));  // for operations nobody will reach
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

HF_CASE(everything_at_once_from_many_threads) {
  for (const Protection protection : {Protection::encrypted, Protection::authenticated, Protection::insecure}) {
    // Keys change in flight; one of the runs sums in rank order.
    JobOptions options{.protection = protection, .packets_per_key = 200};
    options.deterministic = protection == Protection::authenticated;
    Job job(3, options);
    job.wait_joined();
    Findings findings;
    std::atomic<int> num_complete = 0;
    std::atomic<bool> done = false;
    Threads lookers(findings);
    for (const auto& reactor : job.reactors) {
      lookers.start([&reactor, &done, &findings] { look_until(*reactor, done, findings); });
    }
    {
      Threads workers(findings);
      reduce_from_all_ranks(job, 3, Delivery::exact, 8, workers, findings, num_complete);
      for (std::uint16_t rank = 0; rank < 3; ++rank) {
        for (std::uint16_t peer = 0; peer < 3; ++peer) {
          if (peer == rank) continue;
          workers.start([&, rank, peer] { send_notes(job[rank], rank, peer, 20, findings); });
          workers.start([&, rank, peer] { receive_notes(job[rank], rank, peer, 20, findings); });
        }
      }
    }
    done = true;
    lookers.join();
    findings.check();
    HF_EQUAL(num_complete.load(), 3 * 3 * 8);
    for (const auto& reactor : job.reactors) {
      const io::Snapshot snapshot = reactor->snapshot();
      for (const io::PeerSnapshot& peer : snapshot.peers) {
        HF_CHECK(peer.sealing_phase > 0 || protection == Protection::insecure);
        HF_EQUAL(peer.failed_authentications, 0u);
      }
    }
  }
}

HF_CASE(bounded_operations_of_concurrent_callers_are_right_where_complete) {
  Job job(3);
  job.wait_joined();
  Findings findings;
  std::atomic<int> num_complete = 0;
  {
    Threads workers(findings);
    reduce_from_all_ranks(job, 2, Delivery::bounded, 10, workers, findings, num_complete);
  }
  findings.check();
  HF_CHECK(num_complete > 0);
}

HF_CASE(a_recording_can_be_read_while_it_is_written) {
  Job job(2, {.record = true});
  job.wait_joined();
  Findings findings;
  std::atomic<int> num_complete = 0;
  std::size_t last_size = 0;
  {
    Threads workers(findings);
    reduce_from_all_ranks(job, 1, Delivery::exact, 5, workers, findings, num_complete);
    for (int i = 0; i < 20; ++i) {
      const std::size_t size = job[0].recording().size();
      HF_CHECK(size >= last_size);
      last_size = size;
    }
  }
  findings.check();
  HF_CHECK(job[0].recording().size() > 20'000 * sizeof(float));
}

HF_CASE(stopping_ends_every_wait_and_lets_go_of_the_memory) {
  for (int round = 0; round < 5; ++round) {
    Job job(3);
    job.wait_joined();
    Findings findings;
    Threads waiting(findings);
    std::atomic<int> num_ready = 0;
    std::vector<std::vector<float>> gradients(4, gradient(0, 50'000));
    // Rank 0 alone calls: its operations cannot end before their deadline, and a stage is under way when it stops.
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      waiting.start([&, i] {
        const std::uint32_t operation = job[0].call(call_on(gradients[i], Delivery::exact));
        ++num_ready;
        findings.require(!job[0].wait(operation, patience), "an operation ended although nobody else called");
      });
    }
    waiting.start([&] {
      ++num_ready;
      findings.require(!job[0].receive_note(3, patience), "a note came from nowhere");
    });
    waiting.start([&] {
      ++num_ready;
      findings.require(!job[0].wait_note(12'345, patience), "a ticket that was never given out ended");
    });
    waiting.start([&] {
      ++num_ready;
      try {
        while (true) {
          job[0].snapshot();
          job[0].send_note(1, 9, {1, 2, 3}, second);
        }
      } catch (const std::runtime_error&) {  // the reactor has stopped
      }
    });
    while (num_ready < 7) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    job[0].stop();
    for (std::vector<float>& values : gradients) std::vector<float>().swap(values);
    waiting.join();
    findings.check();
  }
}

HF_CASE(a_stopped_reactor_refuses_calls_by_name) {
  Job job(2);
  job.wait_joined();
  job[0].stop();
  job[0].stop();
  std::vector<float> data(10);
  const auto refuses = [](const std::function<void()>& action) {
    try {
      action();
    } catch (const std::runtime_error& error) {
      return std::string(error.what()).find("stopped") != std::string::npos;
    }
    return false;
  };
  HF_CHECK(refuses([&] { job[0].call(call_on(data, Delivery::exact)); }));
  HF_CHECK(refuses([&] { job[0].send_note(1, 0, {1}, second); }));
  HF_CHECK(refuses([&] { job[0].publish({}); }));
  HF_CHECK(refuses([&] { job[0].snapshot(); }));
  HF_CHECK(!job[0].wait(0, second));
  HF_CHECK(!job[0].receive_note(0, second));
  HF_CHECK(job[0].failure().empty());
}

HF_CASE(a_peer_that_stops_is_seen_leaving_by_those_that_work_on) {
  Job job(3);
  job.wait_joined();
  sum_once(job);
  Findings findings;
  {
    Threads threads(findings);
    threads.start([&] { job[2].stop(); });
    for (std::uint16_t rank = 0; rank < 2; ++rank) {
      threads.start([&, rank] {
        std::vector<float> data = gradient(rank, 10'000);
        const auto report = job[rank].wait(job[rank].call(call_on(data, Delivery::exact)), patience);
        findings.require(report && report->status == Status::peer_dead,
                         "the leaving of a peer ends an exact operation");
        findings.require(report && report->culprits == std::vector<std::uint16_t>{2}, "the culprit is named");
      });
    }
  }
  findings.check();
}

HF_CASE(a_job_restarts_on_the_same_ports_at_once) {
  JobOptions options;
  for (options.epoch = 0; options.epoch < 5; ++options.epoch) {
    Job job(3, options);
    options.ports = job.ports;
    job.wait_joined();
    sum_once(job);
    Findings findings;
    Threads threads(findings);  // all leave at once, and nobody waits for anybody
    for (const auto& reactor : job.reactors) threads.start([&reactor] { reactor->stop(); });
  }
}

HF_TEST_MAIN
