"""Keeps t_B what it was measured as: the time that 95 % of all stages stay within.

On a quiet network stages take nearly the same time each, so their 95th percentile is hardly more than their median, and
a machine that becomes a little slower than it was during the warm-up then cuts a fifth of them. That is no change of
the network for good, and measuring again would not help against the next one. So every stage that reaches t_B widens it
a little, and all others narrow it again: in balance when five in a hundred reach it, and never below what was measured.

A stage that waited for a rank that sent nothing says nothing about pace: that rank is away.
"""

from __future__ import annotations

HIT_RATIO = 0.05
STEP = 0.02
MOST_RATIO = 1.5
"""A network that needs more has changed, and t_B is measured again."""


class BoundMargin:
    def __init__(self) -> None:
        self.ratio = 1.0

    def observe(self, *, hit_bound: bool) -> None:
        """One stage to which every sender had something to say."""
        wanted = self.ratio * (1 + STEP if hit_bound else 1 - STEP * HIT_RATIO / (1 - HIT_RATIO))
        self.ratio = min(MOST_RATIO, max(1.0, wanted))

    def explain(self) -> str:
        if self.ratio < 1 + STEP / 2:
            return ""
        return f"; now {self.ratio - 1:.0%} more, because more than {HIT_RATIO:.0%} of the stages since reached it"
