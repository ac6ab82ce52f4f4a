"""Who is persistently slow, and what all ranks make of it together: the division of buckets into shards.

Every rank measures how fast it hears the others. Now and then all of them exchange what they found, so each holds the
same table, and the same rule makes the same division of it. What the rule remembers between two exchanges must be the
same everywhere too: each rank sends a fingerprint of it along, and where two differ (one of them has missed an
exchange) all forget it and begin again with even shards.

A rank's rate is what the others hear from it. Contributions wait for nobody, so a slow network shows there, while a
rank that is late because it computes for long sends as fast as the others once it has begun.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from statistics import median, median_high

from holdfast.control.shards import Division, propose

NUM_ROWS = 3
"""Exchanges in a row that must agree before shards change."""
UNKNOWN = 0.0
LEAST_RATE, MOST_RATE = 1.0, 1e15
"""Bytes per second. A rank that says anything else (or no number at all) has not measured it."""


class SlowRanks:
    def __init__(self, num_ranks: int) -> None:
        self.division = Division.even(num_ranks)
        self._heard: list[list[float]] = [[] for _ in range(num_ranks)]
        self._rows: list[list[float]] = []

    def observe(self, rates: Mapping[int, float]) -> None:
        """One operation: how fast contributions came from each peer that sent enough to tell. Any unit will do."""
        for rank, rate in rates.items():
            self._heard[rank].append(rate)

    def take_view(self) -> list[float]:
        """What this rank tells the others of the operations since it was last asked."""
        heard = [median(rates) if rates else UNKNOWN for rates in self._heard]
        self._heard = [[] for _ in self._heard]
        return [self._fingerprint(), *heard]

    def agree(self, views: Sequence[Sequence[float]]) -> bool:
        """All ranks' views, by rank. True: there is a new division."""
        before = self.division
        if len({view[0] for view in views}) > 1:
            self._rows = []
            self.division = Division.even(len(views), "ranks had seen different things, and begin again")
            return before.weights != self.division.weights
        row = [_rate_of(rank, views) for rank in range(len(views))]
        if UNKNOWN in row:
            return False
        self._rows = [*self._rows, row][-NUM_ROWS:]
        if len(self._rows) == NUM_ROWS:
            self.division = propose(self._rows, before)
        return before.weights != self.division.weights

    def _fingerprint(self) -> float:
        return float(zlib.crc32(repr((self.division.weights, self.division.number, self._rows)).encode()))

    def explain(self) -> str:
        return self.division.reason


def _rate_of(rank: int, views: Sequence[Sequence[float]]) -> float:
    """A slow listener hears everybody slowly: of those in the middle, the faster one is believed. Less than half of the
    listeners may all be slow ones."""
    heard = [view[1 + rank] for listener, view in enumerate(views) if listener != rank]
    believable = [rate for rate in heard if LEAST_RATE <= rate <= MOST_RATE]
    return median_high(believable) if 2 * len(believable) >= len(heard) else UNKNOWN
