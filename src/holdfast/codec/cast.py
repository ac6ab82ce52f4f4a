"""float32 gradients as 16 bits on the wire, and back.

Rounding to nearest would lose the same small part of the same element in every step, and training would never see it.
`stochastic` rounds up or down at random, so that the mean over steps and ranks is the gradient; `feedback` keeps what
rounding left over and adds it to the next gradient of the same parameter. Decision 0012 compares the two.
"""

from __future__ import annotations

import logging
from typing import Protocol

import torch

from holdfast import _native
from holdfast.codec.residual import Layout, Residuals
from holdfast.codec.spare_memory import SpareMemory
from holdfast.config import RoundingName, WireName

logger = logging.getLogger(__name__)

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FORMATS = {torch.bfloat16: _native.Format.bf16, torch.float16: _native.Format.f16}
# One rank casts fewer buckets than this in any training, so that no two ranks ever use the same seed.
_BUCKETS_PER_RANK = 1 << 48


class Cast:
    """Both ways of one rank: `narrow` before a bucket is sent, `widen` when its average is there."""

    def __init__(self, wire: WireName, rounding: RoundingName, rank: int) -> None:
        self.dtype = _DTYPES[wire]
        self.num_clipped = 0
        """Elements that were finite and beyond the largest finite value of the format, and were sent as that value."""
        self._rank = rank
        self._rounding: _Rounding = _Stochastic(rank) if rounding == "stochastic" else _Feedback()
        self._memory = SpareMemory(self.dtype)

    def applies_to(self, gradient: torch.Tensor) -> bool:
        return gradient.dtype == torch.float32

    def narrow(self, gradient: torch.Tensor, layout: Layout) -> torch.Tensor:
        """The gradient (flat, contiguous, on the CPU) in 16 bits, in memory that `widen` takes back."""
        narrow = self._memory.take(gradient.numel())
        num_clipped = self._rounding.round(gradient, narrow, layout)
        if num_clipped > 0 and self.num_clipped == 0:
            logger.warning(
                "[rank %d] %d gradient elements are beyond %g, the largest %s: they are sent as that. "
                'wire="bf16" has the range of float32; `explain()` counts on',
                self._rank,
                num_clipped,
                torch.finfo(self.dtype).max,
                self.dtype,
            )
        self.num_clipped += num_clipped
        return narrow

    def widen(self, narrow: torch.Tensor, gradient: torch.Tensor) -> None:
        """Writes the average over the gradient. `narrow` must not be used any more."""
        _native.cast(_native.Format.f32, gradient.data_ptr(), _FORMATS[narrow.dtype], narrow.data_ptr(), narrow.numel())
        self._memory.give_back(narrow)

    def forget(self) -> None:
        """Leaves nothing over from earlier gradients."""
        self._rounding.forget()

    def describe(self) -> str:
        text = f"{self.dtype}".removeprefix("torch.") + f" for float32 gradients, {self._rounding.description}"
        if self.num_clipped > 0:
            text += f"; {self.num_clipped} elements were beyond {torch.finfo(self.dtype).max:g} and clipped"
        return text


class _Rounding(Protocol):
    description: str

    def round(self, gradient: torch.Tensor, narrow: torch.Tensor, layout: Layout) -> int:
        """Fills `narrow`; returns how many elements were clipped."""

    def forget(self) -> None: ...


class _Stochastic:
    description = "rounded at random without bias"

    def __init__(self, rank: int) -> None:
        self._seed = rank * _BUCKETS_PER_RANK

    def round(self, gradient: torch.Tensor, narrow: torch.Tensor, layout: Layout) -> int:
        self._seed += 1  # counted, not drawn: a run can be repeated
        return _native.narrow_stochastic(
            _FORMATS[narrow.dtype], narrow.data_ptr(), gradient.data_ptr(), gradient.numel(), self._seed
        )

    def forget(self) -> None:
        pass


class _Feedback:
    description = "what rounding leaves over is added to the next gradient of the parameter"

    def __init__(self) -> None:
        self._residuals = Residuals()

    def round(self, gradient: torch.Tensor, narrow: torch.Tensor, layout: Layout) -> int:
        residual = self._residuals.of_bucket(layout)
        if residual.numel() != gradient.numel():
            raise ValueError(f"{gradient.numel()} gradient elements for parameters of {residual.numel()}")
        return _native.narrow_with_residual(
            _FORMATS[narrow.dtype], narrow.data_ptr(), gradient.data_ptr(), residual.data_ptr(), gradient.numel()
        )

    def forget(self) -> None:
        self._residuals.forget()
