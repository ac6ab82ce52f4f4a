"""What the exact operations before the first bounded one took, and what follows from it for all ranks alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast import _native
from holdfast.outcome import Outcome
from holdfast.reduce.report import somebody_was_silent, stage_times_ms

_UNKNOWN = -1.0
_VALUES_PER_OPERATION = 3


@dataclass(frozen=True)
class Measured:
    """By all ranks, on the largest bucket."""

    stages_ms: list[list[float]]
    """By rank. One that could not finish all of its operations has fewer than the others."""
    operations_ms: list[float]
    """Of the slowest rank; without operations during which somebody stood still: they are not what is usual."""


class WarmUpTimes:
    def __init__(self) -> None:
        self._told: dict[int, list[float]] = {}  # by bytes: of each operation both stages, and all of it

    def add(self, outcome: Outcome, report: _native.OperationReport) -> None:
        whole_ms = outcome.contributions_ms + outcome.results_ms
        silent = somebody_was_silent(report, outcome.rank)
        told = [*stage_times_ms(outcome), _UNKNOWN if silent else whole_ms]
        self._told.setdefault(outcome.num_bytes, []).extend(told)

    def to_exchange(self, num_bytes: int, num_operations: int) -> list[float]:
        """Of the first so many operations of this size; a rank that has fewer says so."""
        count = _VALUES_PER_OPERATION * num_operations
        told = self._told.get(num_bytes, [])[:count]
        return [*told, *([_UNKNOWN] * (count - len(told)))]


def measured(told_by_rank: Sequence[Sequence[float]]) -> Measured:
    """From what all ranks have told."""
    stages_ms = [
        [ms for place, ms in enumerate(told) if place % _VALUES_PER_OPERATION < 2 and ms >= 0] for told in told_by_rank
    ]
    wholes_ms = zip(*(told[2::_VALUES_PER_OPERATION] for told in told_by_rank), strict=True)
    return Measured(stages_ms, [max(of_ranks) for of_ranks in wholes_ms if min(of_ranks) >= 0])
