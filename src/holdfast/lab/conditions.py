"""What the network is like, as plain data: the twin of the native switch's `Conditions`, field by field.

Frozen, so that a schedule or a fault is a changed copy, and the way back is the copy before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast import _native


@dataclass(frozen=True)
class Episodes:
    """Something that comes and goes by the clock. Without a gap it is always there."""

    on_ms: float = 0.0
    """Mean length of an episode."""
    off_ms: float = 0.0
    """Mean gap between two; 0: one episode that never ends."""
    lengths: Literal["exponential", "uniform"] = "exponential"
    spread_ratio: float = 0.0
    """Uniform lengths lie in mean x (1 - spread) to mean x (1 + spread); 0: all equal."""

    @property
    def share(self) -> float:
        """Of all time, on average."""
        return 1.0 if self.off_ms == 0 else self.on_ms / (self.on_ms + self.off_ms)


@dataclass(frozen=True)
class Port:
    """One host's link to the switch, and the switch's queue towards the host."""

    uplink_bits_per_s: float
    downlink_bits_per_s: float
    queue_bytes: int = 256 << 10
    """Towards the host, drop-tail, cross traffic included."""
    cross_traffic_share: float = 0.0
    """Of the downlink's rate, during `cross_traffic`; above 1 it fills the queue."""
    cross_traffic: Episodes = Episodes()
    slow_down_ratio: float = 1.0
    """Divides the downlink's rate, during `slow_downs`."""
    slow_downs: Episodes = Episodes()
    frozen: bool = False
    """During `freezes` neither direction moves; each holds up to `queue_bytes` and drops the rest."""
    freezes: Episodes = Episodes()
    down: bool = False
    """Everything to and from the host is lost."""


@dataclass(frozen=True)
class Path:
    """From one host to another, one way."""

    loss_ratio: float = 0.0
    """Each packet by itself."""
    burst_loss_ratio: float = 0.0
    """During `bursts`: with their gaps a Gilbert-Elliott channel on a clock."""
    bursts: Episodes = Episodes()
    delay_ms: float = 0.0
    tail_delay_ms: float = 0.0
    """Added to the delay during `tails`; packets never overtake each other."""
    tails: Episodes = Episodes()


@dataclass(frozen=True)
class Conditions:
    """Every port and every path of a network."""

    ports: tuple[Port, ...]
    paths: Mapping[tuple[int, int], Path] = field(default_factory=dict)
    """By (from, to)."""

    def with_port(self, host: int, change: Callable[[Port], Port]) -> Conditions:
        ports = tuple(change(port) if index == host else port for index, port in enumerate(self.ports))
        return dataclasses.replace(self, ports=ports)

    def with_ports(self, change: Callable[[Port], Port]) -> Conditions:
        return dataclasses.replace(self, ports=tuple(change(port) for port in self.ports))

    def with_paths(self, change: Callable[[Path], Path]) -> Conditions:
        return dataclasses.replace(self, paths={ends: change(path) for ends, path in self.paths.items()})

    def to_json(self) -> dict[str, Any]:
        return {
            "ports": [dataclasses.asdict(port) for port in self.ports],
            "paths": [[*ends, dataclasses.asdict(path)] for ends, path in self.paths.items()],
        }


def native_conditions(document: Mapping[str, Any]) -> _native.Conditions:
    """What `to_json` wrote, for the native switch. Raises ValueError where a figure is out of its range."""
    conditions = _native.Conditions(len(document["ports"]))
    for target, values in zip(conditions.ports, document["ports"], strict=True):
        _fill(target, values)
    for sender, receiver, values in document["paths"]:
        _fill(conditions.paths[sender, receiver], values)
    conditions.validate()
    return conditions


def _fill(target: object, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(target, name, _native_episodes(value) if isinstance(value, dict) else value)


def _native_episodes(values: Mapping[str, Any]) -> _native.Episodes:
    return _native.Episodes(
        values["on_ms"], values["off_ms"], getattr(_native.Lengths, values["lengths"]), values["spread_ratio"]
    )
