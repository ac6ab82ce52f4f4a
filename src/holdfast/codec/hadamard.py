"""float32 gradients as their randomised Hadamard transform, block by block, and back (OptiReduce, section 3.3).

Encoded, every coefficient holds a little of each of the 1,024 elements of its block, and a block strides over the whole
bucket. A lost packet then takes a little of many elements, not all of a few. Sums of encoded gradients are the encoded
sum, so the core averages what arrived of contributions as ever; only results that did not arrive are made up for here.

The seed must be the same on all ranks, and another one for every bucket: the operation's number is both. Decision 0018
says how blocks lie, and what NaN and Inf do.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from holdfast import _native

Ranges = tuple[tuple[int, int], ...]


class Hadamard:
    """Both ways of one rank: `encode` before a bucket is sent, `decode` when its average is there. Both in place."""

    def __init__(self, *, scales: bool = True) -> None:
        """`scales`: what arrived stands for all; else what is missing is zero, as in the paper."""
        self._scales = scales
        self._num_decoded = 0
        self._num_estimated = 0

    def applies_to(self, gradient: torch.Tensor) -> bool:
        return gradient.dtype == torch.float32

    def encode(self, gradient: torch.Tensor, seed: int) -> None:
        """The gradient is flat, contiguous and on the CPU."""
        _native.hadamard_encode(gradient.data_ptr(), gradient.numel(), seed)

    def decode(self, encoded: torch.Tensor, missing: Sequence[tuple[int, int]], seed: int) -> Ranges:
        """`missing` are the ranges of coefficients that did not arrive and are zero; they ascend.

        What arrived of a block is scaled to stand for all of it. Returns the ranges of elements that are zero because
        nothing arrived of their block.
        """
        self._num_decoded += 1
        self._num_estimated += bool(missing)
        known = list(missing) if self._scales else []
        return tuple(_native.hadamard_decode(encoded.data_ptr(), encoded.numel(), seed, known))

    def invert(self, encoded: torch.Tensor, seed: int) -> None:
        """The elements that these coefficients, all of which are known, stand for."""
        _native.hadamard_decode(encoded.data_ptr(), encoded.numel(), seed, [])

    def describe(self) -> str:
        text = "on, float32 gradients travel as coefficients of blocks of 1,024 that stride over the bucket"
        if self._num_estimated > 0:
            text += f"; {self._num_estimated} of {self._num_decoded} results had some missing and were made up for"
        return text
