"""x: how long a silence ends a stage, as a share of t_C (OptiReduce, section 3.2.1).

The paper steers x by the entries that were dropped. Here only what arrived *after* the close counts: waiting longer
would have saved it. What the network lost never comes, so no wait helps, and raising x for it would slow every
operation on a lossy network for nothing.

The paper acts on every round. Here the mean over 100 operations decides, and the window starts anew after each change:
a mean that still holds operations of the former x would double x again and again for one burst. Doubling does not wait
for the window's end if its sum already exceeds what 100 operations may have; but it waits for ten operations, so that
one burst over a few operations doubles x once. Lowering always waits for the whole window.
"""

from __future__ import annotations

START_RATIO = 0.10
MOST_RATIO = 0.50
LEAST_RATIO = 0.01
"""The paper names no lower limit. At 0 the first pause between two datagrams would end a stage."""
DECREMENT_RATIO = 0.01
LATE_SHARE_HIGH = 0.001
LATE_SHARE_LOW = 0.0001
WINDOW = 100
LEAST_OPERATIONS_TO_DOUBLE = 10


class EarlyWait:
    """x of one rank, between limits that the user may give."""

    def __init__(self, least_ratio: float = LEAST_RATIO, most_ratio: float = MOST_RATIO, floor_ms: float = 0.0) -> None:
        """`floor_ms`: a shorter silence means nothing. A sender that its scheduler puts aside is silent too."""
        if not 0 < least_ratio <= most_ratio:
            raise ValueError(f"x cannot stay between {least_ratio:g} and {most_ratio:g}")
        self._least_ratio = least_ratio
        self._most_ratio = most_ratio
        self._floor_ms = floor_ms
        self._num_operations = 0
        self._sum_late = 0.0
        self.ratio = self._limited(START_RATIO)
        self._reason = "nothing has been measured yet"

    def observe(self, late_share: float) -> float:
        """One operation, with the share of it that arrived after the close. Returns x for the next one."""
        self._num_operations += 1
        self._sum_late += late_share
        # Whatever the rest of the window brings, its mean is above.
        is_high = self._sum_late > LATE_SHARE_HIGH * WINDOW
        if is_high and self._num_operations >= LEAST_OPERATIONS_TO_DOUBLE:
            self._change(2 * self.ratio, "doubled", f"above {LATE_SHARE_HIGH:.2%}")
        elif self._num_operations == WINDOW:
            if self._sum_late < LATE_SHARE_LOW * WINDOW:
                self._change(self.ratio - DECREMENT_RATIO, "lowered by a point", f"below {LATE_SHARE_LOW:.2%}")
            else:
                self._change(self.ratio, "kept", f"within {LATE_SHARE_LOW:.2%} and {LATE_SHARE_HIGH:.2%}")
        return self.ratio

    def wait_ms(self, t_c_ms: float) -> float:
        """The silence that ends a stage: x of t_C, or more where that is too short to mean anything."""
        return max(self._floor_ms, self.ratio * t_c_ms)

    def explain(self) -> str:
        return f"x {self.ratio:.1%} of t_C: {self._reason}"

    def _limited(self, ratio: float) -> float:
        return min(self._most_ratio, max(self._least_ratio, ratio))

    def _change(self, wanted: float, what: str, why: str) -> None:
        now = self._limited(wanted)
        if now == self.ratio and wanted != now:
            what = f"already at its limit, else {what}"
        elif now != wanted:
            what += " as far as its limit"
        share = self._sum_late / self._num_operations
        self._reason = f"{what}, {share:.3%} of the last {self._num_operations} operations came late, {why}"
        self.ratio = now
        self._num_operations, self._sum_late = 0, 0.0
