"""t_C: what a stage usually takes, per bucket and stage (OptiReduce, section 3.2.1 and figure 8)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median
from typing import Literal

StageEnd = Literal["complete", "early", "limit", "bound"]
"""How a stage ended: everything came; silence after the last percentile; more than operations usually take; t_B."""

ALPHA = 0.95
"""Weight of the newest median; the paper's figure."""


def stage_sample_ms(end: StageEnd, elapsed_ms: float, bound_ms: float, received: int, total: int) -> float:
    """What one stage says about t_C. `received` and `total` in any one unit.

    A stage that was cut short is taken as long as it would have been at its own pace; one that received nothing has no
    pace, and counts as the bound. So does one that the limit cut off and that t_B would have cut off later.
    """
    if end == "complete":
        return elapsed_ms
    if end == "bound" or received <= 0:
        return bound_ms
    at_its_pace_ms = elapsed_ms * (total / received)
    return min(bound_ms, at_its_pace_ms) if end == "limit" else at_its_pace_ms


class EarlyTimeout:
    """t_C of one stage of one bucket, starting from that bucket's t_B (the paper gives no start)."""

    def __init__(self, initial_ms: float) -> None:
        self.t_c_ms = initial_ms
        self._reason = f"t_C {initial_ms:.1f} ms: t_B, until the first operation has been measured"

    def update(self, own_sample_ms: float, peer_samples_ms: Iterable[float | None]) -> float:
        """After a stage: our own sample and those that peers announced; None where a peer announced nothing."""
        announced = [ms for ms in peer_samples_ms if ms is not None and math.isfinite(ms) and ms >= 0]
        samples_ms = [own_sample_ms, *announced]
        median_ms = median(samples_ms)
        before_ms = self.t_c_ms
        self.t_c_ms = ALPHA * median_ms + (1 - ALPHA) * before_ms
        self._reason = (
            f"t_C {self.t_c_ms:.1f} ms: {ALPHA:g} x {median_ms:.1f} ms, the median of {len(samples_ms)} ranks "
            f"(here {own_sample_ms:.1f} ms), and the rest from {before_ms:.1f} ms before"
        )
        return self.t_c_ms

    def explain(self) -> str:
        return self._reason
