"""Whether gradients travel as their Hadamard transform: switched on by loss, off again when it is long over.

OptiReduce (3.2.1) switches it on above 2 % of loss and leaves open what switches it off, and who decides. All ranks must
encode alike, so they exchange what each has lost, and each applies the same rule to the same table.

The loss is the mean over the ranks of the share of all gradient entries, one per rank and element, that the network dropped
on their way in the last operations, whether in contributions or in results. What came too late was not dropped, and what a
rank did not send because it was away was not either: whole contributions are missing then, and there is nothing that a
transform could spread. A quarter of the entries, in those operations that lost most of theirs, does not count: a network
that stops for a moment may drop half of an operation, and nothing of the next ones. Counted by entries, because a step is
several operations, large and small.

What the rule remembers between two exchanges must be the same everywhere too. Each rank says where it stands; if two
differ (one of them has missed an exchange), all go on from where most of them stand. Where there is no such place they take
the transform on: it is right at any loss, and only costs time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

ON_ABOVE = 0.02
OFF_BELOW = 0.005
NUM_CALM = 3
"""Exchanges in a row, each over some sixteen operations, that must be below `OFF_BELOW`."""
OUTLIERS_RATIO = 0.25
"""Of the entries, at most; operations may lose what they will of these."""
_UNKNOWN = -1.0


class HadamardSwitch:
    def __init__(self) -> None:
        self.on = False
        self.reason = f"it comes on when the network drops more than {ON_ABOVE:.0%}"
        self._num_calm = 0  # exchanges in a row; counted while it is on
        self._seen: list[tuple[int, int]] = []  # entries lost, and expected, by operation since the last view

    def observe(self, num_lost: int, num_expected: int) -> None:
        """One operation of this rank: how many entries the network dropped, and of how many."""
        self._seen.append((num_lost, num_expected))

    def take_view(self) -> list[float]:
        """What this rank tells the others of the operations since it was last asked."""
        usual = _without_outliers(self._seen)
        self._seen = []
        num_lost, num_expected = (sum(column) for column in zip(*usual, strict=True)) if usual else (0, 0)
        return [self._standing(), num_lost / num_expected if num_expected else _UNKNOWN]

    def agree(self, views: Sequence[Sequence[float]]) -> bool:
        """All ranks' views, by rank. True: it is switched."""
        was_on = self.on
        standings = [standing for standing, _ in views]
        most = max(standings, key=standings.count)
        if 2 * standings.count(most) <= len(standings):
            self.on, self._num_calm = True, 0
            self.reason = "ranks had seen different things, and begin again with what is right at any loss"
            return not was_on
        if most != self._standing():
            self.on, self._num_calm = most > 0, max(0, round(most) - 1)
            self.reason = "most ranks had seen what this one had not"
        ratios = [ratio for _, ratio in views if 0 <= ratio <= 1]  # whoever says anything else has not measured it
        if ratios:
            self._follow(math.fsum(ratios) / len(ratios))
        return was_on != self.on

    def _follow(self, lost_ratio: float) -> None:
        if not self.on:
            if lost_ratio > ON_ABOVE:
                self.on, self._num_calm = True, 0
                self.reason = f"{lost_ratio:.1%} of all gradient entries were dropped, more than {ON_ABOVE:.0%}"
            return
        self._num_calm = self._num_calm + 1 if lost_ratio < OFF_BELOW else 0
        if self._num_calm == NUM_CALM:
            self.on, self._num_calm = False, 0
            self.reason = f"less than {OFF_BELOW:.1%} was dropped in {NUM_CALM} exchanges, last {lost_ratio:.2%}"

    def _standing(self) -> float:
        return float(1 + self._num_calm) if self.on else 0.0

    def explain(self) -> str:
        return f"the Hadamard transform is {'on' if self.on else 'off'}: {self.reason}"


def _without_outliers(seen: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Entries lost, and expected, of the operations that lost the least share of theirs."""
    may_go = OUTLIERS_RATIO * sum(expected for _, expected in seen)
    worst_first = sorted(((lost, expected) for lost, expected in seen if expected), key=lambda pair: -pair[0] / pair[1])
    for index, (_, expected) in enumerate(worst_first):
        may_go -= expected
        if may_go < 0:
            return worst_first[index:]
    return []
