"""What one rank does in a case, and what it reports: how every call ended, whom it blamed, what it left behind."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from rank_processes import Member

from chaos.cases import Case
from chaos.footprint import Footprint
from chaos.shapes import Job, make, watch_operations, watched
from chaos.strikes import STRUCK_STEP, Injector, Passed
from holdfast.errors import HoldfastError
from holdfast.link.link import Link
from holdfast.outcome import Outcome

_STEPS_AFTER = 3
_LONGEST_WAIT_S = 30.0
# Detaching is a barrier, the exchange of state, a barrier; each waits this long for a rank that does not come.
_DETACH_S = 3 * 10.0


@dataclass(frozen=True)
class Call:
    """One call into Holdfast."""

    name: str
    seconds: float
    allowed_s: float
    error: str = ""
    peers: tuple[int, ...] = ()


@dataclass
class Report:
    calls: list[Call] = field(default_factory=list)
    late: set[int] = field(default_factory=set)
    """Ranks of which something was missing in an operation, from the step that was struck on."""
    dead: set[int] = field(default_factory=set)
    """Ranks that an outcome called dead."""
    late_at_last: set[int] = field(default_factory=set)
    """Those late in every operation of the last steps: on a loaded machine anybody may be late once."""
    heard_again: bool = False
    """Whether the victim was alive at the end of the steps."""
    warnings: list[str] = field(default_factory=list)
    moments: dict[str, Passed] = field(default_factory=dict)
    digest: str = ""
    left: list[str] = field(default_factory=list)
    grown_kib: int = 0

    @property
    def errors(self) -> list[Call]:
        return [call for call in self.calls if call.error]


def take_part(member: Member, case: Case) -> Report:
    job = make(member, case)
    injector = Injector(member, case)
    with watched(job, injector):
        with injector.holding_fire():
            _undisturbed_round(job, case.limits.join_timeout_s)  # whatever is made once and kept is made here
        member.barrier()
        before = Footprint.here()
        report = _RankInACase(member, case, job, injector).run()
        after = Footprint.here()
    report.moments = injector.passed
    report.left = after.left_since(before)
    report.grown_kib = after.grown_kib_since(before)
    return report


def _undisturbed_round(job: Job, join_timeout_s: float) -> None:
    job.open(join_timeout_s)
    for step in range(3):  # DDP rebuilds its buckets, over the default group, in the second
        job.step(step)
    job.hand_over()
    job.close()


class _RankInACase:
    def __init__(self, member: Member, case: Case, job: Job, injector: Injector) -> None:
        self._report = Report()
        self._member = member
        self._case = case
        self._job = job
        self._injector = injector
        self._is_victim = member.rank == case.victim
        # Whoever was taken for dead, or is, does not wait for the others, nor they for it.
        parted = case.fault.is_fatal or (case.falls_silent and not case.is_joining)
        self._together = case.survivors if parted else list(range(case.ranks))
        # Bounded operations did not wait for it: it is steps behind, and nobody takes them again with it.
        self._victim_is_behind = parted and not case.fault.is_fatal and case.moment != "hand-over"
        self._late_lately: deque[set[int]] = deque(maxlen=_STEPS_AFTER)
        self._link: Link | None = None

    def run(self) -> Report:
        logger = logging.getLogger("holdfast")
        logger.addHandler(handler := _Remembering(self._report.warnings))
        try:
            self._run()
        finally:
            logger.removeHandler(handler)
        return self._report

    def _run(self) -> None:
        case, limits = self._case, self._case.limits
        if self._call("join", case.join_timeout_s, self._open):
            self._injector.reached("joined")
            self._take_steps()
            self._meet("stepped")
            if self._victim_is_behind:
                self._part()
            elif not self._report.errors:
                self._call("hand over", (limits.exact_deadline_ms + limits.deadline_ms) / 1e3, self._job.hand_over)
                self._report.digest = _digest(self._job.state())
        self._meet("handed over")
        self._call("close", _DETACH_S if case.shape == "ddp" else 1.0, self._job.close)
        self._link = None

    def _open(self) -> None:
        self._injector.reached("before-connect")
        self._link, reducer = self._job.open(self._case.join_timeout_s)
        watch_operations(self._job, self._link, reducer, self._injector)

    def _call(self, name: str, allowed_s: float, function: Callable[[], None]) -> bool:
        """Whether it ended without an error of Holdfast's. Any other error is one of the test."""
        if self._is_victim:
            allowed_s += self._case.fault.seconds
        error, peers = "", ()
        started = time.monotonic()
        try:
            function()
        except HoldfastError as caught:
            error, peers = type(caught).__name__, caught.peers
        self._report.calls.append(Call(name, time.monotonic() - started, allowed_s, error, peers))
        return not error

    # -- steps ----------------------------------------------------------------------------------------------------

    def _take_steps(self) -> None:
        # Exact operations keep all in step; beside bounded ones somebody has to name the last one.
        last = STRUCK_STEP + _STEPS_AFTER if self._case.shape == "exact" else None
        gives_up = time.monotonic() + _LONGEST_WAIT_S
        while last is None or self._injector.step <= last:
            assert time.monotonic() < gives_up, "the fault was not noticed"
            was_behind = self._victim_is_behind and self._injector.has_struck
            if not self._call("step", self._step_allowed_s(), self._step) or was_behind:
                return
            if last is None:
                last = self._agreed_last_step()
            self._injector.step += 1

    def _step_allowed_s(self) -> float:
        limits = self._case.limits
        # DDP's step also waits for the buffers of the step before.
        by_shape = {"bounded": limits.deadline_ms, "exact": limits.exact_deadline_ms, "ddp": 2 * limits.deadline_ms}
        return by_shape[self._case.shape] / 1e3

    def _step(self) -> None:
        step = self._injector.step
        outcomes = self._job.step(step)
        if outcomes and (step >= STRUCK_STEP or self._case.moment == "joined"):
            self._note(outcomes)

    def _note(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self._report.late |= set(outcome.late_peers)
            self._report.dead |= {peer.rank for peer in outcome.peers if not peer.alive}
        self._late_lately.append(set.intersection(*(set(outcome.late_peers) for outcome in outcomes)))
        self._report.late_at_last = set.intersection(*self._late_lately)

    def _agreed_last_step(self) -> int | None:
        store = self._member.store
        if self._member.rank == self._case.survivors[0] and self._fault_is_over():
            store.set("last step", str(self._injector.step + _STEPS_AFTER))
        return int(store.get("last step")) if store.check(["last step"]) else None

    def _fault_is_over(self) -> bool:
        if self._case.moment == "hand-over":
            return True  # it comes after the steps
        if not self._member.store.check(["said/over"]) or self._injector.step < STRUCK_STEP:
            return False
        if self._case.fault.is_fatal or self._victim_is_behind:
            return self._case.victim in self._report.dead and (self._case.fault.is_fatal or self._hears_victim())
        return True

    # -- parting --------------------------------------------------------------------------------------------------

    def _part(self) -> None:
        """One that was taken for dead is heard again, and leaves."""
        if self._is_victim:
            for survivor in self._case.survivors:
                self._member.hear(f"hears it again/{survivor}", _LONGEST_WAIT_S)
            self._job.leave()
            self._member.say("left")
            return
        self._member.hear("over", _LONGEST_WAIT_S)
        gives_up = time.monotonic() + _LONGEST_WAIT_S / 3
        while not self._hears_victim() and time.monotonic() < gives_up:
            time.sleep(0.01)
        self._report.heard_again = self._hears_victim()
        self._member.say(f"hears it again/{self._member.rank}")
        if self._case.shape == "ddp":  # whose closing is a barrier with all that are there
            self._member.hear("left", _LONGEST_WAIT_S)

    def _hears_victim(self) -> bool:
        assert self._link is not None
        return any(
            peer.rank == self._case.victim and peer.state.name == "alive" for peer in self._link.snapshot().peers
        )

    def _meet(self, where: str) -> None:
        """Whoever goes first says goodbye, which would be taken for the fault."""
        if self._member.rank not in self._together:
            return
        self._member.say(f"{where}/{self._member.rank}")
        for rank in self._together:
            self._member.hear(f"{where}/{rank}", _LONGEST_WAIT_S)


class _Remembering(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())


def _digest(tensors: list[torch.Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
