"""Who is measured: each takes a tensor and averages it over all ranks, in place."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

from holdfast.bridge import rendezvous
from holdfast.bridge.tensors import memory_of
from holdfast.codec.cast import Cast
from holdfast.codec.hadamard import Hadamard
from holdfast.config import Config
from holdfast.errors import ConfigError
from holdfast.lab.bench.slowest import Witness
from holdfast.lab.bench.stages import Stage, stages_of
from holdfast.lab.peer import Peer
from holdfast.reduce.pending import Memory
from holdfast.reduce.reducer import reducer_for

# Longer than the longest row of stalls that anybody would call a working network.
_GLOO_LIMIT = timedelta(seconds=120)


@dataclass(frozen=True)
class Delivered:
    """What one all-reduce gave this rank."""

    ratio: float
    """Share of all contributions in the result."""
    complete: bool
    missing_by_rank: dict[int, float] = dataclasses.field(default_factory=dict)
    """Of what each rank should have delivered here, the share that did not come; only ranks that miss something."""
    stages: tuple[Stage, ...] = ()
    late_ratio: float | None = None
    """Share of an operation that came since the one before, after its close; none where there is no bound."""
    narrow_ratio: float = 0.0
    """Share of what came that had sixteen bits because it was late."""


class Contestant(Protocol):
    def new_size(self) -> None:
        """The next operations have another size: measure whatever depends on it afresh."""

    def average(self, tensor: torch.Tensor) -> Delivered: ...

    def last_seen(self) -> Witness | None:
        """The operation before, if the contestant can tell about it."""

    def close(self) -> None: ...


class Gloo:
    """torch's own CPU all-reduce over TCP, on connections of its own: they keep the settings they were opened with."""

    def __init__(self, peer: Peer) -> None:
        self._group = dist.new_group(backend="gloo", timeout=_GLOO_LIMIT)
        self._narrow = torch.bfloat16 if peer.wire_bytes == 2 else None

    def new_size(self) -> None:
        pass

    def average(self, tensor: torch.Tensor) -> Delivered:
        if self._narrow is None:
            dist.all_reduce(tensor, group=self._group)
        else:
            narrow = tensor.to(self._narrow)
            dist.all_reduce(narrow, group=self._group)
            tensor.copy_(narrow)
        tensor /= dist.get_world_size()
        return Delivered(1.0, True)

    def last_seen(self) -> None:
        return None

    def close(self) -> None:
        dist.destroy_process_group(self._group)


class Holdfast:
    """The transpose all-reduce: bounded, or exact for comparison (the paper's TAR over a reliable transport); or the one
    in shared memory."""

    def __init__(self, peer: Peer, store: dist.Store, rank: int, num_ranks: int, config: Config) -> None:
        self._exact = peer.exact
        self._last_seen: Witness | None = None
        config = dataclasses.replace(config, **peer.settings)
        self._hadamard = Hadamard(scales=config.estimate == "unbiased")
        self._cast = None if config.wire == "float32" else Cast(config.wire, config.rounding, rank)
        self._link = rendezvous.join(
            dist.PrefixStore(peer.name, store), rank=rank, num_ranks=num_ranks, config=config, step_bytes=0
        )
        if peer.shared_memory and self._link.meeting is None:
            self._link.close()
            raise ConfigError(
                f"{peer.name}: the ranks did not meet in shared memory",
                what_to_try="plain loopback, without --profile and --deadline-ms",
            )
        self.new_size()

    def new_size(self) -> None:
        self._reducer = reducer_for(self._link)

    def average(self, tensor: torch.Tensor) -> Delivered:
        """As the bridge does it for a bucket of one parameter."""
        sent, encoded = tensor, False

        def prepare(operation: int) -> Memory:
            nonlocal sent, encoded
            encoded = not self._exact and self._reducer.encodes(operation)
            if encoded:
                self._hadamard.encode(tensor, operation)
            sent = tensor if self._cast is None else self._cast.narrow(tensor, (("gradient", tensor.numel()),))
            return memory_of(sent)

        outcome = self._reducer.finish(self._reducer.start_numbered(prepare, exact=self._exact))
        self._last_seen = Witness(outcome, time.monotonic_ns() - int(outcome.ended_ms * 1e6))
        if self._cast is not None:
            self._cast.widen(sent, tensor)
        if encoded:
            self._hadamard.decode(tensor, outcome.missing, outcome.operation)
        missing = {
            peer.rank: 1 - (peer.contributed_ratio + peer.results_ratio) / 2
            for peer in outcome.peers
            if not peer.complete
        }
        late_ratio = None if outcome.exact else outcome.late_ratio
        return Delivered(
            outcome.delivered_ratio, outcome.complete, missing, stages_of(outcome), late_ratio, outcome.narrow_ratio
        )

    def last_seen(self) -> Witness | None:
        return self._last_seen

    def close(self) -> None:
        self._link.close()


def make(peer: Peer, store: dist.Store, rank: int, num_ranks: int, config: Config) -> Contestant:
    if peer.transport == "gloo":
        return Gloo(peer)
    return Holdfast(peer, store, rank, num_ranks, config)
