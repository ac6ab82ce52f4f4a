"""Run a trace of availability through every policy: who delivers how much over the whole time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import BrokenTrace
from holdfast.reroute.availability import Trace
from holdfast.reroute.policies import POLICIES, Policy, PolicyCosts
from holdfast.reroute.shape import Job, Worker


@dataclass(frozen=True)
class Stretch:
    """A stretch of time with one rate; 0 in a pause."""

    begin_s: float
    end_s: float
    rate: float


@dataclass(frozen=True)
class PolicyRun:
    """What one policy delivered."""

    name: str
    model: str
    stretches: tuple[Stretch, ...]
    paused_s: float
    lost_s: float
    """Time whose work had to be done again."""
    mean: float
    """Mean throughput relative to fault-free 1F1B, lost work not counted."""
    lowest: float
    """Lowest rate outside pauses."""


@dataclass(frozen=True)
class Replay:
    """All policies over one trace."""

    trace: Trace
    job: Job
    seed: int
    runs: tuple[PolicyRun, ...]
    mean_available: float
    """Mean share of workers alive: what a perfectly divisible job would deliver ("fault-scaled")."""

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "format": "holdfast-replay",
            "version": 1,
            "trace": self.trace.name,
            "seconds": self.trace.seconds,
            "workers": self.job.shape.num_workers,
            "stages": self.job.shape.stages,
            "pipelines": self.job.shape.pipelines,
            "microbatches": self.job.shape.microbatches,
            "seed": self.seed,
            "fault_scaled": self.mean_available,
            "policies": [
                {
                    "name": run.name,
                    "model": run.model,
                    "mean_throughput_ratio": run.mean,
                    "lowest_throughput_ratio": run.lowest,
                    "paused_s": run.paused_s,
                    "lost_s": run.lost_s,
                    "timeline": [[one.begin_s, one.end_s, one.rate] for one in run.stretches],
                }
                for run in self.runs
            ],
        }


def replay(
    trace: Trace,
    job: Job,
    costs: PolicyCosts | None = None,
    seed: int = 0,
    notice: Callable[[str], None] | None = None,
) -> Replay:
    """Play the trace. It only says how many workers there are; which ones die and return is drawn by `seed`."""
    if trace.num_workers > job.shape.num_workers:
        raise BrokenTrace(
            f"{trace.name} has up to {trace.num_workers} workers, the job {job.shape.num_workers}.",
            what_to_try=f"give stages and pipelines whose product is {trace.num_workers} or more.",
        )
    history = _who_is_dead(trace, job, seed)
    runs = []
    for kind in POLICIES:
        if notice is not None:
            notice(kind.name)
        runs.append(_run(kind(job, costs if costs is not None else PolicyCosts()), trace, history))
    ends = [seconds for seconds, _ in trace.samples[1:]]
    alive = sum((end - begin) * available for (begin, available), end in zip(trace.samples, ends, strict=False))
    return Replay(trace, job, seed, tuple(runs), alive / trace.seconds / job.shape.num_workers)


def _who_is_dead(trace: Trace, job: Job, seed: int) -> list[frozenset[Worker]]:
    chance = random.Random(seed)
    dead: set[Worker] = set()
    history = []
    for _, available in trace.samples:
        change = job.shape.num_workers - available - len(dead)
        if change > 0:
            dead |= set(chance.sample([w for w in job.shape.workers() if w not in dead], change))
        elif change < 0:
            dead -= set(chance.sample(sorted(dead), -change))
        history.append(frozenset(dead))
    return history


def _run(policy: Policy, trace: Trace, history: list[frozenset[Worker]]) -> PolicyRun:
    origin = trace.samples[0][0]
    stretches: list[Stretch] = []
    before: frozenset[Worker] = frozenset()
    rate, lowest, lost_s, lost_work, busy_until = 1.0, 1.0, 0.0, 0.0, origin
    for index, ((begin, _), dead) in enumerate(zip(trace.samples[:-1], history, strict=False)):
        end = trace.samples[index + 1][0]
        if dead != before:
            response = policy.respond(before, dead, begin - origin)
            # A job can't lose more than it did since the trace began, nor what an earlier change already took.
            lost = min(response.lost_s, max(0.0, begin - max(busy_until, origin)))
            lost_s, lost_work = lost_s + lost, lost_work + lost * rate
            rate, before = response.rate, dead
            lowest = min(lowest, rate)
            busy_until = max(busy_until, begin) + response.pause_s if index else begin
        pause_end = min(max(begin, busy_until), end)
        if pause_end > begin:
            stretches.append(Stretch(begin, pause_end, 0.0))
        if end > pause_end:
            stretches.append(Stretch(pause_end, end, rate))
    done = sum((one.end_s - one.begin_s) * one.rate for one in stretches) - lost_work
    paused = sum(one.end_s - one.begin_s for one in stretches if one.rate == 0)
    mean = max(0.0, done) / trace.seconds
    return PolicyRun(policy.name, policy.model, tuple(stretches), paused, lost_s, mean, lowest)
