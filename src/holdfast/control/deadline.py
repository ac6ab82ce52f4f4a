"""How long an all-reduce may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A sender that the scheduler puts aside for a moment is silent too, and its last packets are not lost.
LEAST_SILENCE_MS = 5.0


@dataclass(frozen=True)
class Bound:
    """A bound in force, and the sentence that says why."""

    deadline_ms: float
    usual_stage_ms: float
    """t_C: what a stage takes when nothing goes wrong."""
    reason: str

    @property
    def stage_ms(self) -> float:
        """t_B: each of the two stages gets half."""
        return self.deadline_ms / 2

    def early_wait_ratio(self, wanted: float) -> float:
        """x: this share of a usual stage, or more where that is too short a silence to mean anything."""
        return max(wanted, LEAST_SILENCE_MS / self.usual_stage_ms)


def given_bound(deadline_ms: float) -> Bound:
    return Bound(deadline_ms, deadline_ms / 2, f"{deadline_ms:.1f} ms, as given")


def measured_bound(slowest_ms_by_rank: Sequence[float], *, factor: float, floor_ms: float) -> Bound:
    """`factor` times the slowest warm-up operation of any rank, but at least `floor_ms`."""
    slowest_rank = max(range(len(slowest_ms_by_rank)), key=lambda rank: slowest_ms_by_rank[rank])
    slowest_ms = slowest_ms_by_rank[slowest_rank]
    deadline_ms = max(floor_ms, factor * slowest_ms)
    reason = (
        f"{deadline_ms:.1f} ms: {factor:g} x the slowest warm-up operation ({slowest_ms:.1f} ms, rank {slowest_rank})"
    )
    if factor * slowest_ms < floor_ms:
        reason += f", raised to the floor of {floor_ms:g} ms"
    return Bound(deadline_ms, deadline_ms / 2 / factor, reason)
