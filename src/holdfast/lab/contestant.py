"""The peers of a comparison: each takes a tensor and averages it over all ranks, in place."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from holdfast.bridge import rendezvous
from holdfast.bridge.tensors import memory_of
from holdfast.config import Config, ProtectionName
from holdfast.errors import ConfigError
from holdfast.reduce.transpose import TransposeAllReduce

GLOO = "gloo"
# Every Holdfast contestant and the protection it runs with.
HOLDFAST: dict[str, ProtectionName] = {
    "holdfast": "encrypted",
    "holdfast-exact": "encrypted",
    "holdfast-authenticated": "authenticated",
    "holdfast-insecure": "insecure",
}
NAMES = (*HOLDFAST, GLOO)


@dataclass(frozen=True)
class Delivered:
    """What one all-reduce gave this rank."""

    ratio: float
    """Share of all contributions in the result."""
    complete: bool


class Contestant(Protocol):
    name: str

    def new_size(self) -> None:
        """The next operations have another size: measure whatever depends on it afresh."""

    def average(self, tensor: torch.Tensor) -> Delivered: ...

    def close(self) -> None: ...


class Gloo:
    """torch's own CPU all-reduce over TCP, on the default group."""

    name = GLOO

    def new_size(self) -> None:
        pass

    def average(self, tensor: torch.Tensor) -> Delivered:
        dist.all_reduce(tensor)
        tensor /= dist.get_world_size()
        return Delivered(1.0, True)

    def close(self) -> None:
        pass


class Holdfast:
    """The transpose all-reduce: bounded, or exact for comparison (the paper's TAR over a reliable transport)."""

    def __init__(self, name: str, store: dist.Store, rank: int, num_ranks: int, config: Config) -> None:
        self.name = name
        self._exact = name == "holdfast-exact"
        config = dataclasses.replace(config, protection=HOLDFAST[name])
        self._link = rendezvous.join(
            dist.PrefixStore(name, store), rank=rank, num_ranks=num_ranks, config=config, step_bytes=0
        )
        self.new_size()

    def new_size(self) -> None:
        self._reducer = TransposeAllReduce(self._link)

    def average(self, tensor: torch.Tensor) -> Delivered:
        outcome = self._reducer.finish(self._reducer.start(memory_of(tensor), exact=self._exact))
        return Delivered(outcome.delivered_ratio, outcome.complete)

    def close(self) -> None:
        self._link.close()


def make(name: str, store: dist.Store, rank: int, num_ranks: int, config: Config) -> Contestant:
    if name == GLOO:
        return Gloo()
    if name in HOLDFAST:
        return Holdfast(name, store, rank, num_ranks, config)
    raise ConfigError(f"unknown peer {name!r}", what_to_try=f"one of {', '.join(NAMES)}")
