"""Who races for what, where: everything that is decided before a race."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import ConfigError
from holdfast.lab.fault import Fault
from holdfast.lab.peer import Peer
from holdfast.lab.profile import Profile
from holdfast.lab.race.task import Task
from holdfast.lab.schedule import Schedule


@dataclass(frozen=True)
class Plan:
    """Impossible ones are ConfigErrors."""

    task: Task
    peers: Sequence[Peer]
    num_hosts: int
    profile: Profile | None
    """None: plain loopback."""
    seed: int
    target: float
    max_steps: int
    faults: Sequence[Fault] = ()
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        self.task.require_data()
        if not self.peers:
            raise ConfigError("a race without peers", what_to_try="--peers gloo-tuned,holdfast")
        exact = [peer.name for peer in self.peers if peer.exact]
        if exact:
            raise ConfigError(
                f"{', '.join(exact)} averages single tensors; training has no such mode",
                what_to_try="`holdfast bench allreduce`, or another peer",
            )
        if self.profile is None:
            self._check_loopback()
        elif any(peer.protection == "insecure" for peer in self.peers):
            raise ConfigError("a job without protection stays on one host", what_to_try="--loopback, or another peer")
        elif any(peer.shared_memory for peer in self.peers):
            raise ConfigError("hosts of their own share no memory", what_to_try="--loopback, or another peer")

    def _check_loopback(self) -> None:
        needy = [peer.name for peer in self.peers if peer.tcp is not None]
        if needy:
            raise ConfigError(
                f"{', '.join(needy)}: TCP settings need hosts of their own, which loopback has not",
                what_to_try="--peers gloo,holdfast",
            )
        if self.faults or self.schedule is not None:
            raise ConfigError("faults and schedules need the lab's hosts", what_to_try="a race without --loopback")

    def turn_seed(self, turn: int) -> int:
        """Of what is random about the network in everybody's turn of this number; 64 bits."""
        return random.Random(f"{self.seed}/turn/{turn}").getrandbits(64)

    def reached(self, metric: float) -> bool:
        return metric >= self.target if self.task.higher_is_better else metric <= self.target
