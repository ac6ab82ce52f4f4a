"""One line of a benchmark's table: one peer on one network at one size, and the operations it is made of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.lab.lateness import TRUSTED_P999_MS, Lateness
from holdfast.lab.peer import Peer
from holdfast.lab.quantile import quantile

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
    wrong: int
    lost_packets: Mapping[str, int]
    """By cause, in the switch, during this peer's operations."""
    late_p99_ms: float | None
    """How late the switch was during this peer's operations."""
    late_p999_ms: float | None
    woke_late_p99_ms: float
    """How long after the common start the last rank began."""
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
    lost: Counter[str] = field(default_factory=Counter)


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
        wrong=sum(operation.wrong for operation in tally.operations),
        lost_packets={cause: count for cause, count in sorted(tally.lost.items()) if count},
        late_p99_ms=tally.lateness.quantile_ms(0.99) if in_lab else None,
        late_p999_ms=tally.lateness.quantile_ms(0.999) if in_lab else None,
        woke_late_p99_ms=woke_late_ms,
        attempts=attempts,
        noisy=in_lab and (not tally.lateness.trusted or woke_late_ms > TRUSTED_P999_MS),
        frozen_operations=len(frozen),
        frozen_p50_ms=quantile([each.seconds * 1e3 for each in frozen], 0.50) if frozen else None,
        frozen_p99_ms=quantile([each.seconds * 1e3 for each in frozen], 0.99) if frozen else None,
        frozen_delivered_ratio=_mean([1 - each.missing_elsewhere for each in frozen]) if frozen else None,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
