"""A job in the lab from start to end: workers, faults and a schedule on one clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from holdfast.lab.cloud import Cloud
from holdfast.lab.fault import Fault
from holdfast.lab.injector import Injector
from holdfast.lab.launch import Workers
from holdfast.lab.priority import ahead_of_ranks
from holdfast.lab.schedule import Phase, Schedule
from holdfast.lab.worker import Ending

_TICK_S = 0.2


class Conductor:
    """Lets the network follow a schedule: by what the ranks announce, or by the clock."""

    def __init__(
        self,
        schedule: Schedule,
        cloud: Cloud,
        *,
        unit_s: float | None = None,
        on_phase: Callable[[Phase], None] = lambda _phase: None,
    ) -> None:
        """`unit_s`: an epoch or step lasts so long by the clock, for commands that announce nothing."""
        self._schedule, self._cloud, self._on_phase = schedule, cloud, on_phase
        self._unit_s = 1.0 if schedule.clock == "second" else unit_s
        # Epochs are counted from one, seconds from none.
        self._first = 0.0 if schedule.clock == "second" else min(1.0, schedule.phases[0].at)
        self._of_the_run = cloud.profile
        self._phase: Phase | None = None

    def advance(self, now_s: float, workers: Workers) -> None:
        phase = self._schedule.phase(self._position(now_s, workers))
        if phase is not None and phase != self._phase:
            self._phase = phase
            cloud = self._cloud
            cloud.set_conditions(phase.conditions(self._of_the_run, len(cloud.hosts), cloud.bits_per_s, cloud.seed))
            self._on_phase(phase)

    def _position(self, now_s: float, workers: Workers) -> float:
        if self._unit_s is not None:
            return self._first + now_s / self._unit_s
        announced = workers.position(self._schedule.clock)
        return self._first if announced is None else float(announced)


def run_job(
    workers: Workers,
    *,
    faults: Sequence[Fault] = (),
    on_fault: Callable[[Fault, bool], None] = lambda _fault, _begins: None,
    conductor: Conductor | None = None,
    limit_s: float | None = None,
) -> list[Ending]:
    """Until every rank has ended, or the limit has passed; how they ended, in that order."""
    injector = Injector(faults, workers, on_fault)
    began = time.monotonic()
    with ahead_of_ranks():
        while workers.alive:
            now_s = time.monotonic() - began
            if limit_s is not None and now_s >= limit_s:
                break
            injector.advance(now_s)
            if conductor is not None:
                conductor.advance(now_s, workers)
            next_s = injector.next_s()
            workers.pump(_TICK_S if next_s is None else min(_TICK_S, max(0.0, next_s - now_s)))
    return list(workers.endings.values())
