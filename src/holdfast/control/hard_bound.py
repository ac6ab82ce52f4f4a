"""t_B: the longest that one stage of an all-reduce may last (OptiReduce, section 3.2.1).

Measured over exact delivery on the largest bucket, where a stage takes as long as the network takes to deliver all of
it. The paper uses the largest bucket's bound for every bucket; here it is scaled by bytes, so that a small bucket does
not wait a large one's time for a peer that is away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

PERCENTILE = 95
NUM_WARM_UP_OPERATIONS = 20


@dataclass(frozen=True)
class HardBound:
    """A bound in force, and the sentence that says why."""

    t_b_ms: float
    """For a bucket of `num_bytes`."""
    num_bytes: int
    """0: the bound is the same for every bucket."""
    floor_ms: float
    reason: str

    @classmethod
    def given(cls, deadline_ms: float) -> HardBound:
        """The user's deadline for an operation: half for each of its two stages, whatever the bucket's size."""
        stage_ms = deadline_ms / 2
        return cls(stage_ms, 0, stage_ms, f"t_B {stage_ms:.1f} ms a stage: half of the {deadline_ms:g} ms given")

    @classmethod
    def measured(cls, stage_ms_by_rank: Sequence[Sequence[float]], num_bytes: int, floor_ms: float) -> HardBound:
        """The 95th percentile of every rank's warm-up stages, both stages in one list, but at least `floor_ms`.

        `num_bytes` is the size of the bucket they were measured with. A rank that could not measure is an empty list.
        """
        stages = sorted((ms, rank) for rank, times in enumerate(stage_ms_by_rank) for ms in times)
        if not stages or num_bytes <= 0 or not all(math.isfinite(ms) and ms >= 0 for ms, _ in stages):
            raise ValueError(f"no bound from {len(stages)} stage times of a bucket of {num_bytes} bytes")
        found_ms, rank = stages[nearest_rank(PERCENTILE, len(stages))]
        slowest_ms, slowest_rank = stages[-1]
        t_b_ms = max(found_ms, floor_ms)
        reason = (
            f"t_B {t_b_ms:.1f} ms a stage of {num_bytes:,} bytes: {PERCENTILE} % of {len(stages)} warm-up stages took "
            f"{found_ms:.1f} ms or less (rank {rank}; slowest {slowest_ms:.1f} ms, rank {slowest_rank})"
        )
        if found_ms < floor_ms:
            reason += f", raised to the floor of {floor_ms:g} ms"
        return cls(t_b_ms, num_bytes, floor_ms, reason)

    @classmethod
    def unmeasured(cls, deadline_ms: float) -> HardBound:
        """Where every warm-up operation failed: as long as an exact operation may take, until there are times."""
        stage_ms = deadline_ms / 2
        return cls(stage_ms, 0, stage_ms, f"t_B {stage_ms:.1f} ms a stage: no warm-up operation came to its end")

    @classmethod
    def found_again(cls, before: HardBound, stages_ms: Sequence[float], why: str) -> HardBound:
        """From stages of bounded operations of this rank and of those that announced theirs."""
        stages = sorted(stages_ms)
        found_ms = stages[nearest_rank(PERCENTILE, len(stages))]
        t_b_ms = max(found_ms, before.floor_ms)
        reason = (
            f"t_B {t_b_ms:.1f} ms a stage of {before.num_bytes:,} bytes: {PERCENTILE} % of {len(stages)} stages took "
            f"{found_ms:.1f} ms or less when measured again (before: {before.t_b_ms:.1f} ms), because {why}"
        )
        return cls(t_b_ms, before.num_bytes, before.floor_ms, reason)

    @classmethod
    def of_more_bytes(cls, before: HardBound, ratio: float) -> HardBound:
        """When the same buckets begin to take more bytes over the network."""
        t_b_ms = before.t_b_ms * ratio
        reason = f"t_B {t_b_ms:.1f} ms a stage: {before.t_b_ms:.1f} ms for {ratio:.1f} times as many bytes"
        return cls(t_b_ms, before.num_bytes, before.floor_ms, reason)

    @classmethod
    def loaded(cls, t_b_ms: float, num_bytes: int, floor_ms: float) -> HardBound:
        """As an earlier run found it."""
        of = f" of {num_bytes:,} bytes" if num_bytes else ""
        return cls(t_b_ms, num_bytes, min(t_b_ms, floor_ms), f"t_B {t_b_ms:.1f} ms a stage{of}: as loaded")

    def stage_ms(self, num_bytes: int) -> float:
        """t_B of a bucket of `num_bytes`: in proportion to its bytes, never below the floor."""
        if self.num_bytes == 0:
            return self.t_b_ms
        return max(self.floor_ms, self.t_b_ms * num_bytes / self.num_bytes)


def nearest_rank(percentile: int, num_values: int) -> int:
    """Index, in ascending order, of the smallest value that at least `percentile` % of the values do not exceed.

    The nearest-rank percentile is one of the measured values, so a rank can be named that made it so; in integers,
    because 0.95 x 20 in floating point is not certain to round the right way.
    """
    return max(0, -(-percentile * num_values // 100) - 1)
