"""Measuring t_B again while training goes on, when the network has changed for good.

The warm-up runs exactly, which every rank must do alike. Here nobody has to agree on anything: for 20 operations the
bound is twice as wide, so that stages show how long they really take, and the times of the other ranks are those that
they announce in their packets anyway, as in the paper. Ranks may then differ a little in their t_B; each bounds only
its own waiting. Only first stages count: of the second, which begins while the first is under way, what is announced is
the little that is left of it when the first has closed.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.control.hard_bound import NUM_WARM_UP_OPERATIONS, HardBound

WIDENING = 2.0


class Recalibration:
    def __init__(self, why: str) -> None:
        self._why = why
        self._num_operations = 0
        self._stages_ms: list[float] = []

    def add(self, contributions_ms: float, announced_ms: Iterable[float | None]) -> bool:
        """One operation on the largest bucket, of this rank and of those that announced theirs. True: enough of them."""
        self._num_operations += 1
        self._stages_ms += [contributions_ms, *(ms for ms in announced_ms if ms is not None)]
        return self._num_operations >= NUM_WARM_UP_OPERATIONS

    def bound(self, before: HardBound) -> HardBound:
        return HardBound.found_again(before, self._stages_ms, self._why)

    def explain(self) -> str:
        left = NUM_WARM_UP_OPERATIONS - self._num_operations
        return f"t_B is measured again, {left} operations to go, with twice the bound meanwhile: {self._why}"
