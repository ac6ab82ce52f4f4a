"""Thousands of seeded runs of the native core over every class of fault that TESTING.md gives to the simulator.

What must hold is in `native/sim/invariants.cc` and `native/sim/host.cc`; a violation begins with the name of its rule.
A failing seed is printed first: `holdfast.sim.run(load_scenario(name), seed)` is the run again, to the last bit.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast._native import OperationReport, SimRuns
from holdfast.sim import Scenario, load_scenario, run, run_many, shipped_scenarios

# FIRST_SEED and SEEDS_PER_SCENARIO explore further than the seeds every run of the tests repeats.
FIRST_SEED = int(os.environ.get("FIRST_SEED", "1"))
SEEDS_PER_SCENARIO = int(os.environ.get("SEEDS_PER_SCENARIO", "50"))
NUM_THREADS = 2

# What a scenario must have done to the traffic: a fault test that cannot fail is worse than none.
MUST_HAPPEN = {
    "loss-0.1": ["lost_by_chance"],
    "loss-1": ["lost_by_chance"],
    "loss-5": ["lost_by_chance"],
    "loss-20": ["lost_by_chance"],
    "loss-bursts": ["lost_in_burst"],
    "loss-long-bursts": ["lost_in_burst"],
    "loss-one-way": ["lost_one_way"],
    "loss-one-way-heals": ["lost_one_way"],
    "loss-one-way-half": ["lost_one_way"],
    "loss-last-packets": ["lost_last_packets"],
    "loss-every-mark": ["lost_last_packets"],
    "loss-control": ["lost_control"],
    "loss-marks": ["lost_marks"],
    "loss-marks-most": ["lost_marks"],
    "loss-ends": ["lost_ends"],
    "loss-ends-most": ["lost_ends"],
    "loss-samples": ["lost_samples"],
    "loss-samples-most": ["lost_samples"],
    "loss-samples-first": ["lost_samples"],
    "loss-credits": ["lost_credits"],
    "loss-credits-first": ["lost_credits"],
    "loss-credits-most": ["lost_credits"],
    "loss-acks": ["lost_acks"],
    "loss-acks-half": ["lost_acks"],
    "limit-acks-half": ["lost_acks"],
    "limit-disorder": ["reordered", "duplicated", "stalled"],
    "disorder-reorder": ["reordered"],
    "disorder-duplicate": ["duplicated"],
    "disorder-corrupt": ["corrupted", "truncated"],
    "disorder-stale": ["replayed"],
    "disorder-forged": ["forged"],
    "delay-heavy-tail": ["stalled"],
    "delay-black-hole": ["lost_in_black_hole"],
    "incast": ["dropped_at_port"],
    "freeze-overflow": ["dropped_at_socket"],
}
MUST_BE_DROPPED_AS = {
    "disorder-duplicate": ["replay"],
    "disorder-corrupt": ["authentication", "truncated"],
    "disorder-stale": ["replay"],
    "disorder-forged": ["authentication", "foreign_epoch", "foreign_job", "unknown_sender", "key_phase"],
    "early-cap": ["early_over_cap"],
}


def run_on_two_threads(scenario: Scenario, first_seed: int, count: int) -> list[SimRuns]:
    share = count // NUM_THREADS
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        return list(threads.map(lambda i: run_many(scenario, first_seed + i * share, share), range(NUM_THREADS)))


def test_there_are_at_least_two_thousand_runs() -> None:
    assert len(shipped_scenarios()) * SEEDS_PER_SCENARIO >= 2000


@pytest.mark.parametrize("name", shipped_scenarios())
def test_invariants_hold(name: str) -> None:
    scenario = load_scenario(name)
    halves = run_on_two_threads(scenario, FIRST_SEED, SEEDS_PER_SCENARIO)
    for half in halves:
        for failed in half.failed:
            violations = "\n".join(failed.violations)
            pytest.fail(
                f"seed {failed.seed} of scenario {name} ({failed.num_ranks} ranks):\n{violations}", pytrace=False
            )
    assert sum(half.num_runs for half in halves) == SEEDS_PER_SCENARIO
    for counter in MUST_HAPPEN.get(name, []):
        assert sum(half.network[counter] for half in halves) > 0, counter
    if scenario.limited_ratio:
        assert sum(half.num_ended_at_limit for half in halves) > 0
    if scenario.narrow_behind_ratio:
        assert sum(half.num_narrow_elements for half in halves) > 0
    for cause in MUST_BE_DROPPED_AS.get(name, []):
        assert sum(half.drops[cause] for half in halves) > 0, cause


def test_exact_delivery_survives_every_loss_that_has_no_culprit() -> None:
    for name in ("loss-20", "loss-bursts", "disorder-everything", "incast"):
        runs = run_many(load_scenario(name), 1, 10)
        assert runs.num_exact > 0, name
        assert runs.num_exact_failed == 0, name


def test_the_same_seed_gives_the_same_run_and_another_another() -> None:
    scenario = load_scenario("disorder-everything")
    first, again, other = run(scenario, 5), run(scenario, 5), run(scenario, 6)
    assert first.digest == again.digest
    assert first.digest != other.digest


def test_keys_change_in_flight() -> None:
    assert run(load_scenario("rekey"), 1).num_key_changes > 0


def test_an_error_of_who_steers_ends_the_run() -> None:
    class Lost:
        def choose(self, rank: int, operation: int, num_bytes: int) -> None:
            raise LookupError(f"rank {rank} has no idea")

        def learn(self, rank: int, report: OperationReport) -> None:
            raise AssertionError("nothing was called")

    with pytest.raises(LookupError, match="no idea"):
        run(load_scenario("clean"), 1, steering=Lost())
