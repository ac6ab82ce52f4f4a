"""The models that tests of `holdfast.attach` train, their inputs, and what is compared of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

AMPLE = {"deadline_ms": 20_000.0, "early_wait_floor_ms": 5_000.0, "join_timeout_s": 20.0}
SLACK_MS = 900.0


class MixedDtypes(nn.Module):
    """Three dtypes, hence three buckets at least."""

    def __init__(self) -> None:
        super().__init__()
        self.single = nn.Linear(12, 17)
        self.wide = nn.Linear(17, 5).double()
        self.narrow = nn.Linear(5, 3).bfloat16()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.narrow(self.wide(self.single(inputs).double()).bfloat16()).float()


class SharedAndFrozen(nn.Module):
    """A parameter used twice and one that takes no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.frozen = nn.Linear(12, 12)
        self.frozen.requires_grad_(False)
        self.last = nn.Linear(12, 3, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(self.frozen(torch.tanh(self.first(inputs)))))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 31), nn.Tanh(), nn.Linear(31, 31), nn.Tanh(), nn.Linear(31, 3))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (3, 2, 2)),
        nn.Conv2d(3, 8, 2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(72, 3),
    )


def inputs_of(rank: int, step: int, size: int = 8) -> torch.Tensor:
    return torch.randn(size, 12, generator=torch.Generator().manual_seed(977 * step + rank))


def wrapped(make: Callable[[], nn.Module], **options: Any) -> DistributedDataParallel:
    torch.manual_seed(7)
    return DistributedDataParallel(make(), **options)


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def digest_of(tensors: Iterator[torch.Tensor] | list[torch.Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
