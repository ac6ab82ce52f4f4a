"""Faults and a schedule on one peer's own clock.

Between its turns the clock stands still, its processes run freely and its faults are undone: no peer suffers from what
was meant for another, and no evaluation either. What a schedule made of the network stays until another peer's turn
finds it in another phase: peers that wait keep measuring their paths, and must not see delays come and go with the
turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.lab.fault import Fault
from holdfast.lab.injector import Injector
from holdfast.lab.launch import Workers
from holdfast.lab.run import Conductor
from holdfast.lab.schedule import Phase, Schedule


class Trouble:
    """`now_s` is always the peer's own time."""

    def __init__(
        self, workers: Workers, faults: Sequence[Fault], schedule: Schedule | None, on_event: Callable[[str], None]
    ) -> None:
        self._workers = workers
        self._on_event = on_event
        self._injector = Injector(faults, workers, self._on_fault)
        self._schedule = schedule
        self._conductor: Conductor | None = None
        self._phase: Phase | None = None

    def enter_network(self, now_s: float) -> None:
        """Before the ranks connect, and again before each turn: the network is as the schedule has it at this time."""
        if self._schedule is not None:
            # A new one knows no phase yet, and so sets the one that this peer is in.
            self._conductor = Conductor(self._schedule, self._workers.cloud, on_phase=self._on_phase)
            self._conductor.advance(now_s, self._workers)

    def begin_turn(self, now_s: float) -> None:
        self.enter_network(now_s)
        self._injector.resume()

    def advance(self, now_s: float) -> float | None:
        """Does what is due; says when it next has something to do, if that is known."""
        self._injector.advance(now_s)
        if self._conductor is not None:
            self._conductor.advance(now_s, self._workers)
        return self._injector.next_s()

    def end_turn(self) -> None:
        self._injector.pause()

    def _on_fault(self, fault: Fault, begins: bool) -> None:
        self._on_event(str(fault) if begins else f"over: {fault}")

    def _on_phase(self, phase: Phase) -> None:
        if phase != self._phase:
            self._phase = phase
            assert self._schedule is not None
            self._on_event(f"{self._schedule.name} from {self._schedule.clock} {phase.at:g}")
