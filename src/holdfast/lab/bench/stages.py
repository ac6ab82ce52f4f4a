"""The stages of Holdfast's bounded operations by the clock: what ended each, and how far from its bound t_B.

Exact operations have no such bound, and Gloo has no stages: nothing is told of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.lab.quantile import quantile
from holdfast.outcome import Outcome, StageEnd


@dataclass(frozen=True)
class Stage:
    """One stage of one operation on one rank."""

    end: StageEnd
    over_bound_ms: float
    """When it ended, after t_B; negative: before."""


def stages_of(outcome: Outcome) -> tuple[Stage, ...]:
    if outcome.exact:
        return ()
    t_b_ms = outcome.deadline_ms / 2
    return (
        Stage(outcome.contributions_end, outcome.contributions_ms - t_b_ms),
        Stage(outcome.results_end, outcome.results_ms - t_b_ms),
    )


def end_shares(stages: Sequence[Stage]) -> dict[str, float]:
    """How often each kind of end came; nothing where there were no stages."""
    ends = Counter(stage.end for stage in stages)
    return {end: count / len(stages) for end, count in sorted(ends.items())}


def over_bound_ms(stages: Sequence[Stage], share: float) -> float | None:
    """So far after t_B such a share of the stages ended at most."""
    return quantile([stage.over_bound_ms for stage in stages], share) if stages else None
