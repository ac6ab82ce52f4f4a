"""The transpose all-reduce (OptiReduce 3.1): every rank is responsible for one shard, which rotates."""

from __future__ import annotations

import array
import logging
from dataclasses import dataclass
from typing import cast

from holdfast import _native
from holdfast.control.deadline import Bound, given_bound, measured_bound
from holdfast.errors import BucketMismatch, DeadlineExceeded, OperationError, PeerDead
from holdfast.link.link import Link, require_finite
from holdfast.outcome import Outcome, PeerOutcome, StageEnd

logger = logging.getLogger(__name__)

# The native side ends every operation by its deadline; this much later something is wrong with the thread itself.
_GRACE_S = 5.0
_AGREEMENT_LAYOUT = 0xA9EE


@dataclass(frozen=True)
class Memory:
    """A flat array of elements: where, how many, of what kind, and what keeps it alive."""

    address: int
    count: int
    format: _native.Format
    owner: object = None

    @property
    def num_bytes(self) -> int:
        return self.count * _native.element_bytes(self.format)


@dataclass(frozen=True)
class Pending:
    """An operation under way."""

    operation: int
    bucket: int | None
    memory: Memory
    exact: bool
    deadline_ms: float


class TransposeAllReduce:
    """Starts operations in the order of calls, which must be the same on all ranks, and bounds them.

    Without a given deadline the first operations run exactly; then the ranks exchange how long those took, and the
    bound for all later operations follows from the slowest.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.config = link.config
        self.bound: Bound | None = None
        self._warmup: dict[int, Pending] = {}  # started and not yet finished
        self._warmup_ms: list[float] = []
        self._num_warmup_started = 0
        self._finished: dict[int, Outcome] = {}  # waited for here before their caller did
        # The I/O thread writes into an operation's memory until it reports it, whatever becomes of those who wait.
        self._in_flight: dict[int, Memory] = {}
        self._abandoned: set[int] = set()
        self._next_operation = 0
        if self.config.deadline_ms is not None:
            self.adopt(given_bound(self.config.deadline_ms))

    def start(
        self,
        memory: Memory,
        *,
        layout: int = 0,
        bucket: int | None = None,
        exact: bool = False,
        average: bool = True,
    ) -> Pending:
        """Takes part in the next operation, in place; `finish` returns its outcome.

        The first call after the warm-up waits for the warm-up operations, each of which is bounded.
        """
        self.link.require_open()
        self._release_abandoned()
        warming_up = self.bound is None and not exact
        if warming_up and self._num_warmup_started == self.config.warmup_operations:
            self._measure_bound()
            warming_up = False
        pending = self._submit(memory, layout, bucket, exact or warming_up, average)
        if warming_up:
            self._num_warmup_started += 1
            self._warmup[pending.operation] = pending
        return pending

    def finish(self, pending: Pending) -> Outcome:
        """Waits for the end, which comes by the deadline."""
        if pending.operation in self._finished:
            return self._finished.pop(pending.operation)
        return self._finish(pending)

    def abandon(self, pending: Pending) -> None:
        """Nobody will wait for this one any more; its memory is kept until the I/O thread is done with it."""
        self._warmup.pop(pending.operation, None)
        self._abandoned.add(pending.operation)

    def _release_abandoned(self) -> None:
        for operation in list(self._abandoned):
            with self.link.errors_named():
                ended = self.link.engine.wait(operation, 0.0) is not None
            if ended:
                self._abandoned.discard(operation)
                self._in_flight.pop(operation, None)

    def barrier(self, deadline_ms: float) -> None:
        """Returns when every rank has called it, or raises an error that names those that did not."""
        if not require_finite(deadline_ms) > 0:
            raise ValueError(f"a deadline of {deadline_ms} ms has passed before it begins")
        self._exchange(0.0, deadline_ms)

    def _submit(
        self,
        memory: Memory,
        layout: int,
        bucket: int | None,
        exact: bool,
        average: bool,
        exact_deadline_ms: float | None = None,
    ) -> Pending:
        if exact or self.bound is None:
            deadline_ms = self.config.exact_deadline_ms if exact_deadline_ms is None else exact_deadline_ms
        else:
            deadline_ms = self.bound.deadline_ms
        with self.link.errors_named():
            operation = self.link.engine.all_reduce(
                data=memory.address,
                count=memory.count,
                format=memory.format,
                layout=layout,
                exact=exact,
                deadline_s=deadline_ms / 1e3,
                average=average,
            )
        self._next_operation = operation + 1
        self._in_flight[operation] = memory
        return Pending(operation, bucket, memory, exact, deadline_ms)

    def _finish(self, pending: Pending) -> Outcome:
        try:
            with self.link.errors_named():
                report = self.link.engine.wait(pending.operation, pending.deadline_ms / 1e3 + _GRACE_S)
        except BaseException:
            self.abandon(pending)
            raise
        warming_up = self._warmup.pop(pending.operation, None) is not None
        if report is None:
            self.abandon(pending)
            self.link.require_open()
            raise OperationError(
                "the I/O thread did not end an operation in time",
                bucket=pending.bucket,
                deadline_ms=pending.deadline_ms,
                what_to_try="report this: it should not happen",
            )
        del self._in_flight[pending.operation]
        _raise_for_status(report, pending)
        outcome = _outcome(report, pending, self.link.rank)
        if warming_up:
            self._warmup_ms.append(outcome.elapsed_ms)
        return outcome

    def _measure_bound(self) -> None:
        for pending in list(self._warmup.values()):
            self._finished[pending.operation] = self._finish(pending)
        by_rank = self._exchange(max(self._warmup_ms, default=self.config.exact_deadline_ms))
        self.adopt(measured_bound(by_rank, factor=self.config.deadline_factor, floor_ms=self.config.deadline_floor_ms))

    def _exchange(self, value: float, deadline_ms: float | None = None) -> list[float]:
        """Every rank's value, by rank: the sum of vectors in which each rank fills its own place."""
        values = array.array("d", bytes(8 * self.link.num_ranks))
        values[self.link.rank] = value
        memory = Memory(values.buffer_info()[0], len(values), _native.Format.f64, values)
        self._finish(self._submit(memory, _AGREEMENT_LAYOUT, None, True, False, deadline_ms))
        return list(values)

    def adopt(self, bound: Bound) -> None:
        self.bound = bound
        self.link.publish(
            from_operation=self._next_operation,
            stage_ms=bound.stage_ms,
            usual_stage_ms=bound.usual_stage_ms,
            early_wait_ratio=bound.early_wait_ratio(self.config.early_wait_ratio),
        )
        if self.link.num_ranks > 1:
            logger.info("[rank %d] an all-reduce ends within %s", self.link.rank, bound.reason)


_ERRORS: dict[_native.Status, tuple[type[OperationError], str, str]] = {
    _native.Status.mismatch: (
        BucketMismatch,
        "another rank called something else here: another shape, dtype or bucket order, or it has finished training",
        "the same model, bucket_cap_mb, dtype and number of steps on every rank (DistributedSampler, drop_last=True)",
    ),
    _native.Status.peer_dead: (PeerDead, "a peer fell silent or left", "look at that rank's log"),
    _native.Status.deadline_exceeded: (
        DeadlineExceeded,
        "an exact operation did not finish in time",
        "look at those ranks' logs, or raise exact_deadline_ms",
    ),
}


def _raise_for_status(report: _native.OperationReport, pending: Pending) -> None:
    if report.status == _native.Status.done:
        return
    error, message, what_to_try = _ERRORS[report.status]
    raise error(
        message,
        what_to_try=what_to_try,
        peers=sorted(set(report.culprits)),
        bucket=pending.bucket,
        elapsed_ms=report.elapsed_s * 1e3,
        deadline_ms=pending.deadline_ms,
    )


def _outcome(report: _native.OperationReport, pending: Pending, own_rank: int) -> Outcome:
    peers = tuple(
        PeerOutcome(
            rank=rank,
            contributed_ratio=_ratio(peer.contributed, peer.contribution_size),
            results_ratio=_ratio(peer.results, peer.result_size),
            last_arrival_ms=None if peer.last_arrival_s is None else peer.last_arrival_s * 1e3,
            alive=peer.alive,
        )
        for rank, peer in enumerate(report.peers)
        if rank != own_rank
    )
    return Outcome(
        operation=report.operation,
        bucket=pending.bucket,
        num_elements=pending.memory.count,
        num_bytes=pending.memory.num_bytes,
        exact=pending.exact,
        elapsed_ms=report.elapsed_s * 1e3,
        deadline_ms=pending.deadline_ms,
        delivered_ratio=_ratio(report.delivered, report.expected),
        contributions_end=cast(StageEnd, report.contributions_end.name),
        results_end=cast(StageEnd, report.results_end.name),
        contributions_ms=report.contributions_s * 1e3,
        results_ms=report.results_s * 1e3,
        missing=tuple(report.missing),
        peers=peers,
    )


def _ratio(part: int, whole: int) -> float:
    return 1.0 if whole == 0 else part / whole
