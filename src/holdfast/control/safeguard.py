"""How much loss a step may suffer before its update does more harm than good (OptiReduce 3.4).

What counts are the contributions of those that took part: a rank that is dead, or silent in an operation, is missed by
all alike and is no reason to stop. The share follows from what owners say was in their sums, so ranks that received all
results judge alike; one that did not knows, and is compared with the others whatever it decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

OverBudget = Literal["skip", "halt"]


@dataclass(frozen=True)
class PeerShare:
    """What came of one peer in one operation."""

    rank: int
    took_part: bool
    lost: bool
    """Something of its contribution is missing here."""


@dataclass
class StepLosses:
    """What the operations of one step lost, as this rank knows it."""

    num_operations: int = 0
    not_received_elements: int = 0
    """Of results, which others may have."""
    withdrawn: bool = False
    """Less than half of an operation arrived: what there is of it is not worth applying."""
    _contributed: float = 0.0
    _expected: float = 0.0
    _losses_by_peer: dict[int, int] = field(default_factory=dict)

    def add(
        self, *, num_elements: int, contributed_elements: float, not_received_elements: int, peers: Iterable[PeerShare]
    ) -> None:
        """`contributed_elements`: over all ranks, those that are in this rank's result."""
        self.num_operations += 1
        self.not_received_elements += not_received_elements
        self.withdrawn = self.withdrawn or 2 * not_received_elements > num_elements
        shares = list(peers)
        for share in shares:
            if share.lost and share.took_part:
                self._losses_by_peer[share.rank] = self._losses_by_peer.get(share.rank, 0) + 1
        # What did not arrive here says nothing about what was contributed to it.
        arrived = num_elements - not_received_elements
        self._contributed += contributed_elements
        self._expected += arrived * (1 + sum(share.took_part for share in shares))

    @property
    def lost_ratio(self) -> float:
        return max(0.0, 1 - self._contributed / self._expected) if self._expected else 0.0

    @property
    def culprits(self) -> list[int]:
        """Those that lost something, most often first."""
        return sorted(self._losses_by_peer, key=lambda rank: (-self._losses_by_peer[rank], rank))


@dataclass(frozen=True)
class Judgement:
    apply: bool
    halt: bool
    doubtful: bool
    """Near enough to the budget for another rank to judge otherwise."""


_DOUBTFUL_SHARE = 0.8


class LossBudget:
    def __init__(self, budget: float, over_budget: OverBudget, most_skipped: int) -> None:
        """`most_skipped`: so many updates in a row may be left out before training halts."""
        self._budget = budget
        self._over_budget = over_budget
        self._most_skipped = most_skipped
        self.skipped = 0
        self.skipped_in_a_row = 0

    def judge(self, losses: StepLosses) -> Judgement:
        if losses.withdrawn:
            return Judgement(apply=False, halt=False, doubtful=True)
        doubtful = losses.lost_ratio > _DOUBTFUL_SHARE * self._budget
        if losses.lost_ratio <= self._budget:
            self.skipped_in_a_row = 0
            return Judgement(apply=True, halt=False, doubtful=doubtful)
        self.skipped += 1
        self.skipped_in_a_row += 1
        halt = self._over_budget == "halt" or self.skipped_in_a_row > self._most_skipped
        return Judgement(apply=False, halt=halt, doubtful=doubtful)

    def explain(self) -> str:
        beyond = (
            "training halts"
            if self._over_budget == "halt"
            else f"the update is left out, and after {self._most_skipped} in a row training halts"
        )
        said = f"a step may lose {self._budget:.0%} of the contributions of those that take part; beyond that {beyond}"
        return said + (f"; {self.skipped} left out so far" if self.skipped else "")
