// The load and the faults of a run, as data. Every number here can be set from a scenario file; see
// src/holdfast/sim/scenario.py for the same fields with their documentation.
#pragma once

#include <cstdint>

namespace holdfast::sim {

struct Scenario {
  // The job. A run draws its number of ranks from the seed.
  std::int64_t min_ranks = 2;
  std::int64_t max_ranks = 5;
  std::int64_t num_groups = 1;  // of neighbouring ranks; more: operations are hierarchical
  std::int64_t datagram_bytes = 1472;
  std::int64_t protection = -1;                 // a value of Protection; -1: encrypted or authenticated, by the seed
  std::int64_t packing = -1;                    // 0: never, 1: always; -1: by the seed
  std::int64_t packets_per_key = 0;             // 0: the default
  std::int64_t receive_buffer_bytes = 4 << 20;  // what the endpoint believes its socket holds
  std::int64_t early_bytes_cap = 256 << 20;
  std::int64_t note_assembly_bytes = 64 << 20;
  bool same_host = false;
  bool expects_complete = false;  // nothing here should cost an element

  // The load.
  std::int64_t num_operations = 6;
  std::int64_t min_elements = 1;
  std::int64_t max_elements = 8000;
  std::int64_t format = -1;  // a value of Format; -1: by the seed
  double exact_ratio = 0.3;
  double sum_ratio = 0.3;
  double deterministic_ratio = 0.2;  // runs that sum in rank order
  double repaired_ratio = 0.5;       // runs in which lost results are sent again, for as long as t_c_ms of silence
  double deadline_ms = 60;
  double exact_deadline_ms = 4000;
  double t_c_ms = 10;
  double early_wait_ratio = 0.5;
  std::int64_t credit = 0;
  double duty_limit_ms = 2000;
  double step_ms = 5;       // between the calls of a rank; less than a round trip: several in flight
  double call_skew_ms = 1;  // how much ranks differ in when they call
  double owner_bonus = 0;   // added to the gradient of whoever sums it
  double rank_bias = 0;     // times the rank, added to its gradients
  std::int64_t num_notes = 3;
  std::int64_t max_note_bytes = 20000;
  double note_deadline_ms = 4000;
  double limited_ratio = 0;        // of bounded calls that are to end before their bound
  double announce_ratio = 0;       // of bounded calls that announce how long their stages took the last time
  double narrow_behind_ratio = 0;  // of bounded calls: see Call
  std::int64_t later_credit = -1;  // handed out from operation `later_credit_from` on; -1: the credit stays
  std::int64_t later_credit_from = 0;

  // Every link, all the time.
  double rate_gbps = 10;
  double port_rate_gbps = 10;
  std::int64_t port_queue_bytes = 1 << 20;
  std::int64_t socket_queue_bytes = 4 << 20;
  double delay_us = 50;
  double stalls_per_second = 0;  // per directed pair; a stall holds back all that is sent during it
  double stall_scale_ms = 1;     // Pareto
  double stall_shape = 1.5;
  double loss_ratio = 0;
  double burst_loss_ratio = 0;         // Gilbert-Elliott: lost while a pair is in its bad state
  double burst_ms = 5;                 // mean time in the bad state
  double calm_ms = 100;                // mean time in the good one
  double last_packets_loss_ratio = 0;  // of packets that carry the mark, and of ends
  double control_loss_ratio = 0;       // of acks, pings, ends
  // Of exactly the packets that carry one thing, once the load has begun: see carrier_loss.h.
  double credit_loss_ratio = 0;
  double mark_loss_ratio = 0;
  double end_loss_ratio = 0;
  double sample_loss_ratio = 0;
  double ack_loss_ratio = 0;
  std::int64_t carriers_lost_first = 0;  // only the first so many of each piece of news; 0: no limit
  double duplicate_ratio = 0;
  double reorder_ratio = 0;
  double reorder_us = 500;
  double corrupt_ratio = 0;
  double truncate_ratio = 0;
  double replay_ratio = 0;      // sent again later by somebody who listened
  double replay_after_ms = 50;  // mean
  double forge_ratio = 0;       // per genuine datagram one of an attacker without the key

  // One rank, from `fault_start_ms` after the job formed, for `fault_ms` (0: for good).
  std::int64_t victim = -1;               // -1: by the seed
  std::int64_t victim_shard_weight = -1;  // of 64, the others'; -1: shards are even
  double fault_start_ms = 10;
  double fault_ms = 0;
  double one_way_loss_ratio = 0;  // from the victim to its neighbour
  double freeze_ms = 0;
  std::int64_t num_freezes = 1;
  double freeze_every_ms = 100;
  bool black_hole = false;  // nothing in or out of the victim
  bool dies = false;
  double slow_rate_ratio = 1;     // the victim's share of the rate, both ways
  double slow_link_delay_us = 0;  // more delay from the victim to its neighbour
  double clock_jump_ms = 0;
  double late_call_ms = 0;        // the victim's calls come this much later
  std::int64_t calls_until = -1;  // the victim calls this many operations and no more
};

// visit(name, field) for every field, in order: what a binding or a printer needs.
template <class AnyScenario, class Visit>
void for_each_field(AnyScenario& scenario, Visit visit) {
#define HF_FIELD(field) visit(#field, scenario.field)
  HF_FIELD(min_ranks);
  HF_FIELD(max_ranks);
  HF_FIELD(num_groups);
  HF_FIELD(datagram_bytes);
  HF_FIELD(protection);
  HF_FIELD(packing);
  HF_FIELD(packets_per_key);
  HF_FIELD(receive_buffer_bytes);
  HF_FIELD(early_bytes_cap);
  HF_FIELD(note_assembly_bytes);
  HF_FIELD(same_host);
  HF_FIELD(expects_complete);
  HF_FIELD(num_operations);
  HF_FIELD(min_elements);
  HF_FIELD(max_elements);
  HF_FIELD(format);
  HF_FIELD(exact_ratio);
  HF_FIELD(sum_ratio);
  HF_FIELD(deterministic_ratio);
  HF_FIELD(repaired_ratio);
  HF_FIELD(deadline_ms);
  HF_FIELD(exact_deadline_ms);
  HF_FIELD(t_c_ms);
  HF_FIELD(early_wait_ratio);
  HF_FIELD(credit);
  HF_FIELD(duty_limit_ms);
  HF_FIELD(step_ms);
  HF_FIELD(call_skew_ms);
  HF_FIELD(owner_bonus);
  HF_FIELD(rank_bias);
  HF_FIELD(num_notes);
  HF_FIELD(max_note_bytes);
  HF_FIELD(note_deadline_ms);
  HF_FIELD(limited_ratio);
  HF_FIELD(announce_ratio);
  HF_FIELD(narrow_behind_ratio);
  HF_FIELD(later_credit);
  HF_FIELD(later_credit_from);
  HF_FIELD(rate_gbps);
  HF_FIELD(port_rate_gbps);
  HF_FIELD(port_queue_bytes);
  HF_FIELD(socket_queue_bytes);
  HF_FIELD(delay_us);
  HF_FIELD(stalls_per_second);
  HF_FIELD(stall_scale_ms);
  HF_FIELD(stall_shape);
  HF_FIELD(loss_ratio);
  HF_FIELD(burst_loss_ratio);
  HF_FIELD(burst_ms);
  HF_FIELD(calm_ms);
  HF_FIELD(last_packets_loss_ratio);
  HF_FIELD(control_loss_ratio);
  HF_FIELD(credit_loss_ratio);
  HF_FIELD(mark_loss_ratio);
  HF_FIELD(end_loss_ratio);
  HF_FIELD(sample_loss_ratio);
  HF_FIELD(ack_loss_ratio);
  HF_FIELD(carriers_lost_first);
  HF_FIELD(duplicate_ratio);
  HF_FIELD(reorder_ratio);
  HF_FIELD(reorder_us);
  HF_FIELD(corrupt_ratio);
  HF_FIELD(truncate_ratio);
  HF_FIELD(replay_ratio);
  HF_FIELD(replay_after_ms);
  HF_FIELD(forge_ratio);
  HF_FIELD(victim);
  HF_FIELD(victim_shard_weight);
  HF_FIELD(fault_start_ms);
  HF_FIELD(fault_ms);
  HF_FIELD(one_way_loss_ratio);
  HF_FIELD(freeze_ms);
  HF_FIELD(num_freezes);
  HF_FIELD(freeze_every_ms);
  HF_FIELD(black_hole);
  HF_FIELD(dies);
  HF_FIELD(slow_rate_ratio);
  HF_FIELD(slow_link_delay_us);
  HF_FIELD(clock_jump_ms);
  HF_FIELD(late_call_ms);
  HF_FIELD(calls_until);
#undef HF_FIELD
}

}  // namespace holdfast::sim
