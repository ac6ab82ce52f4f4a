"""Does what a fault file says to a running job, when it says so, and undoes it afterwards."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.lab.conditions import Conditions, Episodes, Port
from holdfast.lab.fault import Fault
from holdfast.lab.launch import Workers
from holdfast.lab.worker import Worker

# Long enough for the signals to be cheap, short against a training step.
CPU_PERIOD_S = 0.03


@dataclass
class _Active:
    fault: Fault
    until_s: float | None
    name: str
    """Of what it does to the network, and of its hold on the process."""
    next_turn_s: float | None = None
    """When a slowed process is next stopped or continued."""
    holding: bool = False


class Injector:
    """Call `advance` often, with the seconds since the job began; `next_s` says when it has something to do."""

    def __init__(
        self, faults: Iterable[Fault], workers: Workers, on_fault: Callable[[Fault, bool], None] = lambda _f, _b: None
    ) -> None:
        """`on_fault(fault, begins)` hears of every begin and end."""
        self._waiting = list(faults)
        self._active: list[_Active] = []
        self._workers = workers
        self._on_fault = on_fault
        self._holds: dict[int, set[str]] = {}
        self._count = 0

    def advance(self, now_s: float) -> None:
        for fault in [fault for fault in self._waiting if self._is_due(fault, now_s)]:
            self._waiting.remove(fault)
            self._begin(fault, now_s)
        for active in list(self._active):
            if active.until_s is not None and active.until_s <= now_s:
                self._end(active)
            elif active.next_turn_s is not None and active.next_turn_s <= now_s:
                self._turn(active, now_s)

    def next_s(self) -> float | None:
        """The next moment known beforehand; steps come when they come."""
        moments = [fault.at_s for fault in self._waiting]
        for active in self._active:
            moments += [active.until_s, active.next_turn_s]
        return min((moment for moment in moments if moment is not None), default=None)

    def pause(self) -> None:
        """What is active stops hurting until `resume`; its time is the caller's to stop."""
        for active in self._active:
            self._workers.cloud.undo(active.name)
            if active.holding:
                self._release(active)

    def resume(self) -> None:
        """The network is as bad as before; a process that was held is held again when its next turn comes."""
        for active in self._active:
            change = _network_change(active.fault)
            if change is not None:
                self._workers.cloud.change(active.name, change)

    def _is_due(self, fault: Fault, now_s: float) -> bool:
        if fault.at_s is not None:
            return fault.at_s <= now_s
        assert fault.at_step is not None
        worker = self._worker(fault.host)
        return worker is not None and worker.position.get("step", -1) >= fault.at_step

    def _begin(self, fault: Fault, now_s: float) -> None:
        self._count += 1
        until_s = None if fault.for_s is None else now_s + fault.for_s
        active = _Active(fault, until_s, f"{fault.kind}-{self._count}")
        self._active.append(active)
        worker = self._worker(fault.host)
        if fault.kind == "slow_cpu":
            self._turn(active, now_s)
        elif fault.kind == "stop":
            self._hold(active)
        elif worker is not None and fault.kind == "kill":
            worker.signal(signal.SIGKILL)
        elif worker is not None and fault.kind == "slow_backward":
            worker.set_slowness(fault.ratio)
        elif (change := _network_change(fault)) is not None:
            self._workers.cloud.change(active.name, change)
        self._on_fault(fault, True)

    def _end(self, active: _Active) -> None:
        self._active.remove(active)
        self._release(active)
        self._workers.cloud.undo(active.name)
        worker = self._worker(active.fault.host)
        if worker is not None and active.fault.kind == "slow_backward":
            worker.set_slowness(1.0)
        self._on_fault(active.fault, False)

    def _turn(self, active: _Active, now_s: float) -> None:
        """The process runs for 1/ratio of every period and is stopped for the rest."""
        running_s = CPU_PERIOD_S / active.fault.ratio
        if active.holding:
            self._release(active)
            active.next_turn_s = now_s + running_s
        else:
            self._hold(active)
            active.next_turn_s = now_s + CPU_PERIOD_S - running_s

    def _hold(self, active: _Active) -> None:
        active.holding = True
        self._holds.setdefault(active.fault.host, set()).add(active.name)
        if (worker := self._worker(active.fault.host)) is not None:
            worker.signal(signal.SIGSTOP)

    def _release(self, active: _Active) -> None:
        """Goes on only if nothing else holds the process."""
        active.holding = False
        holds = self._holds.get(active.fault.host, set())
        if active.name in holds:
            holds.remove(active.name)
            if not holds and (worker := self._worker(active.fault.host)) is not None:
                worker.signal(signal.SIGCONT)

    def _worker(self, host: int) -> Worker | None:
        """The host's worker, unless it has ended."""
        return self._workers.workers[host] if host in self._workers.alive else None


def _network_change(fault: Fault) -> Callable[[Conditions], Conditions] | None:
    def slow(port: Port) -> Port:
        return dataclasses.replace(
            port,
            uplink_bits_per_s=port.uplink_bits_per_s / fault.ratio,
            downlink_bits_per_s=port.downlink_bits_per_s / fault.ratio,
        )

    changes: dict[str, Callable[[Port], Port]] = {
        "slow_nic": slow,
        "link_down": lambda port: dataclasses.replace(port, down=True),
        "freeze": lambda port: dataclasses.replace(port, frozen=True, freezes=Episodes()),
    }
    change = changes.get(fault.kind)
    return None if change is None else lambda conditions: conditions.with_port(fault.host, change)
