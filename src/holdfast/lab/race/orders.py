"""What the runner and a rank say to each other, over a socket that the rank inherits: never over the measured network.

The runner sends a `Start` and then, again and again, (verb, arguments), where the verb is a method of `rank.Rank`, or
`end`. The rank answers each with a `Ready`, `Trained`, `Scored` or `Failed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Start:
    task: str
    peer: str
    seed: int
    store: Path
    """File in which the ranks of this peer find each other."""
    prepared: Path
    """Where the task has what it made before the race."""
    in_lab: bool


@dataclass(frozen=True)
class Ready:
    """Connected to all other ranks."""

    parameters: int


@dataclass(frozen=True)
class Trained:
    """One turn of one rank. All but the step times are of the whole race so far."""

    step_ms: list[float]
    delivered_ratio: float = 1.0
    incomplete_by_rank: Mapping[int, int] = field(default_factory=dict)
    explain: tuple[str, ...] = ()


@dataclass(frozen=True)
class Score:
    metric: float
    loss: float


@dataclass(frozen=True)
class Scored:
    """The models of one turn, in the order of their steps. Their parameters lie one behind the other in the rank's memory."""

    by_steps: Mapping[int, Score]
    """After how many steps of the race."""


@dataclass(frozen=True)
class Failed:
    reason: str
    step_ms: list[float]
    """Of the steps of this turn that were still done."""
    by_steps: Mapping[int, Score] = field(default_factory=dict)
    """Of the models that this turn had made by then."""
