"""Runs scenarios on the native simulator. Every call releases the GIL, so threads run seeds side by side."""

from __future__ import annotations

from typing import Protocol

from holdfast._native import (
    OperationReport,
    Replay,
    SimCall,
    SimRun,
    SimRuns,
    replay_trace,
    sim_run,
    sim_run_many,
)
from holdfast.sim.scenario import Scenario


class Steering(Protocol):
    """Decides about calls in the scenario's stead, as the policies do in a real job, and is told how they ended."""

    def choose(self, rank: int, operation: int, num_bytes: int) -> SimCall | None:
        """What `rank` is about to call with; None: as the scenario says."""

    def learn(self, rank: int, report: OperationReport) -> None:
        """`rank` has its result."""


def run(scenario: Scenario, seed: int, *, sample_blocks: bool = False, steering: Steering | None = None) -> SimRun:
    """One run. `sample_blocks` also returns every block of every result beside what went into it."""
    if steering is None:
        return sim_run(scenario.values(), seed, sample_blocks)
    return sim_run(scenario.values(), seed, sample_blocks, steering.choose, steering.learn)


def run_many(scenario: Scenario, first_seed: int, count: int, *, stop_at_first_failure: bool = True) -> SimRuns:
    """Runs `count` seeds from `first_seed` on."""
    return sim_run_many(scenario.values(), first_seed, count, stop_at_first_failure)


def replay(trace: bytes) -> Replay:
    """Feeds the recorded trace of one real rank to a fresh endpoint and tells whether it did the same again."""
    return replay_trace(trace)
