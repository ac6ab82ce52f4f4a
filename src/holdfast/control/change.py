"""Has the network changed for good? Then t_B is measured again.

Calibration costs 20 operations at the pace of exact delivery, so a burst, a frozen host or a bad minute must not cause
one. Operations are judged in windows of 100; only windows in a row that say the same count. What t_C is usually is
learnt after the calibration, in the first window most of which stayed within the bound: warm-up ran over exact
delivery, whose times are not those of bounded operations.
"""

from __future__ import annotations

from statistics import median
from typing import Literal

Change = Literal["slower", "faster"]

WINDOW = 100
"""Operations that are judged together."""
MOST_OF_A_WINDOW = 60
"""More than this many of a window's operations must agree. With p99 three times p50, 20 in 100 are slow by chance (of
one rank; fewer of a median over ranks); after all times have doubled, 73 or more are."""
WINDOWS_IN_A_ROW = 2
MOST_WINDOWS_IN_A_ROW = 32
SLOWER_RATIO = 1.5
FASTER_RATIO = 1 / 3
SAME_FINDING_RATIO = 1.25


class NetworkChange:
    """Fed with the operations of one bucket, the largest: the one that t_B was measured with."""

    def __init__(self) -> None:
        self._patience = WINDOWS_IN_A_ROW
        self._start()

    def _start(self) -> None:
        self._usual_ms: float | None = None
        self._t_c_ms: list[float] = []
        self._within_bound_ms: list[float] = []
        self._num_slow = 0
        self._num_fast = 0
        self._verdict: Change | None = None
        self._in_a_row = 0
        self._last = "no window is full yet"

    def observe(self, *, hit_bound: bool, t_c_ms: float) -> Change | None:
        """One operation: whether a stage of it ended at t_B, and its t_C. Not None: calibrate now."""
        self._t_c_ms.append(t_c_ms)
        if not hit_bound:
            self._within_bound_ms.append(t_c_ms)
        usual_ms = self._usual_ms
        if hit_bound or (usual_ms is not None and t_c_ms > SLOWER_RATIO * usual_ms):
            self._num_slow += 1
        elif usual_ms is not None and t_c_ms < FASTER_RATIO * usual_ms:
            self._num_fast += 1
        if len(self._t_c_ms) < WINDOW:
            return None
        return self._close_window()

    def _close_window(self) -> Change | None:
        if self._num_slow > MOST_OF_A_WINDOW:
            found: Change | None = "slower"
        else:
            found = "faster" if self._num_fast > MOST_OF_A_WINDOW else None
        self._in_a_row = self._in_a_row + 1 if found == self._verdict else 1
        self._verdict = found
        if self._usual_ms is None and len(self._within_bound_ms) > WINDOW // 2:
            self._usual_ms = median(self._within_bound_ms)
        usually = "not known yet" if self._usual_ms is None else f"usually {self._usual_ms:.1f} ms"
        self._last = (
            f"of the last {WINDOW} operations {self._num_slow} were slow and {self._num_fast} fast "
            f"(t_C {median(self._t_c_ms):.1f} ms, {usually})"
        )
        self._t_c_ms, self._within_bound_ms = [], []
        self._num_slow = self._num_fast = 0
        return found if self._in_a_row >= self._patience else None

    def recalibrated(self, old_ms: float, new_ms: float) -> None:
        """t_B was measured again. If it came out as before, wait twice as long before believing the next change.

        Some causes of a hit bound are not cured by another bound: a host that is away, marks that are always lost.
        """
        same = old_ms / SAME_FINDING_RATIO < new_ms < old_ms * SAME_FINDING_RATIO
        self._patience = min(MOST_WINDOWS_IN_A_ROW, 2 * self._patience) if same else WINDOWS_IN_A_ROW
        self._start()

    def explain(self) -> str:
        if self._verdict is None:
            return f"t_B stands: {self._last}"
        return (
            f"the network became {self._verdict}: {self._last}, {self._in_a_row} windows in a row; "
            f"t_B is measured again after {self._patience}"
        )
