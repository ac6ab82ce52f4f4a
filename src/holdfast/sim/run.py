"""Runs scenarios on the native simulator. Every call releases the GIL, so threads run seeds side by side."""

from __future__ import annotations

from holdfast._native import Replay, SimRun, SimRuns, replay_trace, sim_run, sim_run_many
from holdfast.sim.scenario import Scenario


def run(scenario: Scenario, seed: int, *, sample_blocks: bool = False) -> SimRun:
    """One run. `sample_blocks` also returns every block of every result beside what went into it."""
    return sim_run(scenario.values(), seed, sample_blocks)


def run_many(scenario: Scenario, first_seed: int, count: int, *, stop_at_first_failure: bool = True) -> SimRuns:
    """Runs `count` seeds from `first_seed` on."""
    return sim_run_many(scenario.values(), first_seed, count, stop_at_first_failure)


def replay(trace: bytes) -> Replay:
    """Feeds the recorded trace of one real rank to a fresh endpoint and tells whether it did the same again."""
    return replay_trace(trace)
