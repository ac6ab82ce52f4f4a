"""Moves t_B within limits to where it cuts off what a gradient can spare, and no more.

On a quiet network stages take nearly the same time each, so their 95th percentile is hardly more than their median. A
machine that stops for 10 ms now and then, or has become 3 % slower since the warm-up, then loses a third of a stage's
contributions with every pause, or a little in every fifth stage. On a network with long tails it is the other way
round: the warm-up, which runs exactly, met the tail itself, and a bound of twice a usual stage spares nobody the wait.

So what the bound cuts off widens it, and every stage narrows it by what may be cut: in balance where a stage loses
TOLERATED_RATIO at the bound on average. It never falls below TAIL times a usual stage, or what was measured, whichever
is less: nearer than that there is no tail. Nor does it come nearer to a usual stage than ROOM, whatever was measured: so
much stages differ where nothing is the matter, and to cut there saves nobody any time. Nor does it stay above TAIL times
the longest of the last stages: a warm-up that met a host that was away makes a bound that is many times too long.

A stage that waited for a rank that sent nothing says nothing about pace: that rank is away. But a rank that is so in
more than a quarter of the operations is rather late than away, and has the time that was measured with it from then
on.
"""

from __future__ import annotations

from collections import deque

TOLERATED_RATIO = 0.001
"""Of a stage's elements. An operation has two stages, and what it delivers should not fall below 99 % for this alone."""
GAIN = 0.5
"""A stage that lacks a tenth is answered by a twentieth more time, and a hundred that lack nothing take it back."""
REMEMBERED_STAGES = 40
LEAST_RATIO = 0.1
MOST_ABSENT_RATIO = 0.25
ABSENT_WEIGHT = 0.01
"""Of the latest operation in how often a rank is absent: a host that freezes for half a second is not late."""
ROOM = 1.1
"""Without it one stage in twenty ended at t_B on a quiet network, and lacked a hundredth of what was on its way."""
TAIL = 1.4
"""Operations are held to p99 / p50 of at most 1.5 on networks with tails."""
MOST_RATIO = 1.5
"""Of what was measured. A network that needs more has changed, and t_B is measured again."""
USUAL_WEIGHT = 0.05
"""Of the latest stage in what is usual."""


class BoundMargin:
    def __init__(self, t_b_ms: float, floor_ms: float) -> None:
        """`t_b_ms` as measured, and the least that it may ever be."""
        self.ratio = 1.0
        """What holds, over what was measured."""
        self._t_b_ms = t_b_ms
        self._floor_ratio = max(LEAST_RATIO, floor_ms / t_b_ms)
        self._usual_ms = [0.0, 0.0]
        """Of each stage; 0: none was seen yet."""
        self._recent_ms: deque[float] = deque(maxlen=REMEMBERED_STAGES)
        self._widened_by_cuts = False
        """Or else it is the room that a usual stage is given."""
        self._absent_ratio = 0.0
        self._may_narrow = True

    def observe(self, stage: int, *, elapsed_ms: float, cut_ratio: float) -> None:
        """Stage 0 or 1 of an operation to which every sender had something to say: the share that t_B cut off."""
        elapsed_ms = min(elapsed_ms, self.ratio * self._t_b_ms)  # a process that stood still says nothing about stages
        before_ms = self._usual_ms[stage] or elapsed_ms
        self._usual_ms[stage] = before_ms + USUAL_WEIGHT * (elapsed_ms - before_ms)
        self._recent_ms.append(elapsed_ms)
        most = MOST_RATIO
        if len(self._recent_ms) == REMEMBERED_STAGES:
            most = min(most, TAIL * max(self._recent_ms) / self._t_b_ms)
        if cut_ratio > TOLERATED_RATIO:
            self._widened_by_cuts = True
        self._move_to(min(most, self.ratio * (1 + GAIN * (cut_ratio - TOLERATED_RATIO))))

    def observe_absence(self, *, absent: bool) -> None:
        """One operation: did a rank that lives send nothing until t_B? It is away, or the bound is too narrow for it."""
        self._absent_ratio += ABSENT_WEIGHT * (absent - self._absent_ratio)
        self._may_narrow = self._may_narrow and self._absent_ratio <= MOST_ABSENT_RATIO
        self._move_to(self.ratio)

    def _move_to(self, ratio: float) -> None:
        usual_ratio = max(self._usual_ms) / self._t_b_ms
        least = min(1.0, max(self._floor_ratio, TAIL * usual_ratio)) if self._may_narrow else 1.0
        with_room = min(MOST_RATIO, ROOM * usual_ratio)
        if with_room >= max(least, ratio):
            self._widened_by_cuts = False
        self.ratio = max(least, with_room, ratio)

    def explain(self) -> str:
        change = round(100 * (self.ratio - 1))
        if change == 0:
            return ""
        if change < 0:
            return f"; now {-change} % less, because that cuts off hardly more of the stages"
        if self._widened_by_cuts:
            return f"; now {change} % more, because it cut off more than {TOLERATED_RATIO:.1%} of the stages since"
        return f"; now {change} % more, to be {ROOM:g} times what a stage usually takes"
