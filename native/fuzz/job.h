// A whole job on a virtual clock whose network is the fuzzer: every datagram sent waits in a pile until the input says
// what becomes of it. Hosts and oracle are the simulator's; only the network's will is not.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "fuzz/input.h"
#include "sim/host.h"

namespace holdfast::fuzz {

struct JobSettings {
  std::uint16_t num_ranks = 2;
  Protection protection = Protection::insecure;
  std::uint32_t datagram_bytes = 256;
  std::uint64_t early_bytes_cap = 1 << 20;
  std::uint64_t max_note_bytes = 1 << 20;
  std::uint64_t receive_buffer_bytes = 1 << 20;
  Duration silence_limit = second;
  std::uint64_t seed = 1;
  sim::Scenario load;  // operations, notes, deadlines; its network is not used
};

class Job {
 public:
  explicit Job(const JobSettings& settings);

  Time now() const { return now_; }
  std::uint16_t num_ranks() const { return settings_.num_ranks; }
  const sim::Workload& workload() const { return workload_; }
  const sim::Truth& truth() const { return truth_; }
  sim::Host& host(std::uint16_t rank) { return *hosts_[rank]; }
  const sim::Host& host(std::uint16_t rank) const { return *hosts_[rank]; }

  // -- what ranks do -------------------------------------------------------------------------------------------------
  void publish(const Parameters& parameters);
  // The rank's next operation, if it has one left.
  void call(std::uint16_t rank);
  void call_everything();
  // The next note of the plan.
  void send_note();
  // Lets it run, and make the calls it owes, before anything else happens.
  void thaw(std::uint16_t rank);

  // -- what the network does -----------------------------------------------------------------------------------------
  // One thing to one datagram of the pile: take it there, lose it, copy it; with keys also damage, misdeliver.
  void disturb(Input& input);
  // Time passes, timers are served when due, and nothing arrives.
  void pass(Duration time);
  // Everything arrives in order after a short delay, until `done` or the time is over.
  template <class Done>
  void run_honestly(Duration time, Done done) {
    const Time limit = now_ + time;
    while (now_ < limit && !done()) deliver_all(limit);
  }

  bool formed() const;
  // Nothing is open, held or on its way on any living rank.
  bool quiet() const;
  // Aborts with the text of the first rule that was broken on the way.
  void check_course() const;

 private:
  void serve_events(Time until);
  void deliver_all(Time limit);
  void give(sim::Datagram datagram);
  sim::Datagram pick(Input& input, bool keep);

  JobSettings settings_;
  sim::Workload workload_;
  sim::ScenarioSteering steering_;
  sim::EventQueue events_;
  sim::Network network_;
  sim::Truth truth_;
  sim::Violations violations_;
  std::vector<std::unique_ptr<sim::Host>> hosts_;
  std::deque<sim::Datagram> pile_;
  std::vector<std::uint32_t> next_call_;
  std::size_t next_note_ = 0;
  Time now_ = 0;
};

// What the reports and the callers' memory say, beside what really arrived. For the end of a run.
void check_operations(const Job& job);
// Delivered at most once, with the right bytes, and settled truly.
void check_notes(const Job& job);

}  // namespace holdfast::fuzz
