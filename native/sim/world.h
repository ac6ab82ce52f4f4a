// N hosts on one network and one virtual clock: forms the job, applies the load, waits until all is quiet.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/host.h"

namespace holdfast::sim {

class World {
 public:
  // `steering`: who decides in the scenario's stead; must outlive the world.
  World(const Scenario& scenario, std::uint64_t seed, Steering* steering = nullptr);

  // The whole run, to the end of the quiet after it. Checks what only the course of it can show.
  void run();

  const Scenario& scenario() const { return scenario_; }
  std::uint16_t num_ranks() const { return num_ranks_; }
  std::uint16_t victim() const { return victim_; }
  const Workload& workload() const { return *workload_; }
  const Truth& truth() const { return *truth_; }
  const Network& network() const { return *network_; }
  const std::vector<std::unique_ptr<Host>>& hosts() const { return hosts_; }
  Violations& violations() { return violations_; }
  Time now() const { return now_; }
  bool formed() const { return formed_; }
  // Whether every rank was quiet at the end: nothing open, held or in flight.
  bool quiet() const;

 private:
  std::vector<EndpointSettings> endpoint_settings(std::uint64_t seed) const;
  void step();
  void form_job();
  void schedule_load();
  void schedule_faults();
  Duration longest_deadline() const;
  template <class Done>
  bool advance_until(Time limit, Done done);

  const Scenario scenario_;
  std::uint16_t num_ranks_;
  std::uint16_t victim_;
  std::uint64_t seed_;
  EventQueue events_;
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<Steering> own_steering_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Truth> truth_;
  Violations violations_;
  std::vector<std::unique_ptr<Host>> hosts_;
  Time now_ = 0;
  Time started_at_ = 0;
  bool formed_ = false;
};

}  // namespace holdfast::sim
