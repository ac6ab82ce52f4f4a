"""What a fault does, in the victim; and what its parent does about it meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from rank_processes import Member, RankProcesses, udp_sockets

from chaos.cases import Case, Fault

EXIT_CODE = 3
STRUCK_STEP = 2
"""Steps before it are undisturbed."""
_IN_A_STEP = ("first-bucket", "middle-bucket", "last-bucket", "optimizer")
_LONGEST_WAIT_S = 60.0
_TICK_S = 0.005


@dataclass(frozen=True)
class Passed:
    """Where a rank was when it came to a moment."""

    frames: tuple[str, ...]
    """Names of the functions it was in, outermost first."""
    has_socket: bool


@dataclass(frozen=True)
class Struck:
    """What is known of a strike: told by the victim, and seen by its parent."""

    moment: str
    frames: tuple[str, ...]
    paused_s: float = 0.0
    ticks: int = 0
    """How often another thread of the victim ran while the GIL was held."""
    exit_code: int | None = None


def strike(fault: Fault) -> dict[str, Any]:
    """Does it to this process. Returns what a fault that ends has to tell, or does not return."""
    if fault.name == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.name == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
    elif fault.name == "segfault":
        ctypes.string_at(0)
    elif fault.name == "exit-at-once":
        os._exit(EXIT_CODE)
    elif fault.name == "exit":
        sys.exit(EXIT_CODE)
    elif fault.effect == "pauses":
        os.kill(os.getpid(), signal.SIGSTOP)  # the parent continues it
        return {}
    elif fault.effect == "holds the GIL":
        return {"ticks": ticks_while(lambda: hold_gil(fault.seconds))}
    raise AssertionError(f"{fault.name} did not happen")


def hold_gil(seconds: float) -> None:
    """Sleeps in C without letting go of the interpreter, as a careless extension does."""
    holding = ctypes.PyDLL(None)  # CDLL would release the GIL
    holding.usleep(ctypes.c_uint(int(seconds * 1e6)))


def ticks_while(blocking: Callable[[], None]) -> int:
    ticks, over = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not over.wait(_TICK_S):
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    while ticks < 3:  # it runs
        time.sleep(_TICK_S)
    before = ticks
    blocking()
    counted = ticks - before
    over.set()
    ticker.join()
    return counted


class Injector:
    """Strikes once, when the victim reaches the moment of its case. In every other rank it does nothing."""

    def __init__(self, member: Member, case: Case) -> None:
        self._member = member
        self._case = case
        self._armed = member.rank == case.victim
        self.has_struck = False
        self.step = 0
        self.passed: dict[str, Passed] = {}
        """The moments this rank has come to, in order."""

    @contextlib.contextmanager
    def holding_fire(self) -> Iterator[None]:
        armed, self._armed = self._armed, False
        yield
        self._armed = armed
        self.passed.clear()

    def reached(self, moment: str) -> None:
        if moment in _IN_A_STEP and self.step != STRUCK_STEP:
            return
        frames = tuple(frame.name for frame in traceback.extract_stack())
        self.passed.setdefault(moment, Passed(frames, has_socket=bool(udp_sockets())))
        if not self._armed or moment != self._case.moment:
            return
        self._armed = False
        self.has_struck = True
        # Where in the operation it hits, within what one takes on this host.
        time.sleep(random.Random(self._case.seed).uniform(0.0, 0.003))
        self._member.store.set("strike", json.dumps({"moment": moment, "frames": frames}))
        self._member.say("struck")
        told = strike(self._case.fault)
        self._member.store.set("strike/told", json.dumps(told))
        if self._case.fault.effect == "holds the GIL":
            self._member.say("over")


def attend(ranks: RankProcesses, case: Case) -> Struck:
    """Waits for the strike, sees that it is what it should be, and continues a victim that was stopped."""
    ranks.hear("struck", _LONGEST_WAIT_S)
    told = _told(ranks, "strike")
    victim = ranks.processes[case.victim]
    paused_s, exit_code = 0.0, None
    if case.fault.effect == "pauses":
        paused_s = _pause(victim.pid or 0, case.fault.seconds)
        ranks.say("over")
    elif case.fault.is_fatal:
        victim.join(_LONGEST_WAIT_S)
        exit_code = victim.exitcode
        ranks.say("over")
    else:
        ranks.hear("over", _LONGEST_WAIT_S)
    if not case.fault.is_fatal:
        told |= _told(ranks, "strike/told")
    return Struck(told["moment"], tuple(told["frames"]), paused_s, told.get("ticks", 0), exit_code)


def _told(ranks: RankProcesses, key: str) -> dict[str, Any]:
    ranks.store.wait([key], timedelta(seconds=_LONGEST_WAIT_S))
    told: dict[str, Any] = json.loads(ranks.store.get(key))
    return told


def _pause(pid: int, seconds: float) -> float:
    gives_up = time.monotonic() + _LONGEST_WAIT_S
    while state_of(pid) != "T":
        assert time.monotonic() < gives_up, "the victim did not stop"
        time.sleep(0.001)
    stopped_at = time.monotonic()
    time.sleep(seconds)
    assert state_of(pid) == "T", "somebody else continued the victim"
    os.kill(pid, signal.SIGCONT)
    return time.monotonic() - stopped_at


def state_of(pid: int) -> str:
    """As /proc tells it: R running, S sleeping, T stopped, Z ended."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
