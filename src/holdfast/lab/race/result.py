"""What came of a race, as data: the report, the picture and the JSON file are made from this and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LOOPBACK = "loopback"
"""The profile's name where there is no lab."""


@dataclass(frozen=True)
class Evaluation:
    """How good the model is after so many steps and so many seconds of training."""

    steps: int
    seconds: float
    """Of training; evaluations and other peers' turns are not counted."""
    metric: float
    loss: float
    drift: float | None
    """Largest difference of a parameter between two ranks; None: only one rank told what it had."""


@dataclass(frozen=True)
class Event:
    """Something worth a mark in the report."""

    seconds: float
    """Of this peer's training."""
    what: str


@dataclass(frozen=True)
class SwitchLateness:
    """How late the lab's switch was during the peer's own turns."""

    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    losses: Mapping[str, int]
    """Packets by cause."""


@dataclass(frozen=True)
class Run:
    """One peer's training. The first twelve fields are the table of every race."""

    task: str
    profile: str
    hosts: int
    peer: str
    seed: int
    steps: int
    seconds_to_target: float | None
    """None: the target was not reached."""
    final_metric: float
    step_p50_ms: float
    step_p99_ms: float
    delivered_ratio: float
    """Of whole turns, so also of the steps between the target and the end of its turn; `incomplete_by_rank` and `lateness` too."""
    drift_max: float
    seconds: float
    """Of training in all."""
    step_ms: tuple[float, ...]
    """Of the slowest rank of every step."""
    evaluations: tuple[Evaluation, ...]
    events: tuple[Event, ...] = ()
    incomplete_by_rank: Mapping[int, int] = field(default_factory=dict)
    """Operations that each rank did not deliver in full (Holdfast): who was late."""
    lateness: SwitchLateness | None = None
    explain: tuple[str, ...] = ()
    """Holdfast's own words about bound, credit and rate."""


@dataclass(frozen=True)
class RaceResult:
    task: str
    task_title: str
    """For headings: `Digits, 8x8 images, 10 classes`."""
    metric: str
    """`accuracy` or `loss`."""
    higher_is_better: bool
    target: float
    profile: str
    profile_models: str
    hosts: int
    bits_per_s: float | None
    seed: int
    parameters: int
    runs: tuple[Run, ...]
    further_arguments: tuple[str, ...] = ()
    """What else was asked for on the command line, so that the same race can be run again."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def reached(self, metric: float) -> bool:
        return metric >= self.target if self.higher_is_better else metric <= self.target
