"""What the network lost of a parameter's gradient is added to its next one (loss feedback).

A result says how often this rank's contribution counts in it: not at all where it was lost or late, and more than once
where it stands for others that were. A gradient g that counts k times where it should count once leaves (1 - k) g over.
Added to the parameter's next gradient, it makes every gradient count once over time, none of it twice: what was applied
and what is left over are together what was computed, but where it stood for more than twice itself. Decision 0024 says
where that helps training, and where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from holdfast.codec.residual import Layout, Residuals
from holdfast.codec.spare_memory import SpareMemory

# Element ranges, ascending, and how often the own contribution counts there. In all others it counts once.
Counted = Sequence[tuple[int, int, float]]


@dataclass(frozen=True)
class _Sent:
    contribution: torch.Tensor
    layout: Layout


class LossFeedback:
    """Of one rank: `add_left_over` and `keep` before a bucket is sent, `settle` when its average is there."""

    def __init__(self, wire: torch.dtype) -> None:
        """`wire`: in which float32 gradients travel."""
        self._residuals = Residuals()
        self._left_over: set[str] = set()  # parameters that have something
        self._memory = SpareMemory(wire)
        self._under_way: dict[int, _Sent] = {}  # by operation
        self._num_settled = 0
        self._num_returned = 0

    def applies_to(self, gradient: torch.Tensor) -> bool:
        return gradient.dtype == torch.float32

    def add_left_over(self, gradient: torch.Tensor, layout: Layout) -> None:
        """Adds what earlier gradients of these parameters left over. They have nothing left then."""
        names = {name for name, _ in layout}
        if self._left_over.isdisjoint(names):
            return
        residual = self._residuals.of_bucket(layout)
        gradient += residual
        residual.zero_()
        self._left_over -= names

    def keep(self, contribution: torch.Tensor, layout: Layout, operation: int) -> None:
        """What goes over the wire, as it does: the operation will write the result over it."""
        copy = self._memory.take(contribution.numel())
        self._under_way[operation] = _Sent(copy.copy_(contribution), layout)

    def settle(self, operation: int, counted: Counted, decode: Callable[[torch.Tensor], object] | None = None) -> None:
        """The operation has ended. `decode` makes elements of what was kept, in place, where that is coefficients."""
        sent = self._under_way.pop(operation)
        self._num_settled += 1
        if counted:
            self._num_returned += 1
            left_over = sent.contribution * _weights(counted, sent.contribution.numel())
            if decode is not None:
                decode(left_over)
            # A GradScaler leaves out a step in which it finds one of these; they must not come again.
            left_over.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            self._residuals.of_bucket(sent.layout).add_(left_over)
            self._left_over.update(name for name, _ in sent.layout)
        self._memory.give_back(sent.contribution)

    def abandon(self, operation: int) -> None:
        """Nobody will know what became of it."""
        if (sent := self._under_way.pop(operation, None)) is not None:
            self._memory.give_back(sent.contribution)

    def forget(self) -> None:
        """Leaves nothing over from earlier gradients."""
        self._residuals.forget()
        self._left_over.clear()

    def describe(self) -> str:
        return (
            "what does not count in an average is added to the parameter's next gradient; so far after "
            f"{self._num_returned} of {self._num_settled} operations"
        )


def _weights(counted: Counted, num_elements: int) -> torch.Tensor:
    """By element, the share of the contribution that is left over."""
    parts = np.asarray(counted, dtype=np.float64)
    edges = parts[:, :2].astype(np.int64).ravel()
    lengths = np.diff(edges, prepend=0, append=num_elements)  # a range that counts once, one that does not, and so on
    weights = np.zeros(len(lengths), dtype=np.float32)
    # Where few stand for many, again and again, what is taken back would grow from step to step. It may not.
    weights[1::2] = np.maximum(1 - parts[:, 2], -1)
    return torch.from_numpy(np.repeat(weights, lengths))
