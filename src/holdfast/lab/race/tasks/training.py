"""What a rank trains: a model, its optimizer, its share of every step's batch, and how good it is by now.

Everything follows from the seed, the rank and the step, never from the peer: so all peers train the same.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from holdfast.lab.race.orders import Score


@dataclass(frozen=True)
class Place:
    """Which of how many ranks, with which seed, and where a task keeps what it prepared."""

    seed: int
    rank: int
    num_ranks: int
    prepared: Path


class Training(Protocol):
    model: nn.Module
    optimizer: torch.optim.Optimizer

    def loss(self, model: nn.Module, step: int) -> torch.Tensor:
        """Of this rank's batch of the step. `model` is `self.model`, or DDP round it."""

    def evaluate(self, model: nn.Module) -> Score:
        """On data that no rank trains on; the same on every rank. `model`: one like `self.model`."""


def begin(task: str, place: Place) -> Training:
    """The task's model and data at the start of the race."""
    torch.manual_seed(place.seed)
    module = importlib.import_module(f"{__package__}.{task}")
    training: Training = module.begin(place)
    return training
