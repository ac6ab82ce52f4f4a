"""Schedules: a network that changes while a job runs, by epochs or steps that its ranks announce, or by seconds.

models = "..."
clock = "epoch"          # or step, second
[[phases]]
at = 13                  # from here on
profile = "shared-3"     # if absent: the profile of the run
delay_ms = 1.0           # every path's delay instead of the profile's
rate_ratio = 0.04        # every link's rate, times this
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from holdfast.errors import BrokenLabFile
from holdfast.lab import lab_file
from holdfast.lab.conditions import Conditions, Path, Port
from holdfast.lab.profile import Profile, load_profile

FOLDER = "schedules"


@dataclass(frozen=True)
class Phase:
    at: float
    profile: str | None = None
    delay_ms: float | None = None
    rate_ratio: float = 1.0

    def conditions(self, of_the_run: Profile, num_hosts: int, bits_per_s: float, seed: int) -> Conditions:
        """The whole network during this phase."""
        profile = of_the_run if self.profile is None else load_profile(self.profile)
        return (
            profile.conditions(num_hosts, bits_per_s=bits_per_s, seed=seed)
            .with_paths(self._path)
            .with_ports(self._port)
        )

    def _path(self, path: Path) -> Path:
        return path if self.delay_ms is None else dataclasses.replace(path, delay_ms=self.delay_ms)

    def _port(self, port: Port) -> Port:
        return dataclasses.replace(
            port,
            uplink_bits_per_s=port.uplink_bits_per_s * self.rate_ratio,
            downlink_bits_per_s=port.downlink_bits_per_s * self.rate_ratio,
        )


@dataclass(frozen=True)
class Schedule:
    name: str
    models: str
    clock: Literal["epoch", "step", "second"]
    phases: tuple[Phase, ...]

    def phase(self, position: float) -> Phase | None:
        """The phase at this epoch, step or second; None before the first."""
        begun = [phase for phase in self.phases if phase.at <= position]
        return begun[-1] if begun else None

    def next_change(self, position: float) -> float | None:
        """Where the next phase begins; None in the last one."""
        return next((phase.at for phase in self.phases if phase.at > position), None)


@dataclass(frozen=True)
class _Document:
    models: str
    clock: Literal["epoch", "step", "second"]


def shipped_schedules() -> list[str]:
    return lab_file.shipped(FOLDER)


def load_schedule(name_or_path: str) -> Schedule:
    """A shipped schedule by name, or a file."""
    document: dict[str, Any] = lab_file.load(FOLDER, name_or_path)
    tables = document.pop("phases", [])
    head = lab_file.record(_Document, document, name_or_path)
    if not isinstance(tables, list) or not tables:
        raise BrokenLabFile(f"{name_or_path}: no phases", what_to_try="at least one [[phases]] table")
    phases = tuple(lab_file.record(Phase, table, f"{name_or_path}: phase {i}") for i, table in enumerate(tables))
    for phase in phases:
        if not 0 < phase.rate_ratio <= 1:
            raise BrokenLabFile(f"{name_or_path}: rate_ratio is {phase.rate_ratio}", what_to_try="a share in (0, 1]")
        if phase.profile is not None:
            load_profile(phase.profile)
    if any(later.at <= earlier.at for earlier, later in pairwise(phases)):
        raise BrokenLabFile(f"{name_or_path}: phases must be in order of `at`, no two at the same")
    return Schedule(name_or_path, " ".join(head.models.split()), head.clock, phases)
