"""The cases of `faults.toml`, read and checked."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Effect = Literal["dies", "leaves", "pauses", "holds the GIL"]
Moment = Literal[
    "before-connect", "handshake", "joined", "first-bucket", "middle-bucket", "last-bucket", "optimizer", "hand-over"
]
Shape = Literal["bounded", "exact", "ddp"]
EFFECTS: tuple[Effect, ...] = get_args(Effect)
MOMENTS: tuple[Moment, ...] = get_args(Moment)
SHAPES: tuple[Shape, ...] = get_args(Shape)

_FILE = Path(__file__).with_name("faults.toml")


@dataclass(frozen=True)
class Limits:
    """What every call is held to, and what counts as nothing left behind."""

    silence_limit_ms: float
    heartbeat_ms: float
    deadline_ms: float
    exact_deadline_ms: float
    join_timeout_s: float
    join_timeout_beside_a_death_s: float
    slack_s: float
    resident_growth_kib: int


@dataclass(frozen=True)
class Fault:
    """What is done to the victim."""

    name: str
    effect: Effect
    seconds: float = 0.0
    exit_code: int = 0
    """Of the victim, as `multiprocessing` tells it: a signal's number is negative."""

    @property
    def is_fatal(self) -> bool:
        return self.effect in ("dies", "leaves")


@dataclass(frozen=True)
class Case:
    """A fault at a moment of one rank of a job."""

    name: str
    fault: Fault
    moment: Moment
    victim: int
    shape: Shape
    ranks: int
    seed: int
    quick: bool
    limits: Limits

    @property
    def is_joining(self) -> bool:
        return self.moment in ("before-connect", "handshake")

    @property
    def falls_silent(self) -> bool:
        """Whether a pause is longer than the others can take it for anything but death."""
        return self.fault.effect == "pauses" and self.fault.seconds * 1e3 > self.limits.silence_limit_ms

    @property
    def survivors(self) -> list[int]:
        return [rank for rank in range(self.ranks) if rank != self.victim]

    @property
    def settings(self) -> dict[str, float]:
        names = ("silence_limit_ms", "heartbeat_ms", "deadline_ms", "exact_deadline_ms")
        return {name: getattr(self.limits, name) for name in names}

    @property
    def join_timeout_s(self) -> float:
        beside_a_death = self.fault.is_fatal and self.is_joining
        return self.limits.join_timeout_beside_a_death_s if beside_a_death else self.limits.join_timeout_s


def load() -> list[Case]:
    data = tomllib.loads(_FILE.read_text())
    limits = Limits(**data["limits"])
    faults = {name: Fault(name, **fields) for name, fields in data["faults"].items()}
    cases = [_case(faults, limits, **entry) for entry in data["cases"]]
    for field in ("name", "seed"):
        values = [getattr(case, field) for case in cases]
        repeated = {value for value in values if values.count(value) > 1}
        assert not repeated, f"{field} given twice: {repeated}"
    return cases


def _case(
    faults: dict[str, Fault],
    limits: Limits,
    fault: str,
    moment: Moment,
    victim: Literal["first", "middle", "last"],
    shape: Shape,
    seed: int,
    ranks: int = 3,
    quick: bool = False,
) -> Case:
    assert moment in MOMENTS, moment
    assert shape in SHAPES, shape
    rank = {"first": 0, "middle": ranks // 2, "last": ranks - 1}[victim]
    name = f"{fault}.{moment}.{victim}.{shape}" + (f".{ranks}-ranks" if ranks != 3 else "")
    return Case(name, faults[fault], moment, rank, shape, ranks, seed, quick, limits)
