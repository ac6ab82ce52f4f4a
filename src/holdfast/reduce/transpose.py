"""The transpose all-reduce (OptiReduce 3.1): every rank is responsible for one shard, which rotates."""

from __future__ import annotations

import array
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast import _native
from holdfast.control.adaptation import Adaptation, PacketsSeen, Timing
from holdfast.control.hadamard_switch import HadamardSwitch
from holdfast.control.hard_bound import HardBound
from holdfast.control.narrowing import behind_ratio
from holdfast.control.shards import Division
from holdfast.control.slow_ranks import SlowRanks
from holdfast.errors import OperationError
from holdfast.link.link import Link
from holdfast.outcome import Outcome
from holdfast.reduce.agreement import Agreement, Topic
from holdfast.reduce.host_groups import HostGroups, Way
from holdfast.reduce.pending import Memory, Pending
from holdfast.reduce.report import (
    contribution_rates,
    entries_dropped,
    heard_nobody,
    late_ratio,
    outcome_of,
    raise_for_status,
    stages_seen,
)
from holdfast.reduce.view_exchange import ViewExchange, by_rank
from holdfast.reduce.warm_up import WarmUpTimes, measured

logger = logging.getLogger(__name__)

# The native side ends every operation by its deadline; this much later something is wrong with the thread itself.
_GRACE_S = 5.0
_AGREEMENT_LAYOUT = 0xA9EE
# Published anew when it has moved by so much.
_DUTY_BOUND_STEP = 0.05


@dataclass(frozen=True)
class Position:
    next_operation: int
    num_calls: int
    """Of bounded operations, after which agreements are due."""


@dataclass(frozen=True)
class _Agreed:
    """What all ranks do alike."""

    division: Division
    encoded: bool = False


class TransposeAllReduce:
    """Starts operations in the order of calls, which must be the same on all ranks, and bounds them.

    Without a given deadline operations run exactly until the largest bucket has been reduced often enough; then the
    ranks exchange how long its stages took, and the bound of all later operations follows.

    Where the ranks of each host meet in shared memory, it is what goes between the `hosts` that is bounded.
    """

    def __init__(self, link: Link, hosts: HostGroups | None = None) -> None:
        self.link = link
        self._hosts = hosts
        self._way: Way = link.engine if hosts is None else hosts
        self._bounds_hosts = hosts is not None  # the bound was found between them
        self.config = link.config
        # Groups pass on what they are sent.
        self._narrow_behind_ratio = (
            behind_ratio(self.config, packs=link.pack_below_bytes_per_s > 0) if link.agreement.num_groups == 1 else 0.0
        )
        self._adaptation: Adaptation | None = None
        self._seen: list[tuple[Pending, _native.OperationReport]] = []  # ended, and nothing learnt of them yet
        self._warmup: dict[int, Pending] = {}  # started and not yet finished
        self._warmup_times = WarmUpTimes()
        self._num_warmup_started: Counter[int] = Counter()  # by bytes
        self._credit = 0
        self._duty_bound_ms = 0.0
        self.slow_ranks = SlowRanks(link.num_ranks) if link.divides_unevenly else None
        self.hadamard_switch = HadamardSwitch() if link.may_switch_hadamard else None
        topics: list[Topic] = [topic for topic in (self.slow_ranks, self.hadamard_switch) if topic is not None]
        self._agreement = Agreement(topics) if topics else None
        self._views = ViewExchange(link, self)
        # (From operation, what holds): what is in force, and perhaps what is to come.
        self._agreed = [(0, _Agreed(Division.even(link.num_ranks)))]
        self._finished: dict[int, Outcome] = {}  # waited for here before their caller did
        # The I/O thread writes into an operation's memory until it reports it, whatever becomes of those who wait.
        self._in_flight: dict[int, Memory] = {}
        self._abandoned: set[int] = set()
        if self.config.deadline_ms is not None:
            self.adopt(HardBound.given(self.config.deadline_ms))

    @property
    def adaptation(self) -> Adaptation | None:
        """With all that was learnt so far."""
        self._learn_seen()
        return self._adaptation

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
        """Takes part in the next operation, in place; `finish` returns its outcome.

        The first call after the warm-up waits for the warm-up operations, each of which is bounded. `beside_bytes`: the
        caller waits for others of so many bytes, too; this one may take as long as they, also if they take less.
        """
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
        """As `start`, for memory whose content depends on the operation's number.

        `prepare` is given the number when it is certain, right before the operation begins. What ranks sum has the same
        number on all of them, so whatever follows from it is the same too.
        """
        self.link.require_open()
        self._release_abandoned()
        warming_up = self._adaptation is None and not exact
        if warming_up and self._largest_is_measured():
            self._measure_bound()
            warming_up = False
        if not exact and self._adaptation is not None and self._agreement is not None:
            self._agree(self._agreement, self._adaptation)
        operation = self._next_operation()
        memory = prepare(operation)
        pending = self._submit(memory, layout, bucket, exact or warming_up, average, beside_bytes=beside_bytes)
        if pending.operation != operation:
            self.abandon(pending)
            raise OperationError(
                "two threads started operations on one link at once",
                bucket=bucket,
                what_to_try="start all operations of a job from one thread",
            )
        if warming_up:
            self._num_warmup_started[memory.num_bytes] += 1
            self._warmup[pending.operation] = pending
        return pending

    @property
    def position(self) -> Position:
        """Where in the order of operations the next call is; the same on all ranks at the same call."""
        return Position(self._next_operation(), 0 if self._agreement is None else self._agreement.num_calls)

    def resume(self, next_operation: int, num_calls: int) -> int:
        """Goes on from where another rank is: this one was away meanwhile. Returns the number of the next operation."""
        with self.link.errors_named():
            next_operation = self._way.skip_to(next_operation)
        if self._agreement is not None:
            self._agreement.resume(num_calls)
        return next_operation

    def _next_operation(self) -> int:
        with self.link.errors_named():
            return self._way.next_operation

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
                ended = self._way.wait(operation, 0.0) is not None
            if ended:
                self._abandoned.discard(operation)
                self._in_flight.pop(operation, None)

    def _submit(
        self,
        memory: Memory,
        layout: int,
        bucket: int | None,
        exact: bool,
        average: bool,
        way: Way | None = None,
        beside_bytes: int = 0,
    ) -> Pending:
        self._widen_without_hosts()
        key = (layout, memory.num_bytes)
        bytes_ahead = 0 if exact else max(beside_bytes, self._bytes_under_way())
        timing = None if exact or self._adaptation is None else self._adaptation.timing(key, bytes_ahead)
        deadline_ms = self.config.exact_deadline_ms if timing is None else 2 * timing.stage_ms
        with self.link.errors_named():
            operation = (way or self._way).all_reduce(
                data=memory.address,
                count=memory.count,
                format=memory.format,
                layout=layout,
                exact=exact,
                deadline_s=deadline_ms / 1e3,
                average=average,
                **({} if timing is None else _announced(timing)),
                narrow_behind_ratio=0.0 if exact else self._narrow_behind_ratio,
            )
        self._in_flight[operation] = memory
        early_wait_ms = None if timing is None else timing.early_wait_ms
        if self._hosts is not None and not self._hosts.left:
            deadline_ms = self.config.exact_deadline_ms  # the ranks of a host wait for each other
        announced_ms = (0.0, 0.0) if timing is None else timing.samples_ms
        return Pending(operation, bucket, memory, exact, deadline_ms, key, early_wait_ms, bytes_ahead, announced_ms)

    def _bytes_under_way(self) -> int:
        with self.link.errors_named():
            return sum(
                memory.num_bytes for operation, memory in self._in_flight.items() if not self._way.has_ended(operation)
            )

    def _finish(self, pending: Pending) -> Outcome:
        self._learn_seen()  # this operation is under way: nobody waits for it
        try:
            with self.link.errors_named():
                report = self._way.wait(pending.operation, pending.deadline_ms / 1e3 + _GRACE_S)
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
        raise_for_status(report, pending)
        outcome = outcome_of(report, pending, self.link.rank, with_counted=self.config.loss_feedback)
        if warming_up:
            self._warmup_times.add(outcome, report)
        elif not pending.exact:
            self._seen.append((pending, report))
        return outcome

    def _largest_is_measured(self) -> bool:
        """The same on every rank: it depends on the calls alone."""
        largest = self._largest_that_comes_again()
        return largest is not None and self._num_warmup_started[largest] >= self.config.warmup_operations

    def _largest_that_comes_again(self) -> int | None:
        """In bytes. DDP's first step has a single bucket, which it then divides: that one is never seen again."""
        least = min(2, self.config.warmup_operations)
        return max((size for size, count in self._num_warmup_started.items() if count >= least), default=None)

    def _measure_bound(self) -> None:
        for pending in list(self._warmup.values()):
            self._finished[pending.operation] = self._finish(pending)
        largest = self._largest_that_comes_again()
        assert largest is not None  # it was measured
        told = self._exchange(self._warmup_times.to_exchange(largest, self.config.warmup_operations))
        found = measured(told)
        if any(found.stages_ms):
            bound = HardBound.measured(found.stages_ms, largest, self.config.deadline_floor_ms / 2)
            self.adopt(bound, found.operations_ms)
        else:
            self.adopt(HardBound.unmeasured(self.config.exact_deadline_ms))

    def _exchange(self, own: Sequence[float]) -> list[list[float]]:
        """Every rank's values, by rank."""
        pending, values = self.start_exchange(own)
        self._finish(pending)
        return by_rank(values, self.link.num_ranks)

    def start_exchange(self, own: Sequence[float]) -> tuple[Pending, array.array[float]]:
        """The sum of vectors in which each rank fills its own place.

        Among all ranks, also where hosts meet in memory: there one operation is handed round after the other, and this
        one may take its time.
        """
        values = array.array("d", bytes(8 * len(own) * self.link.num_ranks))
        begin = len(own) * self.link.rank
        values[begin : begin + len(own)] = array.array("d", own)
        memory = Memory(values.buffer_info()[0], len(values), _native.Format.f64, values)
        return self._submit(memory, _AGREEMENT_LAYOUT, None, True, False, self.link.engine), values

    def take_report(self, pending: Pending) -> _native.OperationReport | None:
        """Without waiting for it."""
        with self.link.errors_named():
            report = self.link.engine.wait(pending.operation, 0.0)
        if report is not None:
            del self._in_flight[pending.operation]
        return report

    # -- what all ranks do alike --------------------------------------------------------------------------------------

    def encodes(self, operation: int) -> bool:
        """Whether the gradients of a bounded operation, the next or a later one, are to be coefficients."""
        return next(agreed.encoded for holds_from, agreed in reversed(self._agreed) if holds_from <= operation)

    def _agree(self, agreement: Agreement, adaptation: Adaptation) -> None:
        news = agreement.before_call(self._next_operation(), self._views)
        if news is None:
            return
        holds_from, topics = news
        before = self._agreed[-1][1]
        agreed = _Agreed(
            division=before.division if self.slow_ranks is None else self.slow_ranks.division,
            encoded=self.hadamard_switch is not None and self.hadamard_switch.on,
        )
        self._agreed = [*self._agreed[-1:], (holds_from, agreed)]
        for topic in topics:
            logger.info("[rank %d] from operation %d on, %s", self.link.rank, holds_from, topic.explain())
        self._publish(adaptation)

    def _learn_seen(self) -> None:
        seen, self._seen = self._seen, []
        for pending, report in seen:
            if self._adaptation is not None:
                self._learn(self._adaptation, pending, report)

    def _learn(self, adaptation: Adaptation, pending: Pending, report: _native.OperationReport) -> None:
        own_rank = self.link.rank
        if self.link.num_ranks == 1:
            return
        if heard_nobody(report, own_rank):
            return  # this rank was away, which says nothing about the network between those that are there
        packets = PacketsSeen(report.datagrams_expected, report.datagrams_received)
        if self.slow_ranks is not None:
            self.slow_ranks.observe(contribution_rates(report, own_rank, pending.memory.format))
        if self.hadamard_switch is not None:
            self.hadamard_switch.observe(*entries_dropped(report, packets))
        adaptation.observe_narrow(report.narrow_elements)
        bound_before = adaptation.bound
        seen, late = stages_seen(report, own_rank), late_ratio(report, own_rank)
        adaptation.observe(pending.key, seen, late, packets, pending.bytes_ahead, pending.announced_ms)
        new_bound, new_credit = adaptation.bound is not bound_before, adaptation.credit != self._credit
        if new_bound:
            logger.info("[rank %d] %s", own_rank, adaptation.bound.reason)
        if new_credit:
            logger.info("[rank %d] %s", own_rank, adaptation.explain_credit())
        bound_moved = abs(adaptation.duty_bound_ms / self._duty_bound_ms - 1) > _DUTY_BOUND_STEP
        if new_bound or new_credit or bound_moved:
            self._publish(adaptation)

    def adopt(self, bound: HardBound, operations_ms: Sequence[float] = ()) -> None:
        """`operations_ms`: what operations of the bound's size took, if that is known."""
        self._learn_seen()
        self._adaptation = Adaptation(
            bound,
            self.link.num_ranks,
            least_wait_ratio=self.config.early_wait_least_ratio,
            most_wait_ratio=self.config.early_wait_most_ratio,
            wait_floor_ms=self.config.early_wait_floor_ms,
            repair_grace_ratio=self.config.repair_grace_ratio,
            most_credit=self.config.credit,
            limits_operations=self.link.agreement.num_groups == 1,
            operations_ms=operations_ms,
        )
        self._publish(self._adaptation)
        if self.link.num_ranks > 1:
            logger.info("[rank %d] %s", self.link.rank, bound.reason)

    def _widen_without_hosts(self) -> None:
        """What was measured while the ranks of a host met in shared memory is too little for all of them."""
        if self._hosts is None or not self._hosts.left or not self._bounds_hosts:
            return
        self._bounds_hosts = False
        if self.adaptation is not None:
            self.adopt(HardBound.of_more_bytes(self.adaptation.bound, self._hosts.more_bytes_among_all))

    def _publish(self, adaptation: Adaptation) -> None:
        """What holds for operations that a peer opens before this rank calls them."""
        self._credit = adaptation.credit
        bound_ms = self._duty_bound_ms = adaptation.duty_bound_ms
        next_operation = self._next_operation()
        if self._agreed[-1][0] <= next_operation:
            self._agreed = self._agreed[-1:]
        # A later block takes the place of those that begin with it or after it: so what is to come is said again.
        for holds_from, agreed in self._agreed:
            self.link.publish(
                from_operation=max(holds_from, next_operation),
                stage_ms=bound_ms,
                usual_stage_ms=bound_ms,
                credit=self._credit,
                shard_weights=agreed.division.weights,
                division=agreed.division.number,
                encoded=agreed.encoded,
            )

    def explain(self) -> list[str]:
        """Which numbers are in force, and what made them so."""
        if self.adaptation is None:
            at_once = self.config.credit or "all"
            return [
                f"bound: being measured; {self.config.warmup_operations} operations on the largest bucket run exactly, "
                "and what 95 % of their stages took will be t_B, the longest that a stage may last",
                f"incast: the credit is how many may send to this rank at once; {at_once} until the bound is known",
            ]
        reason = self.link.agreement.groups_reason if self._hosts is None else self._hosts.explain()
        groups = [] if self.link.num_ranks == 1 else [f"groups: {reason}"]
        shards = [] if self.slow_ranks is None else [f"shards: {self.slow_ranks.explain()}"]
        return [*self.adaptation.explain(), *groups, *shards]


def _announced(timing: Timing) -> dict[str, Any]:
    waits, samples, limit = timing.early_wait_ms, timing.samples_ms, timing.limit_ms
    return {
        "contributions_within_s": timing.contributions_ms / 1e3,
        "limit_s": (limit.contributions / 1e3, limit.whole / 1e3, limit.results / 1e3),
        "early_wait_s": (waits[0] / 1e3, waits[1] / 1e3),
        "samples_us": (_microseconds(samples[0]), _microseconds(samples[1])),
        "repair_grace_s": timing.repair_grace_ms / 1e3,
    }


def _microseconds(ms: float) -> int:
    return min(0xFFFFFFFF, int(ms * 1e3))
