"""How much loss a step may suffer before its update does more harm than good (OptiReduce 3.4).

What counts are the contributions of those that took part: a rank that is away is missed by all alike, and no reason to
stop. Who took part, and what of it is in a sum, owners say with their results; so all ranks that received all results
judge alike, and one that did not knows that its state may differ from theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

OverBudget = Literal["skip", "halt"]


@dataclass
class StepLosses:
    """What the operations of one step lost, as this rank knows it."""

    num_operations: int = 0
    not_received_elements: int = 0
    """Of results, which others may have."""
    withdrawn: bool = False
    """Less than half of an operation arrived, or nobody else took part in it: what there is of it is not applied."""
    _contributed: float = 0.0
    _expected: float = 0.0
    _losses_by_peer: dict[int, int] = field(default_factory=dict)

    def add(
        self,
        *,
        withdraws: bool = True,
        num_elements: int,
        not_received_elements: int,
        ownerless_elements: int,
        contributed_elements: float,
        contributors: int,
        incomplete_peers: Iterable[int],
    ) -> None:
        """One operation. `withdraws`: there is somebody to have the state from afterwards. `contributed_elements`: over all `contributors`, those that are in this rank's result."""
        self.num_operations += 1
        self.not_received_elements += not_received_elements
        too_little = 2 * not_received_elements > num_elements or contributors < 2
        self.withdrawn = self.withdrawn or (withdraws and too_little)
        # What did not arrive says nothing about what was contributed to it.
        self._contributed += contributed_elements
        self._expected += (num_elements - not_received_elements - ownerless_elements) * contributors
        for rank in incomplete_peers:
            self._losses_by_peer[rank] = self._losses_by_peer.get(rank, 0) + 1

    @property
    def lost_ratio(self) -> float:
        return max(0.0, 1 - self._contributed / self._expected) if self._expected else 0.0

    @property
    def culprits(self) -> list[int]:
        """Those of which something was missing, most often first."""
        return sorted(self._losses_by_peer, key=lambda rank: (-self._losses_by_peer[rank], rank))


@dataclass(frozen=True)
class Judgement:
    apply: bool
    halt: bool


class LossBudget:
    def __init__(self, budget: float, over_budget: OverBudget, most_skipped: int) -> None:
        """`most_skipped`: so many updates in a row may be left out before training halts."""
        self._budget = budget
        self._over_budget = over_budget
        self._most_skipped = most_skipped
        self.skipped = 0
        self.skipped_in_a_row = 0

    def judge(self, losses: StepLosses) -> Judgement:
        if losses.num_operations == 0:  # another optimizer has made its step of these gradients already
            return Judgement(apply=True, halt=False)
        if losses.withdrawn:
            return Judgement(apply=False, halt=False)
        if losses.lost_ratio <= self._budget:
            self.skipped_in_a_row = 0
            return Judgement(apply=True, halt=False)
        self.skipped += 1
        self.skipped_in_a_row += 1
        halt = self._over_budget == "halt" or self.skipped_in_a_row > self._most_skipped
        return Judgement(apply=False, halt=halt)

    def explain(self) -> str:
        beyond = (
            "training halts"
            if self._over_budget == "halt"
            else f"the update is left out, and after {self._most_skipped} in a row training halts"
        )
        said = f"a step may lose {self._budget:.0%} of the contributions of those that take part; beyond that {beyond}"
        return said + (f"; {self.skipped} left out so far" if self.skipped else "")
