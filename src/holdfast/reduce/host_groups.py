"""How operations go where several hosts have several ranks each: in memory within a host, over the network between hosts.

A bucket is divided into one shard per rank of a host. (1) Each rank sums its shard over its host, in shared memory;
(2) all-reduces that with its counterparts, who have the same place on the other hosts, over the network; (3) hands it
to the ranks of its host, with what is missing of it, so that all of them know and none applies anything else.

The memory is waited for as it is where all ranks share one host; the network is bounded. When it fails (a rank died, was
later than `exact_deadline_ms`, or is somewhere else in the order of operations), it fails for all ranks of the host in
the same operation. Of that one and of those whose sum was made and not handed round they have nothing; those after it,
also those already started, whose memory is untouched, go over the network among all ranks. The other hosts do the same
as soon as they hear of it. Between the two moments ranks are of two minds; see docs/decisions/0025 for why no two of
them apply different things unknowingly.

Numbers are given when operations start, so that they mean the same on all ranks whenever each comes to its second step.
Steps are taken by whoever starts or waits for an operation: there is no thread here.
"""

from __future__ import annotations

import array
import ctypes
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast import _native
from holdfast.link.link import Link
from holdfast.reduce.host_meeting import HostMeeting, MeetingPending
from holdfast.reduce.pending import Memory

logger = logging.getLogger(__name__)

_CHANNEL = 0x62
_LEAST_S = 0.001
# How often whoever waits looks whether everybody is still alive, and for the steps of later operations.
_LOOK_S = 0.1
_TURN_S = 0.001


class Way(Protocol):
    """What an all-reduce needs to be carried out: the engine itself, or hosts that meet."""

    @property
    def next_operation(self) -> int: ...

    def skip_to(self, operation: int) -> int: ...

    def all_reduce(
        self,
        *,
        data: int,
        count: int,
        format: _native.Format,
        layout: int,
        exact: bool,
        deadline_s: float,
        average: bool,
        early_wait_s: tuple[float, float] = ...,
        samples_us: tuple[int, int] = ...,
        repair_grace_s: float = ...,
        contributions_within_s: float = ...,
        limit_s: tuple[float, float, float] = ...,
        narrow_behind_ratio: float = ...,
    ) -> int: ...

    def has_ended(self, operation: int) -> bool: ...

    def wait(self, operation: int, timeout_s: float) -> _native.OperationReport | None: ...


@dataclass(frozen=True)
class _Said:
    """Of one rank's shard, told to the ranks of its host with the shard itself."""

    status: _native.Status
    culprit: int | None
    delivered: int
    not_received: int
    ownerless: int
    contributors: int
    num_missing: int

    @classmethod
    def of(cls, report: _native.OperationReport) -> _Said:
        culprit = report.culprits[0] if report.culprits else None
        counts = report.delivered, report.not_received, report.ownerless, report.contributors
        return cls(report.status, culprit, *counts, len(report.missing))

    def words(self) -> list[int]:
        culprit = 0 if self.culprit is None else self.culprit + 1
        counts = [self.delivered, self.not_received, self.ownerless, self.contributors, self.num_missing]
        return [self.status.value, culprit, *counts, 0]

    @classmethod
    def read(cls, words: Sequence[int]) -> _Said:
        status, culprit, *counts, _ = words
        return cls(_native.Status(status), culprit - 1 if culprit else None, *counts)


@dataclass
class _Operation:
    """Where an operation is on its way. It is at one of the fields that are not None, the last of them."""

    number: int
    memory: Memory
    shard: Memory
    call: dict[str, Any]
    """What the network is to be told, whichever part of the memory it gets."""
    called_s: float
    summing: MeetingPending | None
    of_shard: _native.OperationReport | None = None
    spreading: MeetingPending | None = None
    said: list[_Said] = field(default_factory=list)
    telling: MeetingPending | None = None
    told: array.array[int] | None = None
    """By place: the ranges that are missing of each shard, as many for each as the one with most of them has."""
    ended: _native.OperationReport | None = None
    among_all: bool = False
    """The network has it, among all ranks."""

    @property
    def is_here(self) -> bool:
        return self.ended is None and not self.among_all


class HostGroups:
    """The ranks of this host and their counterparts on the others. All ranks start the same operations in one order."""

    def __init__(self, link: Link, sums: _native.HostMeeting, spreads: _native.HostMeeting) -> None:
        self.link = link
        self.left = False
        """Operations that start now go over the network among all ranks."""
        ranks = link.agreement.host_ranks
        self._place = ranks.index(link.rank)
        self._sums = HostMeeting(link, sums, ranks)
        self._spreads = HostMeeting(link, spreads, ranks)
        self._operations: dict[int, _Operation] = {}  # ascending
        self._tickets: list[int] = []
        self._looked_s = time.monotonic()

    @property
    def next_operation(self) -> int:
        return self.link.engine.next_operation

    def skip_to(self, operation: int) -> int:
        """What the other ranks of this host do differently then, the memory finds out, and fails."""
        return self.link.engine.skip_to(operation)

    @property
    def more_bytes_among_all(self) -> float:
        """How many times as much a rank sends when the memory has failed."""
        num_ranks, on_host = self.link.num_ranks, len(self._sums.ranks)
        num_hosts = num_ranks / on_host
        return on_host * (num_ranks - 1) / num_ranks * num_hosts / (num_hosts - 1)

    def all_reduce(
        self,
        *,
        data: int,
        count: int,
        format: _native.Format,
        layout: int,
        exact: bool,
        deadline_s: float,
        average: bool,
        **timing: Any,
    ) -> int:
        self._advance()
        call = {"format": format, "layout": layout, "exact": exact, "average": average, **timing}
        engine = self.link.engine
        if self.left:
            return engine.all_reduce(data=data, count=count, deadline_s=deadline_s, **call)
        memory = Memory(data, count, format)
        begin, end = self._sums.shard(count, self.link.rank)
        shard = Memory(data + begin * _native.element_bytes(format), end - begin, format)
        number = engine.reserve()
        limit_ms = self.link.config.exact_deadline_ms
        summing = self._sums.start_sum_of_shards(
            memory,
            # Some of it is for the network.
            deadline_ms=max(limit_ms / 2, limit_ms - deadline_s * 1e3),
            layout=layout,
            average=average,
            subject=number,
        )
        call["deadline_s"] = deadline_s
        self._operations[number] = _Operation(number, memory, shard, call, time.monotonic(), summing)
        return number

    def has_ended(self, operation: int) -> bool:
        here = self._operations.get(operation)
        return self.link.engine.has_ended(operation) if here is None or here.among_all else here.ended is not None

    def wait(self, operation: int, timeout_s: float) -> _native.OperationReport | None:
        until_s = time.monotonic() + timeout_s
        here = self._operations.get(operation)
        self._advance()
        while here is not None and here.is_here:
            if (left_s := until_s - time.monotonic()) <= 0:
                return None
            self._rest(left_s)
        if here is None or here.among_all:
            report = self.link.engine.wait(operation, max(0.0, until_s - time.monotonic()))
        else:
            report = here.ended
        if report is not None:
            self._operations.pop(operation, None)
        return report

    def explain(self) -> str:
        on_host = len(self._sums.ranks)
        num_hosts = self.link.num_ranks // on_host
        if self.left:
            return "all ranks sum as one: shared memory has failed"
        return (
            f"{num_hosts} hosts of {on_host} ranks: summed in shared memory within a host, which waits for its slowest "
            f"rank, at most {self.link.config.exact_deadline_ms:g} ms (exact_deadline_ms), and over the network between "
            "the hosts, each rank for its part, within the bound"
        )

    # -- steps ----------------------------------------------------------------------------------------------------------

    def _rest(self, patience_s: float) -> None:
        """Waits for the oldest operation, and takes the steps that are due."""
        num_here = sum(operation.is_here for operation in self._operations.values())
        self._advance(min(patience_s, _TURN_S if num_here > 1 else _LOOK_S))
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self._looked_s = time.monotonic()
            self._give_up_without(self.link.gone_peers())

    def _advance(self, patience_s: float = 0.0) -> None:
        self._hear_who_left()
        is_first = True  # of those that are not handed round: one after the other, the same on all ranks of the host
        for operation in list(self._operations.values()):
            while operation.is_here and self._step(operation, patience_s, is_first):
                patience_s = 0.0
            if operation.is_here:
                patience_s, is_first = 0.0, False

    def _step(self, operation: _Operation, patience_s: float, may_spread: bool) -> bool:
        """False: what it waits for has not come."""
        if operation.summing is not None:
            if (summed := self._sums.poll(operation.summing, patience_s)) is None:
                return False
            operation.summing = None
            self._on_summed(operation, summed)
        elif operation.of_shard is None:
            operation.of_shard = self.link.engine.wait(operation.number, patience_s)
            if operation.of_shard is None:
                return False
            peers = enumerate(operation.of_shard.peers)
            self._give_up_without({rank for rank, peer in peers if rank != self.link.rank and not peer.alive})
        elif operation.spreading is None and not operation.said:
            if not may_spread:
                return False
            words = _Said.of(operation.of_shard).words()
            operation.spreading = self._start_spreading(operation, operation.memory, words)
        elif operation.spreading is not None:
            if (spread := self._spreads.poll(operation.spreading, patience_s)) is None:
                return False
            operation.spreading = None
            self._on_spread(operation, spread)
        elif operation.telling is not None:
            if (told := self._spreads.poll(operation.telling, patience_s)) is None:
                return False
            operation.telling = None
            self._on_told(operation, told)
        return True

    def _on_summed(self, operation: _Operation, summed: _native.MeetingReport) -> None:
        engine, memory, shard = self.link.engine, operation.memory, operation.shard
        call = {**operation.call, "deadline_s": min(operation.call["deadline_s"], self._left_s(operation))}
        if summed.status == _native.Status.done:
            if shard.count == 0:
                engine.release_number(operation.number)
                operation.of_shard = self._nothing_of(operation, 0, _native.Status.done, [])
                return
            engine.all_reduce(
                data=shard.address, count=shard.count, number=operation.number, between_groups=True, **call
            )
            return
        self._leave(operation, summed)
        if summed.concerned:
            engine.release_number(operation.number)
            self._lose_here(operation, summed.status, [self._sums.ranks[member] for member in summed.culprits])
            return
        engine.all_reduce(data=memory.address, count=memory.count, number=operation.number, **call)
        operation.among_all = True

    def _start_spreading(
        self, operation: _Operation, memory: Memory, words: Sequence[int] | None = None
    ) -> MeetingPending:
        return self._spreads.start_exchange_of_shards(
            memory,
            deadline_ms=self._left_s(operation) * 1e3,
            layout=operation.call["layout"],
            subject=operation.number,
            words=words,
        )

    def _on_spread(self, operation: _Operation, spread: _native.MeetingReport) -> None:
        if self._failed_spreading(operation, spread):
            return
        operation.said = said = [_Said.read(member.words) for member in spread.members]
        if failed := [of_rank for of_rank in said if of_rank.status != _native.Status.done]:
            culprits = [of_rank.culprit for of_rank in failed if of_rank.culprit is not None]
            self._lose(operation, failed[0].status, culprits)
        elif most := max(of_rank.num_missing for of_rank in said):
            self._start_telling(operation, most)
        else:
            self._end(operation, [])

    def _start_telling(self, operation: _Operation, most: int) -> None:
        assert operation.of_shard is not None
        operation.told = told = array.array("Q", bytes(8 * most * len(self._spreads.ranks)))
        at = most * self._place
        for number, (begin, end) in enumerate(operation.of_shard.missing):
            told[at + number] = begin << 32 | end
        # Eight bytes each, and nobody adds them up.
        memory = Memory(told.buffer_info()[0], len(told), _native.Format.f64, told)
        operation.telling = self._start_spreading(operation, memory)

    def _on_told(self, operation: _Operation, report: _native.MeetingReport) -> None:
        if self._failed_spreading(operation, report):
            return
        told, num_ranks = operation.told, len(self._spreads.ranks)
        assert told is not None
        missing = []
        for place, said in enumerate(operation.said):
            first, _ = _native.meeting_shard(operation.memory.count, place, num_ranks)
            at = place * (len(told) // num_ranks)
            for word in told[at : at + said.num_missing]:
                missing.append((first + (word >> 32), first + (word & 0xFFFFFFFF)))
        self._end(operation, missing)

    def _failed_spreading(self, operation: _Operation, report: _native.MeetingReport) -> bool:
        if report.status == _native.Status.done:
            return False
        # What is still to be summed could not be handed round.
        culprits = [self._spreads.ranks[member] for member in report.culprits]
        self._sums.give_up(report.status, culprits)
        self._lose_here(operation, report.status, culprits)
        return True

    def _end(self, operation: _Operation, missing: Sequence[tuple[int, int]]) -> None:
        assert operation.of_shard is not None
        said, count = operation.said, operation.memory.count
        operation.ended = operation.of_shard.spread(
            total=count,
            expected=count * self.link.num_ranks,
            delivered=sum(of_rank.delivered for of_rank in said),
            not_received=sum(of_rank.not_received for of_rank in said),
            ownerless=sum(of_rank.ownerless for of_rank in said),
            contributors=max(of_rank.contributors for of_rank in said),
            missing=sorted(missing),
            elapsed_s=time.monotonic() - operation.called_s,
        )

    # -- when it fails --------------------------------------------------------------------------------------------------

    def _lose_here(self, operation: _Operation, status: _native.Status, culprits: Sequence[int]) -> None:
        """The memory failed: an error if the operation is exact. If it is bounded, this host just has nothing of it."""
        self._lose(operation, status if operation.call["exact"] else _native.Status.done, culprits)

    def _lose(self, operation: _Operation, status: _native.Status, culprits: Sequence[int]) -> None:
        memory = operation.memory
        ctypes.memset(memory.address, 0, memory.num_bytes)
        operation.ended = self._nothing_of(operation, memory.count, status, culprits)

    def _nothing_of(
        self, operation: _Operation, count: int, status: _native.Status, culprits: Sequence[int]
    ) -> _native.OperationReport:
        return _native.OperationReport.lost(
            operation=operation.number,
            total=count,
            num_ranks=self.link.num_ranks,
            exact=operation.call["exact"],
            status=status,
            culprits=list(culprits),
            elapsed_s=time.monotonic() - operation.called_s,
        )

    def _left_s(self, operation: _Operation) -> float:
        """More than nothing, which the engine would take for its own choice."""
        return max(_LEAST_S, operation.called_s + self.link.config.exact_deadline_ms / 1e3 - time.monotonic())

    def _give_up_without(self, gone: set[int]) -> None:
        """Among all ranks a dead one costs what it owned; between hosts it would cost its counterparts as much."""
        if not gone:
            return
        here = sorted(gone & set(self._sums.ranks))
        self._sums.give_up(_native.Status.peer_dead, here)
        if here:
            self._spreads.give_up(_native.Status.peer_dead, here)

    def _leave(self, operation: _Operation, summed: _native.MeetingReport) -> None:
        if self.left:
            return
        self.left = True
        logger.warning(
            "[rank %d] no shared memory on this host any more, over the network among all ranks after operation %d (%s)",
            self.link.rank,
            operation.number,
            summed.status.name.replace("_", " "),
        )
        limit_s = self.link.config.exact_deadline_ms / 1e3
        elsewhere = set(range(self.link.num_ranks)) - set(self._sums.ranks) - self.link.gone_peers()
        self._tickets = [self.link.send_note(peer, _CHANNEL, b"left", limit_s) for peer in sorted(elsewhere)]

    def _hear_who_left(self) -> None:
        while self.link.engine.receive_note(_CHANNEL, 0.0) is not None:
            self._sums.give_up(_native.Status.peer_dead, [])
        # How a note ended does not matter, but it is kept until somebody asks.
        self._tickets = [ticket for ticket in self._tickets if not self.link.note_is_settled(ticket)]
