"""What the bounded all-reduce is held to, and which of it rows of the bench keep. Nothing is measured here.

Every ratio is taken within one run, in which the peers took turns, and then the median over the runs. Delivered counts
*beyond what the profile loses*: the share that made it into the results, plus the share of packets that were lost by no
fault of the sender's. An element that is lost on its way to be summed and one that is lost on its way back both count,
so loss alone costs up to twice its share; the packets are added only once, which is the stricter reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from holdfast.control.early_wait import LATE_SHARE_HIGH, LATE_SHARE_LOW
from holdfast.control.shards import lower_bound_ms
from holdfast.lab.bench.row import Row
from holdfast.lab.peer import peer_named

Figure = Literal["p50_ms", "p99_ms"]
STOCK = ("gloo-cubic", "gloo-bbr")
TUNED = "gloo-tuned"
LEAST_DELIVERED = 0.99
MOST_SPREAD = 1.5
SPREAD_PROFILES = ("shared-3", "stalls")
"""Where p99 over p50 has a bar."""
MOST_OVER_BOUND_MS = 5.0
LEAST_EARLY_OVER_BOUND = 10.0
"""t_C ends stages "far more often" than t_B, which is not a number; this is what a reader would accept for it."""
BAND_PROFILE = "shared-1.5"
"""Where x must hold its band."""
STRAGGLER_BAR = 0.75
PROFILES_OWN_LOSS = frozenset({"random", "burst"})
"""Causes in the switch. What found a queue full is the senders' fault, unless cross traffic fills the same queue; what
a frozen host lost is left out already where delivered is counted."""


@dataclass(frozen=True)
class Bar:
    figure: Figure
    stock: float
    tuned: float
    capacity: float | None = None
    """Instead of either: so many times the capacity bound."""
    most_lost: float | None = None


BARS = {
    "clean": Bar("p50_ms", 1.05, 1.05),
    "shared-1.5": Bar("p99_ms", 0.95, 1.0),
    "shared-3": Bar("p99_ms", 0.9, 1.0, capacity=1.1),
    "lossy-1": Bar("p99_ms", 0.35, 0.8),
    "bursty-1": Bar("p99_ms", 0.4, 0.85),
    "incast": Bar("p99_ms", 1.1, 1.1, most_lost=0.01),
    "stalls": Bar("p99_ms", 0.5, 0.5),
}


class Runs:
    """The rows of one Holdfast peer in one cell, one for each run, and the rivals that took turns with it."""

    def __init__(self, rows: Iterable[Row], peer: str) -> None:
        self._by_run: dict[int, dict[str, Row]] = {}
        for row in rows:
            self._by_run.setdefault(row.seed, {})[row.peer] = row
        self._by_run = {seed: by_peer for seed, by_peer in self._by_run.items() if peer in by_peer}
        self.peer = peer
        self.rows = [by_peer[peer] for by_peer in self._by_run.values()]

    def median(self, figure: Callable[[Row], float | None]) -> float | None:
        """Over the runs that know it."""
        known = [value for row in self.rows if (value := figure(row)) is not None]
        return median(known) if known else None

    def over(self, rivals: Sequence[str], figure: Figure) -> float | None:
        """The peer's figure over the best of the rivals' in the same run. Without one of them there is no best."""
        ratios = [
            getattr(by_peer[self.peer], figure) / min(getattr(by_peer[rival], figure) for rival in rivals)
            for by_peer in self._by_run.values()
            if all(rival in by_peer for rival in rivals)
        ]
        return median(ratios) if ratios else None


@dataclass(frozen=True)
class Verdict:
    over_stock: float | None
    over_tuned: float | None
    over_capacity: float | None
    """p99 over the p99 of the capacity bound."""
    spread: float | None
    """p99 over p50."""
    delivered: float | None
    delivered_beyond_loss: float | None
    lost: float | None
    missed: tuple[str, ...]

    @property
    def kept(self) -> bool:
        return not self.missed


def judge(runs: Runs, bar: Bar, profile: str, causes: frozenset[str]) -> Verdict:
    """`causes`: of what the switch lost, those that are the profile's own."""
    tuned = TUNED if peer_named(runs.peer).wire_bytes == 4 else f"{TUNED}-bf16"
    over_stock, over_tuned = runs.over(STOCK, bar.figure), runs.over([tuned], bar.figure)
    over_capacity = runs.median(over_capacity_bound)
    spread = runs.median(lambda row: row.p99_ms / row.p50_ms)
    beyond = runs.median(lambda row: delivered_beyond_loss(row, causes))
    lost = runs.median(lost_ratio)
    at_capacity = bar.capacity is not None and at_most(over_capacity, bar.capacity)
    missed = {
        "/stock": at_most(over_stock, bar.stock) or at_capacity,
        "/tuned": at_most(over_tuned, bar.tuned) or at_capacity,
        "delivered": beyond is not None and beyond >= LEAST_DELIVERED,
        "p99/p50": profile not in SPREAD_PROFILES or at_most(spread, MOST_SPREAD),
        "lost": bar.most_lost is None or (lost is not None and lost < bar.most_lost),
    }
    return Verdict(
        over_stock, over_tuned, over_capacity, spread, runs.median(lambda row: row.unfrozen_delivered_ratio), beyond, lost,
        tuple(name for name, kept in missed.items() if not kept),
    )  # fmt: skip


@dataclass(frozen=True)
class Straggling:
    """A host at a part of the others' rate: uneven shards and half the bytes against tuned TCP."""

    over_tuned: float | None
    over_tuned_bf16: float | None
    over_bound: float | None
    """p50 over what no division into shards can beat."""
    delivered: float | None
    missed: tuple[str, ...]


def judge_straggler(runs: Runs, rates: Callable[[Row], Sequence[float]], causes: frozenset[str]) -> Straggling:
    """`rates`: of the hosts, in bytes per millisecond."""
    wire_ratio = peer_named(runs.peer).wire_bytes / 4
    over_tuned = runs.over([TUNED], "p50_ms")
    delivered = runs.median(lambda row: delivered_beyond_loss(row, causes))
    kept = {
        "/tuned": at_most(over_tuned, STRAGGLER_BAR),
        "delivered": delivered is not None and delivered >= LEAST_DELIVERED,
    }
    return Straggling(
        over_tuned,
        runs.over([f"{TUNED}-bf16"], "p50_ms"),
        runs.median(lambda row: row.p50_ms / lower_bound_ms(rates(row), int(row.bytes * wire_ratio))),
        delivered,
        tuple(name for name, good in kept.items() if not good),
    )


def missed_by_the_clock(runs: Runs, profile: str) -> tuple[str, ...]:
    """Of the lines on stage times: how far over t_B, and the band of x."""
    over_bound = runs.median(lambda row: row.stage_over_bound_p999_ms)
    late = runs.median(lambda row: row.late_ratio)
    kept = {
        "over t_B": at_most(over_bound, MOST_OVER_BOUND_MS),
        "x band": profile != BAND_PROFILE or (late is not None and LATE_SHARE_LOW <= late <= LATE_SHARE_HIGH),
    }
    return tuple(name for name, good in kept.items() if not good)


def early_over_bound(runs: Iterable[Runs]) -> float | None:
    """How many stages the early timeout t_C ended for each that t_B did, over all networks: where nothing is lost a stage
    ends complete, and neither has anything to end."""
    known = [(early, bound) for each in runs if (early := each.median(stage_end("early"))) is not None
             and (bound := each.median(stage_end("bound"))) is not None]  # fmt: skip
    early, bound = sum(early for early, _ in known), sum(bound for _, bound in known)
    return early / bound if bound else None


def stage_end(kind: str) -> Callable[[Row], float]:
    """The share of stages that ended so."""
    return lambda row: row.stage_ends.get(kind, 0.0)


def over_capacity_bound(row: Row) -> float | None:
    return row.p99_ms / row.capacity_bound_p99_ms if row.capacity_bound_p99_ms else None


def lost_ratio(row: Row, causes: frozenset[str] | None = None) -> float | None:
    """Of all packets that hosts sent, those that the switch lost; only to these causes, if given."""
    if not row.sent_packets:
        return None
    lost = sum(count for cause, count in row.lost_packets.items() if causes is None or cause in causes)
    return lost / row.sent_packets


def delivered_beyond_loss(row: Row, causes: frozenset[str]) -> float | None:
    lost = lost_ratio(row, causes)
    return None if lost is None else min(1.0, row.unfrozen_delivered_ratio + lost)


def at_most(value: float | None, bar: float) -> bool:
    """What was not measured is not kept."""
    return value is not None and value <= bar
