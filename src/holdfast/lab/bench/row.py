"""One line of a benchmark's table: one peer on one network at one size, and the operations it is made of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.control.early_wait import WINDOW
from holdfast.lab.bench.stages import Stage, end_shares, over_bound_ms
from holdfast.lab.lateness import TRUSTED_P999_MS, Lateness
from holdfast.lab.peer import Peer
from holdfast.lab.quantile import quantile
from holdfast.lab.stolen import ProcessorTime

if TYPE_CHECKING:
    from holdfast.lab.bench.slowest import Slowest

LOOPBACK = "loopback"


@dataclass(frozen=True)
class Measured:
    """One operation on one rank, on CLOCK_MONOTONIC."""

    began_ns: int
    ended_ns: int
    delivered_ratio: float
    missing_by_rank: dict[int, float]
    wrong: int
    """Elements of a complete result that are not the average."""
    stages: tuple[Stage, ...] = ()
    late_ratio: float | None = None
    """Share of an operation that came here since the one before, after its close."""
    narrow_ratio: float = 0.0
    """Of what came here, the share in sixteen bits of 32, because it was late."""
    wrong_if_narrow: int = 0
    """As `wrong`, but by the roundings of sixteen bits: what holds when any rank sent some so."""


@dataclass(frozen=True)
class Operation:
    """One all-reduce of all ranks."""

    seconds: float
    """Until the slowest rank that was not frozen was done."""
    delivered_ratio: float
    """Mean over the ranks that were not frozen."""
    wrong: int
    capacity_bound_s: float | None
    frozen_hosts: tuple[int, ...] = ()
    """Hosts whose network stood still at some time before their rank was done."""
    missing_elsewhere: float = 0.0
    """Of what unfrozen ranks should have delivered to each other, the share that did not come."""
    woke_late_s: float = 0.0
    """How long after the common start the last rank began: the machine's doing."""
    stages: tuple[Stage, ...] = ()
    """Of all ranks."""
    late_ratio: float | None = None
    """Mean over the ranks of what came after the close of the operation before."""
    narrow_ratio: float = 0.0
    """Mean over the ranks of what came in sixteen bits because it was late."""


@dataclass(frozen=True)
class Row:
    """Times are of the slowest rank (with freezes: the slowest that was not frozen); None where it does not apply."""

    peer: str
    profile: str
    ranks: int
    bytes: int
    iterations: int
    seed: int
    deadline_ms: float | None
    """Holdfast's bound, if it was given one."""
    congestion_control: str | None
    rto_min_ms: float | None
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    lower_bound_ms: float | None
    """2 (N - 1) / N of the bytes on the wire at the line rate."""
    capacity_bound_p50_ms: float | None
    """Quantiles of the least time that each operation could have taken with the capacity that was left."""
    capacity_bound_p99_ms: float | None
    delivered_ratio: float
    unfrozen_delivered_ratio: float
    """The same, but where a host was frozen, of what the other hosts should have delivered to each other."""
    wrong: int
    sent_packets: int | None
    """What the switch got from all hosts during this peer's operations."""
    lost_packets: Mapping[str, int]
    """By cause, in the switch, out of those."""
    stage_ends: Mapping[str, float]
    """Share of the stages of bounded operations, on all ranks, that ended complete, early (x t_C) or at t_B."""
    stage_over_bound_p999_ms: float | None
    """How long after the t_B in force a stage ended; negative: before."""
    stage_over_bound_max_ms: float | None
    late_ratio: float | None
    """What steers x: share that arrived after the close, mean over all ranks and the last 100 operations."""
    narrow_ratio: float
    """Of what came, the share in sixteen bits of 32, because it was late; mean over all ranks and operations."""
    late_p99_ms: float | None
    """How late the switch was during this peer's operations."""
    late_p999_ms: float | None
    woke_late_p99_ms: float
    """How long after the common start the last rank began."""
    stolen_ratio: float
    """Of all processor time during this peer's operations, what the hypervisor gave to others."""
    attempts: int
    noisy: bool
    """In every attempt the switch was later than 2 ms at p99.9, or a rank at p99: the machine was measured."""
    frozen_operations: int
    """Operations during which a host was frozen, listed apart: the next three speak of them alone."""
    frozen_p50_ms: float | None
    frozen_p99_ms: float | None
    frozen_delivered_ratio: float | None
    """Among the hosts that were not frozen."""


@dataclass
class Tally:
    """What has been measured of one peer at one size."""

    operations: list[Operation] = field(default_factory=list)
    lateness: Lateness = field(default_factory=Lateness)
    sent: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    processor: ProcessorTime = field(default_factory=ProcessorTime)
    slowest: Slowest | None = None
    """Only where traces are wanted, and of peers that can tell."""


@dataclass(frozen=True)
class Setting:
    """What all rows of one cell of the grid have in common."""

    profile: str
    num_ranks: int
    num_bytes: int
    seed: int
    deadline_ms: float | None
    bits_per_s: float | None
    """None: loopback, which has no line rate, no switch and no TCP settings of its own."""


def wire_bytes_per_rank(peer: Peer, num_ranks: int, num_bytes: int) -> int:
    """What each rank sends, and receives, in an all-reduce with even shards, headers apart."""
    return math.ceil(2 * (num_ranks - 1) / num_ranks * num_bytes * peer.wire_bytes / 4)


def summarise(peer: Peer, setting: Setting, tally: Tally, attempts: int) -> Row:
    times = [operation.seconds * 1e3 for operation in tally.operations]
    frozen = [operation for operation in tally.operations if operation.frozen_hosts]
    bounds = [
        operation.capacity_bound_s * 1e3
        for operation in tally.operations
        if operation.capacity_bound_s is not None and math.isfinite(operation.capacity_bound_s)
    ]
    stages = [stage for operation in tally.operations for stage in operation.stages]
    in_lab = setting.bits_per_s is not None
    woke_late_ms = quantile([operation.woke_late_s * 1e3 for operation in tally.operations], 0.99)
    on_wire = wire_bytes_per_rank(peer, setting.num_ranks, setting.num_bytes)
    return Row(
        peer=peer.name,
        profile=setting.profile,
        ranks=setting.num_ranks,
        bytes=setting.num_bytes,
        iterations=len(times),
        seed=setting.seed,
        deadline_ms=setting.deadline_ms,
        congestion_control=peer.tcp.congestion_control if in_lab and peer.tcp else None,
        rto_min_ms=peer.tcp.rto_min_us / 1e3 if in_lab and peer.tcp else None,
        p50_ms=quantile(times, 0.50),
        p95_ms=quantile(times, 0.95),
        p99_ms=quantile(times, 0.99),
        max_ms=max(times),
        lower_bound_ms=None if setting.bits_per_s is None else on_wire * 8e3 / setting.bits_per_s,
        capacity_bound_p50_ms=quantile(bounds, 0.50) if bounds else None,
        capacity_bound_p99_ms=quantile(bounds, 0.99) if bounds else None,
        delivered_ratio=_mean([operation.delivered_ratio for operation in tally.operations]),
        unfrozen_delivered_ratio=_mean(
            [1 - each.missing_elsewhere if each.frozen_hosts else each.delivered_ratio for each in tally.operations]
        ),
        wrong=sum(operation.wrong for operation in tally.operations),
        sent_packets=tally.sent if in_lab else None,
        lost_packets={cause: count for cause, count in sorted(tally.lost.items()) if count},
        stage_ends=end_shares(stages),
        stage_over_bound_p999_ms=over_bound_ms(stages, 0.999),
        stage_over_bound_max_ms=over_bound_ms(stages, 1.0),
        late_ratio=_mean_late_ratio(tally.operations[-WINDOW:]),
        narrow_ratio=_mean([operation.narrow_ratio for operation in tally.operations]),
        late_p99_ms=tally.lateness.quantile_ms(0.99) if in_lab else None,
        late_p999_ms=tally.lateness.quantile_ms(0.999) if in_lab else None,
        woke_late_p99_ms=woke_late_ms,
        stolen_ratio=tally.processor.stolen_ratio,
        attempts=attempts,
        noisy=in_lab and (not tally.lateness.trusted or woke_late_ms > TRUSTED_P999_MS),
        frozen_operations=len(frozen),
        frozen_p50_ms=quantile([each.seconds * 1e3 for each in frozen], 0.50) if frozen else None,
        frozen_p99_ms=quantile([each.seconds * 1e3 for each in frozen], 0.99) if frozen else None,
        frozen_delivered_ratio=_mean([1 - each.missing_elsewhere for each in frozen]) if frozen else None,
    )


def _mean_late_ratio(operations: Sequence[Operation]) -> float | None:
    known = [operation.late_ratio for operation in operations if operation.late_ratio is not None]
    return _mean(known) if known else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
