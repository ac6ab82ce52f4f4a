"""All numbers of the bounded all-reduce in one place: what the next operation is given, and what each one teaches.

Fed with what an operation reported, asked before the next: t_B for its size, the silence that ends each of its stages
early, the samples to announce to the peers, and how many senders this rank is willing to hear at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from holdfast.control.bound_margin import BoundMargin
from holdfast.control.change import NetworkChange
from holdfast.control.early_timeout import EarlyTimeout, StageEnd, stage_sample_ms
from holdfast.control.early_wait import EarlyWait
from holdfast.control.hard_bound import HardBound
from holdfast.control.incast import Incast
from holdfast.control.narrowing import Narrowed
from holdfast.control.operation_limit import LimitMs, OperationLimit
from holdfast.control.recalibration import WIDENING, Recalibration

LEAST_REPAIR_MS = 20.0
NEGLIGIBLE_RATIO = 0.01
"""Of a bucket's bytes: what ranks agree on now and then is under way beside it, and changes nothing for it."""

MOST_SILENT_RATIO = 0.5
"""Of the operations: a host that freezes is not silent in more of them than it takes part in."""
SILENCE_WEIGHT = 0.02
"""Of the latest operation in that."""

BucketKey = tuple[int, int]
"""Layout and bytes: what is the same bucket, whatever its index."""


@dataclass(frozen=True)
class Timing:
    """What an operation is called with."""

    stage_ms: float
    """t_B."""
    contributions_ms: float
    """Of both stages' time, so much for the first: all of t_B, and more where other operations go before this one."""
    limit_ms: LimitMs
    """Of both stages together, where that is less."""
    early_wait_ms: tuple[float, float]
    """x t_C, for contributions and results."""
    samples_ms: tuple[float, float]
    """What these stages took the last time; 0: not known yet."""
    repair_grace_ms: float
    """How much longer a silence among the results may last while lost ones are sent again."""


@dataclass(frozen=True)
class StageSeen:
    """One stage of one operation, as this rank saw it."""

    end: StageEnd
    elapsed_ms: float
    received_by_peer: Mapping[int, int]
    """Elements, of those that each peer should have sent."""
    expected_by_peer: Mapping[int, int]
    samples_ms: Sequence[float | None]
    """What the peers announced that this stage took them the last time."""
    dead_peers: Set[int] = frozenset()
    """Nobody waited for them."""
    before_call: bool = False
    """It was over when this rank called: how long it lasted was not the network's doing."""
    somebody_was_silent: bool = False
    """In this operation a living peer answered nothing for longer than hosts and roads take: it stood still, or was cut
    off."""

    @property
    def received(self) -> int:
        return sum(self.received_by_peer.values())

    @property
    def expected(self) -> int:
        return sum(self.expected_by_peer.values())

    @property
    def slowest(self) -> tuple[int, int]:
        """What came and what should have come from the sender that was furthest behind, of the living."""
        alive = [peer for peer, elements in self.expected_by_peer.items() if elements and peer not in self.dead_peers]
        pairs = [(self.received_by_peer[peer], self.expected_by_peer[peer]) for peer in alive]
        return min(pairs, key=lambda pair: pair[0] / pair[1], default=(0, 0))

    @property
    def cut_ratio(self) -> float:
        """The share of what the living had to send that the bound kept out."""
        alive = [peer for peer in self.expected_by_peer if peer not in self.dead_peers]
        expected = sum(self.expected_by_peer[peer] for peer in alive)
        if self.end != "bound" or not expected:
            return 0.0
        return 1 - sum(self.received_by_peer[peer] for peer in alive) / expected

    @property
    def tells_pace(self) -> bool:
        """Every living sender had something to say, and this rank was there to hear it."""
        expected = [
            peer for peer, elements in self.expected_by_peer.items() if elements and peer not in self.dead_peers
        ]
        return bool(expected) and not self.before_call and all(self.received_by_peer[peer] > 0 for peer in expected)


@dataclass(frozen=True)
class PacketsSeen:
    """Packets of any kind that were sent to this rank since the operation before, and those that came.

    What was late has arrived, and a rank that is away sends nothing: what is missing here the network has dropped.
    """

    expected: int
    received: int

    @property
    def lost_ratio(self) -> float:
        return max(0.0, 1 - self.received / self.expected) if self.expected else 0.0


class _Bucket:
    def __init__(self, bound_ms: float) -> None:
        self.early = (EarlyTimeout(bound_ms), EarlyTimeout(bound_ms))
        self.samples_ms = (0.0, 0.0)


class Adaptation:
    def __init__(
        self,
        bound: HardBound,
        num_ranks: int,
        *,
        least_wait_ratio: float,
        most_wait_ratio: float,
        wait_floor_ms: float,
        repair_grace_ratio: float = 0.0,
        most_credit: int = 0,
        limits_operations: bool = True,
        operations_ms: Iterable[float] = (),
    ) -> None:
        """`repair_grace_ratio`: a share of t_C. `most_credit` 0: as many as there are. `limits_operations`: False where
        stages are more than two, and a rank passes on what it is sent. `operations_ms`: what the slowest rank took for
        operations of the bound's size so far."""
        self.bound = bound
        self._early_wait = EarlyWait(least_wait_ratio, most_wait_ratio, wait_floor_ms)
        self._repair_grace_ratio = repair_grace_ratio
        self._incast = Incast(num_ranks)
        self._most_credit = most_credit
        self._buckets: dict[BucketKey, _Bucket] = {}
        self._margin = BoundMargin(bound.t_b_ms, bound.floor_ms)
        self._limits_operations = limits_operations
        self._narrowed = Narrowed()
        self._limit = OperationLimit(operations_ms)
        self._limit_of_last = LimitMs()
        self._silent_ratio = 0.0
        self._change = NetworkChange()
        self._recalibration: Recalibration | None = None

    def observe_narrow(self, narrow_elements: int) -> None:
        """So many of the operation that is observed next came in sixteen bits."""
        self._narrowed.observe(narrow_elements)
        self._limit.narrows = self._narrowed.lately

    @property
    def credit(self) -> int:
        return min(self._incast.credit, self._most_credit) if self._most_credit else self._incast.credit

    @property
    def t_b_ms(self) -> float:
        """Of the bucket that it was measured with, as it is in force now."""
        return self.bound.t_b_ms * self._widening

    @property
    def duty_bound_ms(self) -> float:
        """For operations that this rank serves before it calls them: not wider than measured, and within the limit, or
        it would send its shard's results later than the others wait for them."""
        bound_ms = min(self.bound.t_b_ms, self.t_b_ms)
        return min(bound_ms, self._limit_of_last.contributions) if self._limit_of_last.whole else bound_ms

    @property
    def _widening(self) -> float:
        return self._margin.ratio if self._recalibration is None else WIDENING

    def timing(self, key: BucketKey, bytes_ahead: int = 0) -> Timing:
        """`bytes_ahead`: of operations that began before and are still under way; the network serves those first."""
        stage_ms, contributions_ms = self._bounds_ms(key, bytes_ahead)
        limit_ms = self._limit_of_last = self._limit_ms(key, bytes_ahead)
        bucket = self._buckets.setdefault(key, _Bucket(stage_ms))
        contributions, results = (self._early_wait.wait_ms(early.t_c_ms) for early in bucket.early)
        # A small bucket's results take no time at all; what one of them takes that has to be sent again is a round trip.
        repair_grace_ms = self._repair_grace_ratio * max(bucket.early[1].t_c_ms, LEAST_REPAIR_MS)
        return Timing(
            stage_ms, contributions_ms, limit_ms, (contributions, results), bucket.samples_ms, repair_grace_ms
        )

    def observe(
        self,
        key: BucketKey,
        stages: tuple[StageSeen, StageSeen],
        late_ratio: float,
        packets: PacketsSeen,
        bytes_ahead: int = 0,
        announced_ms: tuple[float, float] | None = None,
    ) -> None:
        """One operation has ended. `late_ratio`: the share of one that arrived since the last, after its close.
        `announced_ms`: the samples that it was called with; None: what `timing` would have said just now."""
        stage_ms, contributions_ms = self._bounds_ms(key, bytes_ahead)
        bucket = self._buckets.setdefault(key, _Bucket(stage_ms))
        if announced_ms is None:
            announced_ms = bucket.samples_ms
        self._early_wait.observe(late_ratio)
        cut_off = any(stage.end in ("limit", "bound") for stage in stages)
        self._incast.observe(packets.lost_ratio, packets.expected, hit_bound=cut_off)
        if self._stood_still(stages):
            bucket.samples_ms = (0.0, 0.0)  # what it took is nobody's usual time, so nobody is told
            return
        samples = []
        for stage, bound_ms, early in zip(stages, (contributions_ms, stage_ms), bucket.early, strict=True):
            received, expected = stage.slowest if stage.end == "limit" else (stage.received, stage.expected)
            sample_ms = stage_sample_ms(stage.end, stage.elapsed_ms, bound_ms, received, expected)
            early.update(sample_ms, stage.samples_ms)
            samples.append(sample_ms)
        bucket.samples_ms = (samples[0], samples[1])
        if self._teaches(key, bytes_ahead):
            self._observe_change(bucket, stages, announced_ms)

    def _stood_still(self, stages: Sequence[StageSeen]) -> bool:
        """Somebody, in this operation, as happens now and then. Where it is the rule it is how this network, or these hosts,
        are, and has to be learnt."""
        silent = stages[0].somebody_was_silent
        self._silent_ratio += SILENCE_WEIGHT * (silent - self._silent_ratio)
        return silent and self._silent_ratio <= MOST_SILENT_RATIO

    def _teaches(self, key: BucketKey, bytes_ahead: int) -> bool:
        """Only the largest bucket, alone: small ones, between others, do not scale with their bytes."""
        return key[1] == self.bound.num_bytes and bytes_ahead < NEGLIGIBLE_RATIO * key[1]

    def _limit_ms(self, key: BucketKey, bytes_ahead: int) -> LimitMs:
        if not self._limits_operations or self._recalibration is not None or not self._teaches(key, bytes_ahead):
            return LimitMs()
        return self._limit.of_operation(least_ms=2 * self.bound.floor_ms)

    def _bounds_ms(self, key: BucketKey, bytes_ahead: int) -> tuple[float, float]:
        """Of a stage, and of the first one: both stages of what goes before may be over only when the own contributions
        are still to come, and the own results need no more than their own bytes' time after that."""
        stage_ms = self._stage_ms(key, bytes_ahead)
        return stage_ms, 2 * stage_ms - self._stage_ms(key, 0)

    def _stage_ms(self, key: BucketKey, bytes_ahead: int) -> float:
        # Only the largest bucket teaches that less will do.
        ratio = self._widening if key[1] == self.bound.num_bytes else max(1.0, self._widening)
        return self.bound.stage_ms(key[1] + bytes_ahead) * ratio

    def _observe_change(self, bucket: _Bucket, stages: Sequence[StageSeen], announced_ms: tuple[float, float]) -> None:
        """`announced_ms`: what this rank told the others with this operation, as they told it."""
        if self._recalibration is None:
            self._observe_margin(stages)
            self._observe_limit(stages, announced_ms)
            hit_bound = any(stage.end == "bound" for stage in stages)
            t_c_ms = sum(early.t_c_ms for early in bucket.early)
            if self._change.observe(hit_bound=hit_bound, t_c_ms=t_c_ms) is not None:
                self._recalibration = Recalibration(self._change.explain())
        elif self._recalibration.add(bucket.samples_ms[0], stages[0].samples_ms):
            before, self.bound = self.bound, self._recalibration.bound(self.bound)
            self._change.recalibrated(before.t_b_ms, self.bound.t_b_ms)
            self._recalibration, self._margin = None, BoundMargin(self.bound.t_b_ms, self.bound.floor_ms)
            self._limit = OperationLimit()
            self._limit.narrows = self._narrowed.lately

    def _observe_margin(self, stages: Sequence[StageSeen]) -> None:
        if stages[0].before_call or not stages[0].expected:
            return  # what is left of the results then is short, and says nothing about the contributions
        if any(stage.end == "limit" for stage in stages):
            return  # what was cut off before t_B could do it says nothing about t_B
        self._margin.observe_absence(absent=not stages[0].tells_pace)
        if not stages[0].tells_pace:
            return
        for index, stage in enumerate(stages):
            if stage.tells_pace:
                self._margin.observe(index, elapsed_ms=stage.elapsed_ms, cut_ratio=stage.cut_ratio)

    def _observe_limit(self, stages: Sequence[StageSeen], announced_ms: tuple[float, float]) -> None:
        # Also for want of a rank that says nothing: one that is away is so once, and one that calls late is so again.
        self._limit.observe_end(cut=any(stage.end == "limit" for stage in stages))
        if not announced_ms[0] or not all(stage.tells_pace for stage in stages):
            return
        by_peer = zip(*(stage.samples_ms for stage in stages), strict=True)
        took_ms = [contributions + (results or 0.0) for contributions, results in by_peer if contributions]
        self._limit.observe([sum(announced_ms), *took_ms])

    def explain(self) -> list[str]:
        standing = self._change if self._recalibration is None else self._recalibration
        # A bound that was given, or that nothing could measure, stays as it is.
        changes = [f"network: {standing.explain()}"] if self.bound.num_bytes else []
        limit = [f"limit: {self._explain_limit()}"] if self.bound.num_bytes else []
        lines = [
            f"bound: neither stage of an operation, contributions or results, lasts longer than t_B; {self.bound.reason}"
            + self._margin.explain(),
            *limit,
            *changes,
            "early end: a stage ends sooner when the last percentile of every sender has begun to come and then nothing "
            f"new comes for a share x of t_C, what the stage usually takes; {self._early_wait.explain()}",
        ]
        if self._buckets:
            largest = max(self._buckets, key=lambda key: key[1])
            for name, early in zip(("contributions", "results"), self._buckets[largest].early, strict=True):
                wait_ms = self._early_wait.wait_ms(early.t_c_ms)
                lines.append(
                    f"{name} of the largest bucket ({largest[1]:,} bytes): {early.explain()}; "
                    f"{wait_ms:.1f} ms of silence end it"
                )
        lines.append(f"repair: {self._explain_repair()}")
        lines.append(f"incast: the credit is how many may send to this rank at once; {self.explain_credit()}")
        return lines

    def _explain_limit(self) -> str:
        if not self._limits_operations:
            return "none beside t_B: ranks are grouped, and pass on what they are sent"
        if self._recalibration is not None:
            return "none beside t_B while that is measured again"
        return self._limit.explain(least_ms=2 * self.bound.floor_ms)

    def _explain_repair(self) -> str:
        if not self._repair_grace_ratio:
            return "off, results that the network loses stay lost"
        return (
            "results that the network loses are sent again; while some are missing, the silence that ends their stage is "
            f"longer by {self._repair_grace_ratio:g} t_C (of at least {LEAST_REPAIR_MS:g} ms)"
        )

    def explain_credit(self) -> str:
        return self._incast.explain() + (f", of at most {self._most_credit} allowed" if self._most_credit else "")
