"""Operations among the ranks of one host, in shared memory: begun, waited for, and ended by a deadline.

An all-reduce, or either half of one, for those who do something else in between (several hosts: each rank sums its
shard over its host, averages it with its counterparts on the other hosts, and hands it round).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast import _native
from holdfast.errors import OperationError
from holdfast.link.link import Link, require_finite
from holdfast.reduce.pending import Memory, Pending
from holdfast.reduce.report import error_named

# How often whoever waits looks whether everybody is still alive.
_LOOK_S = 0.1
# The native side ends every operation by its deadline; this much later something is wrong with the thread itself.
_GRACE_S = 5.0


@dataclass(frozen=True)
class MeetingPending(Pending):
    """An operation under way in shared memory, and what the network would have to be told of it."""

    layout: int = 0
    average: bool = True
    asked_exact: bool = True
    called_s: float = 0.0
    """By the monotonic clock."""


class HostMeeting:
    """The ranks that share a host, in ascending order, each of which sums one contiguous shard.

    What is done is done on all of them and what failed has failed on all of them, whatever each was doing. After a
    failure nothing can be done here any more: later operations fail without being begun, with their memory as it was.
    """

    def __init__(self, link: Link, native: _native.HostMeeting, ranks: Sequence[int]) -> None:
        self.link = link
        self.ranks = tuple(ranks)
        self._native = native
        # The meeting's thread writes into an operation's memory until it reports it, whatever becomes of those who wait.
        self._in_flight: dict[int, MeetingPending] = {}

    @property
    def next_number(self) -> int:
        with self.link.errors_named():
            return self._native.next_number

    @property
    def in_flight(self) -> list[MeetingPending]:
        """Begun and not yet reported, oldest first."""
        return list(self._in_flight.values())

    def shard(self, count: int, rank: int) -> tuple[int, int]:
        """(begin, end) of the elements that a rank sums."""
        return _native.meeting_shard(count, self.ranks.index(rank), len(self.ranks))

    def start_all_reduce(
        self,
        memory: Memory,
        *,
        deadline_ms: float,
        layout: int = 0,
        bucket: int | None = None,
        average: bool = True,
        asked_exact: bool = True,
    ) -> MeetingPending:
        """Everybody's sum or average, in place."""
        return self._start(_native.MeetingKind.all_reduce, memory, deadline_ms, layout, bucket, average, asked_exact)

    def start_sum_of_shards(
        self, memory: Memory, *, deadline_ms: float, layout: int = 0, average: bool = False, subject: int = 0
    ) -> MeetingPending:
        """The first half: the sum or average of this rank's shard, in place. What is around it stays as it was.

        `subject`, whatever the sum is a part of, must be the same on all ranks.
        """
        kind = _native.MeetingKind.reduce_scatter
        return self._start(kind, memory, deadline_ms, layout, average=average, subject=subject)

    def start_exchange_of_shards(
        self,
        memory: Memory,
        *,
        deadline_ms: float,
        layout: int = 0,
        subject: int = 0,
        words: Sequence[int] | None = None,
    ) -> MeetingPending:
        """The second half: every rank's shard, each in its place, and eight words of each in the report."""
        return self._start(_native.MeetingKind.all_gather, memory, deadline_ms, layout, subject=subject, words=words)

    def _start(
        self,
        kind: _native.MeetingKind,
        memory: Memory,
        deadline_ms: float,
        layout: int,
        bucket: int | None = None,
        average: bool = False,
        asked_exact: bool = True,
        subject: int = 0,
        words: Sequence[int] | None = None,
    ) -> MeetingPending:
        called_s = time.monotonic()
        with self.link.errors_named():
            number = self._native.meet(
                kind=kind,
                data=memory.address,
                count=memory.count,
                format=memory.format,
                layout=layout,
                scale=1 / len(self.ranks) if average else 1.0,
                deadline_s=require_finite(deadline_ms) / 1e3,
                subject=subject,
                words=[0] * _native.NUM_MEETING_WORDS if words is None else words,
            )
        pending = MeetingPending(
            operation=number,
            bucket=bucket,
            memory=memory,
            exact=True,
            deadline_ms=deadline_ms,
            key=(layout, memory.num_bytes),
            layout=layout,
            average=average,
            asked_exact=asked_exact,
            called_s=called_s,
        )
        self._in_flight[number] = pending
        return pending

    def finish(self, pending: MeetingPending) -> _native.MeetingReport:
        """Waits for the end, which comes by the deadline. What is not done is an error that names the ranks."""
        report = self.wait(pending)
        if (error := self.error_of(report, pending)) is not None:
            raise error
        return report

    def wait(self, pending: MeetingPending) -> _native.MeetingReport:
        """As `finish`, for those who look at the status themselves."""
        gives_up_at = pending.called_s + pending.deadline_ms / 1e3 + _GRACE_S
        while (report := self.poll(pending, _LOOK_S)) is None:
            self._blame_the_dead()
            if time.monotonic() > gives_up_at:
                self.link.require_open()
                raise OperationError(
                    "the thread of the meeting did not end an operation in time",
                    bucket=pending.bucket,
                    deadline_ms=pending.deadline_ms,
                    what_to_try="report this: it should not happen",
                )
        return report

    def error_of(self, report: _native.MeetingReport, pending: MeetingPending) -> OperationError | None:
        """None if it is done. What was not begun because an earlier one failed has that one's error."""
        if report.status == _native.Status.done:
            return None
        culprits = [self.ranks[member] for member in report.culprits]
        return error_named(report.status, culprits, (report.ended_s - pending.called_s) * 1e3, pending)

    def poll(self, pending: MeetingPending, patience_s: float = 0.0) -> _native.MeetingReport | None:
        with self.link.errors_named():
            report = self._native.wait(pending.operation, patience_s)
        if report is not None:
            del self._in_flight[pending.operation]
        return report

    def give_up(self, status: _native.Status, culprits: Sequence[int]) -> None:
        """The operation under way, or the next one, fails on all ranks, unless it is done already."""
        with self.link.errors_named():
            self._native.give_up(status, [self.ranks.index(rank) for rank in culprits])

    def _blame_the_dead(self) -> None:
        gone = self.link.gone_peers() & set(self.ranks)
        if gone:
            self.give_up(_native.Status.peer_dead, sorted(gone))
