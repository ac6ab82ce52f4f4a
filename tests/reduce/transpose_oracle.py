"""What an all-reduce must give: gradients that every rank can make, and the float64 sum of them."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from holdfast.bridge.tensors import memory_of
from holdfast.outcome import Outcome
from holdfast.reduce.transpose import TransposeAllReduce

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
MEGABYTE = 1 << 20
# Far beyond what a loaded machine needs, so that only a real loss ends an operation incomplete.
AMPLE_MS = 20_000.0
# A scheduler's turn on a loaded machine with two cores; bounds are asserted with this much room.
SLACK_MS = 900.0


def gradient_of(rank: int, count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """What a rank contributes: every rank can make every rank's."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.empty(count, dtype=torch.float32).normal_(generator=generator).to(dtype)


def assert_is_the_sum(result: torch.Tensor, num_ranks: int, seed: int, *, average: bool) -> None:
    """Compares with a float64 sum, allowing a rounding per addition of the accumulator and one of the result."""
    accumulator = torch.float64 if result.dtype == torch.float64 else torch.float32
    gradients = [gradient_of(rank, result.numel(), result.dtype, seed) for rank in range(num_ranks)]
    for begin in range(0, result.numel(), 1 << 22):
        part = slice(begin, begin + (1 << 22))
        parts = [gradient[part].double() for gradient in gradients]
        reference = sum(parts, torch.zeros_like(parts[0]))
        magnitude = sum((p.abs() for p in parts), torch.zeros_like(parts[0]))
        if average:
            reference, magnitude = reference / num_ranks, magnitude / num_ranks
        finest = torch.finfo(result.dtype).smallest_normal * torch.finfo(result.dtype).eps
        allowed = (
            torch.finfo(result.dtype).eps / 2 * reference.abs()
            + (num_ranks + 4) * torch.finfo(accumulator).eps * magnitude
            + finest
        )
        wrong = (result[part].double() - reference).abs() > allowed
        assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} wrong from {begin}: seed {seed}"


def digest_of(tensor: torch.Tensor) -> str:
    return hashlib.blake2b(tensor.view(torch.uint8).numpy(), digest_size=8).hexdigest()


def reduce_once(reducer: TransposeAllReduce, tensor: torch.Tensor, **options: Any) -> Outcome:
    return reducer.finish(reducer.start(memory_of(tensor), **options))
