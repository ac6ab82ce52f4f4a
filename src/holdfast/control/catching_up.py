"""Whether a rank that was away makes up for the steps that the others have made without it.

Its training loop counts steps: the sampler, the schedule of the learning rate and the end of the epoch follow from that. So
it makes the missed ones, too, but alone: forward and backward, nothing sent and nothing applied, which takes no longer
than its own work. Where that is most of a step the others would be gone again before it has caught up. Then it leaves the
steps out, and its loop stays behind theirs.
"""

from __future__ import annotations

from collections import deque
from statistics import median

MOST_STEPS_MEANWHILE = 16
"""The others may make so many until it has caught up. Each of them is without its gradient."""
_KEPT_STEPS = 15


class OwnWork:
    """Which share of a step is this rank's own work, and not waiting for the network; the median of the last steps, for
    what a loop does only now and then (an evaluation, a checkpoint) says nothing about the next ones."""

    def __init__(self) -> None:
        self._step_began_s: float | None = None
        self._worked_s: float | None = None
        self._ratios: deque[float] = deque(maxlen=_KEPT_STEPS)

    @property
    def ratio(self) -> float:
        """1 before anything is known."""
        return median(self._ratios) if self._ratios else 1.0

    def done(self, now_s: float) -> None:
        """Its gradients are on their way: from here on it waits."""
        if self._step_began_s is not None:
            self._worked_s = now_s - self._step_began_s

    def step_ended(self, now_s: float, *, usual: bool) -> None:
        """`usual`: it took part, as it does in most steps."""
        if usual and self._worked_s is not None and self._step_began_s is not None:
            whole_s = now_s - self._step_began_s
            self._ratios.append(min(1.0, self._worked_s / whole_s) if whole_s > 0 else 1.0)
        self._step_began_s, self._worked_s = now_s, None


def makes_up_for(missed_steps: int, own_work_ratio: float) -> bool:
    """While it makes the missed ones, the others make more, and more while it makes those: a geometric series."""
    if own_work_ratio >= 1:
        return False
    return missed_steps * own_work_ratio / (1 - own_work_ratio) <= MOST_STEPS_MEANWHILE
