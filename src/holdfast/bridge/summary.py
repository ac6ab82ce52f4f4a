"""All operations of a handle in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.bridge.replica_figures import ReplicaFigures
from holdfast.outcome import Outcome


@dataclass(frozen=True)
class Summary:
    """All operations since `attach`, in a few numbers. Milliseconds, from this rank's call to the end."""

    operations: int
    exact_operations: int
    delivered_ratio: float
    narrow_ratio: float
    """Of what arrived, the share that came in sixteen bits because it was late."""
    elapsed_p50_ms: float
    elapsed_p99_ms: float
    elapsed_max_ms: float
    deadline_ms: float | None
    ended_early: int
    ended_at_limit: int
    """Took longer than operations usually do, and were not waited for any longer."""
    ended_at_bound: int
    incomplete_by_peer: Mapping[int, int]
    """How many operations each peer did not deliver in full: the ranking of stragglers."""
    bytes_sent: int
    bytes_received: int
    dropped_datagrams: Mapping[str, int]
    skipped_steps: int
    """Updates left out because too much of their contributions was lost."""
    replicas: ReplicaFigures | None
    """What was found and mended between the replicas, drift before it was closed included; none: not compared."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Totals:
    """Sums over all operations, also those whose outcomes are no longer kept."""

    def __init__(self) -> None:
        self.operations = 0
        self.exact_operations = 0
        self.ended_early = 0
        self.ended_at_limit = 0
        self.ended_at_bound = 0
        self.incomplete_by_peer: dict[int, int] = {}
        self._elements = 0
        self._delivered_elements = 0.0
        self._narrow_elements = 0.0

    def add(self, outcome: Outcome) -> None:
        self.operations += 1
        self.exact_operations += outcome.exact
        ends = (outcome.contributions_end, outcome.results_end)
        self.ended_early += "early" in ends
        self.ended_at_limit += "limit" in ends
        self.ended_at_bound += "bound" in ends
        for rank in outcome.late_peers:
            self.incomplete_by_peer[rank] = self.incomplete_by_peer.get(rank, 0) + 1
        self._elements += outcome.num_elements
        self._delivered_elements += outcome.num_elements * outcome.delivered_ratio
        self._narrow_elements += outcome.num_elements * outcome.narrow_ratio

    @property
    def delivered_ratio(self) -> float:
        return self._delivered_elements / self._elements if self._elements else 1.0

    @property
    def narrow_ratio(self) -> float:
        return self._narrow_elements / self._elements if self._elements else 0.0


def percentile(ascending: list[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else 0.0
