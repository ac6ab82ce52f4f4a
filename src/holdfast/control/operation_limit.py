"""How long an operation may take as a whole, where that is less than both of its stages may last.

t_B bounds a stage, and two stages of that length are three times what an operation usually takes where results stream
while contributions still arrive. So t_B ends what waits for a rank that is away, but it does not keep operations alike:
where neighbours take a port for a while, one rank's results come in long after all others have theirs.

The limit is what nineteen of twenty operations take until their last rank has the result, but at least ROOM and at most TAIL
times what they usually take. What it cuts off is mostly the end of one rank's results, which is mended as after any loss. It is
longer where more than one operation in ten would take longer still: a network whose tails are the rule keeps its tails and not
its gaps. Each rank announces how long its stages took; one that was cut counts as long as its slowest sender would have taken
at its pace. Operations during which a host stood still do not count, and those of the warm-up do until there are enough others.
If several in a row are cut here, it is not a tail but another network, a neighbour that stays, or a rank that calls late from
now on: what is usual is learnt anew, and only t_B holds meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from holdfast.control.hard_bound import nearest_rank

TAIL = 1.3
"""Operations are held to p99 / p50 of at most 1.5 on networks with tails. Late contributions take 8 % more, and what
ranks wake late and begin apart comes on top: with 1.34 it was 1.43 and 1.50."""
ROOM = 1.1
"""Where operations are alike to cut nearer saves nobody any time, and loses what a machine that pauses holds up."""
PERCENTILE = 95
"""Between ROOM and TAIL; t_B's percentile too (OptiReduce, section 3.2.1)."""
LONG_TAIL_PERCENTILE, NARROW_LONG_TAIL_PERCENTILE = 90, 88
"""Whatever TAIL says. Less where what is late leaves in sixteen bits (narrowing.py): more of it has come by then."""
CONTRIBUTIONS_SHARE = 0.7
"""Of the limit, or of TAIL times the usual: so much for the contributions, which are most of an operation where a rank
always calls late, and at least RESULTS_SHARE for the results after that. When a rank stops sending in the midst of an
operation all of them may still be to come, which are half of its bytes, and nobody else is to lose them."""
RESULTS_SHARE = 0.38
NARROW_CONTRIBUTIONS_SHARE, NARROW_RESULTS_SHARE = 0.75, 0.3
"""Where what is late leaves in sixteen bits (narrowing.py), so do the results of late contributions, in two fifths of the
bytes: the time is better given to the contributions, which nobody sends again."""
REMEMBERED_OPERATIONS = 200
LEAST_OPERATIONS = 10
"""Before that nothing is usual."""
CUT_IN_A_ROW = 4


@dataclass(frozen=True)
class LimitMs:
    contributions: float = 0.0
    """Since the operation opened."""
    whole: float = 0.0
    """Since this rank called; 0: there is no limit."""
    results: float = 0.0
    """At least so long since the contributions ended, whatever they took."""

    @classmethod
    def of(cls, whole_ms: float, usual_ms: float, *, narrows: bool = False) -> LimitMs:
        stages_ms = max(whole_ms, TAIL * usual_ms)
        contributions, results = (
            (NARROW_CONTRIBUTIONS_SHARE, NARROW_RESULTS_SHARE) if narrows else (CONTRIBUTIONS_SHARE, RESULTS_SHARE)
        )
        return cls(contributions * stages_ms, whole_ms, results * stages_ms)


class OperationLimit:
    def __init__(self, warm_up_ms: Iterable[float] = ()) -> None:
        """`warm_up_ms`: what operations took that were not limited; it holds until enough have been that are."""
        self._warm_up_ms = list(warm_up_ms)
        self._took_ms: deque[float] = deque(maxlen=REMEMBERED_OPERATIONS)
        self._num_cut_in_a_row = 0
        self.narrows = False
        """What is late leaves in sixteen bits."""
        self.ms: float | None = None
        """None: not known yet."""
        self._learn()

    def observe_end(self, *, cut: bool) -> None:
        """An operation has ended: at the limit, here?"""
        self._num_cut_in_a_row = self._num_cut_in_a_row + 1 if cut else 0
        if self._num_cut_in_a_row == CUT_IN_A_ROW:
            self._took_ms.clear()
            self._warm_up_ms.clear()
            self._num_cut_in_a_row = 0
            self.ms = None

    def observe(self, announced_ms: Iterable[float]) -> None:
        """One operation to which every rank had something to say, and what the one before took each of them."""
        self._took_ms.append(max(announced_ms))
        self._learn()

    @property
    def _known_ms(self) -> Sequence[float]:
        return self._took_ms if len(self._took_ms) >= LEAST_OPERATIONS else self._warm_up_ms

    def _learn(self) -> None:
        if len(self._known_ms) >= LEAST_OPERATIONS:
            usual_ms = median(self._known_ms)
            within_ms = max(ROOM * usual_ms, min(TAIL * usual_ms, self._percentile_ms(PERCENTILE)))
            self.ms = max(within_ms, self._percentile_ms(self._long_tail_percentile))

    @property
    def _long_tail_percentile(self) -> int:
        return NARROW_LONG_TAIL_PERCENTILE if self.narrows else LONG_TAIL_PERCENTILE

    def _percentile_ms(self, percentile: int) -> float:
        return sorted(self._known_ms)[nearest_rank(percentile, len(self._known_ms))]

    def of_operation(self, *, least_ms: float) -> LimitMs:
        if self.ms is None:
            return LimitMs()
        return LimitMs.of(max(least_ms, self.ms), median(self._known_ms), narrows=self.narrows)

    def explain(self, *, least_ms: float) -> str:
        if self.ms is None:
            return "both stages together have no limit of their own yet"
        limit, usual_ms = self.of_operation(least_ms=least_ms), median(self._known_ms)
        if self.ms < least_ms:
            why = f"the floor; until the last rank had the result it usually took {usual_ms:.1f} ms"
        elif self.ms in (ROOM * usual_ms, TAIL * usual_ms):
            why = f"{self.ms / usual_ms:g} times the usual {usual_ms:.1f} ms, until the last rank had the result"
        else:
            percentile = self._long_tail_percentile if self.ms > TAIL * usual_ms else PERCENTILE
            why = f"{percentile} % of the operations took no more, until the last rank had the result"
        most_ms = limit.contributions + limit.results
        return f"both stages together last {limit.whole:.1f} ms at most ({most_ms:.1f} after late contributions): {why}"
