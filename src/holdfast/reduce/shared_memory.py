"""The all-reduce when all ranks are on one host: in shared memory, exact; over the network once that has failed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast import _native
from holdfast.control.adaptation import Adaptation
from holdfast.control.hadamard_switch import HadamardSwitch
from holdfast.control.hard_bound import HardBound
from holdfast.errors import OperationError
from holdfast.link.link import Link
from holdfast.outcome import Outcome, PeerOutcome
from holdfast.reduce.host_meeting import HostMeeting, MeetingPending
from holdfast.reduce.pending import Memory, Pending
from holdfast.reduce.transpose import Position, TransposeAllReduce

logger = logging.getLogger(__name__)


class SharedMemoryAllReduce:
    """Starts operations in the order of calls, which must be the same on all ranks. Each is complete or an error.

    A late rank is waited for, as DDP does, until `exact_deadline_ms`; a dead one until its silence has lasted too long.
    Then the operation fails on all ranks alike, with an error that names the rank, and all later ones, also those that
    were started meanwhile, go over the network.
    """

    def __init__(self, link: Link, native: _native.HostMeeting) -> None:
        self.link = link
        self._meeting = HostMeeting(link, native, range(link.num_ranks))
        self._network = TransposeAllReduce(link)
        self._failed = False
        self._moved: dict[int, Pending] = {}  # to the network, by their number here
        self._ended: dict[int, Outcome | OperationError] = {}  # seen here before their caller asked
        self._waiting_to_move: list[MeetingPending] = []
        self._abandoned: set[int] = set()

    @property
    def adaptation(self) -> Adaptation | None:
        return self._network.adaptation

    def adopt(self, bound: HardBound) -> None:
        """For the network, should it be needed."""
        self._network.adopt(bound)

    def start(
        self,
        memory: Memory,
        *,
        layout: int = 0,
        bucket: int | None = None,
        exact: bool = False,
        average: bool = True,
        beside_bytes: int = 0,
    ) -> Pending:
        """Takes part in the next operation, in place; `finish` returns its outcome."""
        return self.start_numbered(
            lambda _: memory, layout=layout, bucket=bucket, exact=exact, average=average, beside_bytes=beside_bytes
        )

    def start_numbered(
        self,
        prepare: Callable[[int], Memory],
        *,
        layout: int = 0,
        bucket: int | None = None,
        exact: bool = False,
        average: bool = True,
        beside_bytes: int = 0,
    ) -> Pending:
        """As `start`, for memory whose content depends on the operation's number."""
        self.link.require_open()
        self._release_abandoned()
        if self._failed:
            return self._network.start_numbered(
                prepare, layout=layout, bucket=bucket, exact=exact, average=average, beside_bytes=beside_bytes
            )
        number = self._meeting.next_number
        pending = self._meeting.start_all_reduce(
            prepare(number),
            deadline_ms=self.link.config.exact_deadline_ms,
            layout=layout,
            bucket=bucket,
            average=average,
            asked_exact=exact,
        )
        if pending.operation != number:
            self.abandon(pending)
            raise OperationError(
                "two threads started operations on one link at once",
                bucket=bucket,
                what_to_try="start all operations of a job from one thread",
            )
        return pending

    def finish(self, pending: Pending) -> Outcome:
        """Waits for the end, which comes by the deadline."""
        if not isinstance(pending, MeetingPending):
            return self._network.finish(pending)
        if pending.operation not in self._moved and pending.operation not in self._ended:
            try:
                self._see(pending, self._meeting.wait(pending))
            except BaseException:
                self.abandon(pending)
                raise
        if pending.operation in self._moved:
            return self._network.finish(self._moved.pop(pending.operation))
        ended = self._ended.pop(pending.operation)
        if isinstance(ended, OperationError):
            raise ended
        return ended

    def _see(self, pending: MeetingPending, report: _native.MeetingReport) -> None:
        """Every report comes here, in whatever order callers ask."""
        error = self._meeting.error_of(report, pending)
        if error is None:
            self._ended[pending.operation] = self._outcome_of(report, pending)
            return
        if report.concerned:
            self._ended[pending.operation] = error
        else:
            self._waiting_to_move.append(pending)
        if not self._failed:
            self._failed = True
            self._move_to_network(error)

    def _move_to_network(self, error: OperationError) -> None:
        """All ranks fail in the same operation, so all of them start those after it, in the same order, over there."""
        logger.warning("[rank %d] no shared memory any more, over the network from here on: %s", self.link.rank, error)
        for pending in self._meeting.in_flight:
            self._see(pending, self._meeting.wait(pending))
        for pending in sorted(self._waiting_to_move, key=lambda each: each.operation):
            moved = self._network.start(
                pending.memory,
                layout=pending.layout,
                bucket=pending.bucket,
                exact=pending.asked_exact,
                average=pending.average,
            )
            self._moved[pending.operation] = moved
        self._waiting_to_move.clear()
        self._forget_abandoned()

    def abandon(self, pending: Pending) -> None:
        """Nobody will wait for this one any more; its memory is kept until the threads are done with it."""
        if not isinstance(pending, MeetingPending):
            self._network.abandon(pending)
            return
        self._abandoned.add(pending.operation)
        self._forget_abandoned()

    def _release_abandoned(self) -> None:
        for pending in self._meeting.in_flight:
            if pending.operation in self._abandoned and (report := self._meeting.poll(pending)) is not None:
                self._see(pending, report)
        self._forget_abandoned()

    def _forget_abandoned(self) -> None:
        for number in list(self._abandoned):
            if (moved := self._moved.pop(number, None)) is not None:
                self._network.abandon(moved)
            elif self._ended.pop(number, None) is None:
                continue  # still under way
            self._abandoned.discard(number)

    # -- of the network, should it be needed: what happens in shared memory happens on all ranks or on none ---------------

    @property
    def position(self) -> Position:
        return self._network.position

    def resume(self, next_operation: int, num_calls: int) -> int:
        return self._network.resume(next_operation, num_calls)

    @property
    def hadamard_switch(self) -> HadamardSwitch | None:
        return self._network.hadamard_switch

    def encodes(self, operation: int) -> bool:
        return self._failed and self._network.encodes(operation)

    def explain(self) -> list[str]:
        """Which numbers are in force, and what made them so."""
        if self._failed:
            return self._network.explain()
        return [
            "bound: all ranks are on this host and meet in shared memory, where nothing is lost; an operation waits for "
            f"the slowest rank, at most {self.link.config.exact_deadline_ms:g} ms (exact_deadline_ms)",
            "incast: nobody sends to anybody",
        ]

    def _outcome_of(self, report: _native.MeetingReport, pending: MeetingPending) -> Outcome:
        memory, own = pending.memory, report.members[self.link.rank]
        opened_s = min(member.called_s for member in report.members)
        contributed_s = max(member.contributed_s for member in report.members)
        peers = []
        for rank, member in enumerate(report.members):
            begin, end = self._meeting.shard(memory.count, rank)
            if rank != self.link.rank:
                peers.append(
                    PeerOutcome(
                        rank=rank,
                        contributed_ratio=1.0,
                        results_ratio=1.0,
                        contribution_arrived_ms=_span_ms(opened_s, member.called_s, member.contributed_s),
                        results_arrived_ms=_span_ms(opened_s, member.began_reducing_s, member.reduced_s),
                        shard_elements=end - begin,
                        alive=True,
                    )
                )
        return Outcome(
            rank=self.link.rank,
            operation=pending.operation,
            bucket=pending.bucket,
            num_elements=memory.count,
            num_bytes=memory.num_bytes,
            exact=True,
            called_ms=(own.called_s - opened_s) * 1e3,
            elapsed_ms=(report.ended_s - own.called_s) * 1e3,
            deadline_ms=pending.deadline_ms,
            delivered_ratio=1.0,
            contributions_end="complete",
            results_end="complete",
            contributions_ms=(contributed_s - opened_s) * 1e3,
            results_ms=(report.ended_s - contributed_s) * 1e3,
            early_wait_ms=None,
            missing=(),
            peers=tuple(peers),
            contributors=self.link.num_ranks,
        )


def _span_ms(opened_s: float, first_s: float, last_s: float) -> tuple[float, float]:
    return (first_s - opened_s) * 1e3, (last_s - opened_s) * 1e3
