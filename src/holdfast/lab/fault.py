"""Faults: what breaks, where and when, as files. The seed decides what the file leaves open.

models = "..."
[[faults]]
kind = "kill"            # see `Kind`
host = "one"             # one (chosen by the seed), last, or a number
at_step = 12             # when that host announces this step; or at_s = 3.5, seconds after the start
jitter_s = 1.0           # up to so much later, by the seed (with at_s)
for_s = 2.0              # then it is undone; absent: it stays
ratio = 3.0              # how much slower, for the kinds that slow
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.errors import BrokenLabFile
from holdfast.lab import lab_file
from holdfast.lab.profile import choose_host

FOLDER = "faults"

Kind = Literal[
    "kill",  # SIGKILL to the host's command and all it started
    "stop",  # SIGSTOP, and SIGCONT after for_s
    "slow_cpu",  # the command gets 1/ratio of its time, as on a machine whose hypervisor steals the rest
    "slow_backward",  # a command that asks `holdfast.lab.events` how slow it is computes ratio times as long
    "slow_nic",  # the host's link has 1/ratio of its rate, both ways
    "link_down",  # everything to and from the host is lost
    "freeze",  # the host's packets stand still, both ways
]
_SLOWING = ("slow_cpu", "slow_backward", "slow_nic")


@dataclass(frozen=True)
class _Table:
    kind: Kind
    host: int | str
    at_step: int | None = None
    at_s: float | None = None
    jitter_s: float = 0.0
    for_s: float | None = None
    ratio: float | None = None


@dataclass(frozen=True)
class Fault:
    """One fault with everything decided."""

    kind: Kind
    host: int
    at_step: int | None
    at_s: float | None
    for_s: float | None
    ratio: float

    def __str__(self) -> str:
        when = f"at step {self.at_step}" if self.at_step is not None else f"at {self.at_s:.2f} s"
        length = "" if self.for_s is None else f" for {self.for_s:g} s"
        strength = f" x{self.ratio:g}" if self.kind in _SLOWING else ""
        return f"{self.kind}{strength} on host {self.host} {when}{length}"


@dataclass(frozen=True)
class FaultFile:
    name: str
    models: str
    tables: tuple[_Table, ...]

    def faults(self, num_hosts: int, seed: int) -> list[Fault]:
        """For so many hosts; the same seed gives the same faults."""
        return [self._decide(table, position, num_hosts, seed) for position, table in enumerate(self.tables)]

    def _decide(self, table: _Table, position: int, num_hosts: int, seed: int) -> Fault:
        name = f"{seed}/{self.name}/{position}"
        delay_s = random.Random(f"{name}/jitter").uniform(0, table.jitter_s)
        return Fault(
            kind=table.kind,
            host=choose_host(table.host, num_hosts, f"{name}/host", self.name),
            at_step=table.at_step,
            at_s=None if table.at_s is None else table.at_s + delay_s,
            for_s=table.for_s,
            ratio=1.0 if table.ratio is None else table.ratio,
        )


def shipped_faults() -> list[str]:
    return lab_file.shipped(FOLDER)


def load_faults(name_or_path: str) -> FaultFile:
    """A shipped fault file by name, or a file."""
    document = lab_file.load(FOLDER, name_or_path)
    tables, models = document.pop("faults", []), document.pop("models", None)
    if document:
        raise BrokenLabFile(f"{name_or_path}: unknown {', '.join(document)}", what_to_try="`models` and [[faults]]")
    if not isinstance(models, str) or not isinstance(tables, list) or not tables:
        raise BrokenLabFile(f"{name_or_path}: needs `models` and at least one [[faults]] table")
    read = tuple(_check(lab_file.record(_Table, table, _where(name_or_path, i)), _where(name_or_path, i))
                 for i, table in enumerate(tables))  # fmt: skip
    return FaultFile(name_or_path, " ".join(models.split()), read)


def kinds() -> tuple[str, ...]:
    return get_args(Kind)


def _where(name: str, position: int) -> str:
    return f"{name}: fault {position}"


def _check(table: _Table, where: str) -> _Table:
    if (table.at_step is None) == (table.at_s is None):
        raise BrokenLabFile(f"{where} needs exactly one of at_step and at_s")
    if table.jitter_s and table.at_s is None:
        raise BrokenLabFile(f"{where}: jitter_s goes with at_s")
    if min(table.jitter_s, table.at_s or 0, table.at_step or 0) < 0:
        raise BrokenLabFile(f"{where}: times and steps are not negative")
    if table.for_s is not None and (table.for_s <= 0 or table.kind == "kill"):
        raise BrokenLabFile(f"{where}: for_s must be positive, and death lasts")
    if table.kind in _SLOWING and not 1 < (table.ratio or 0) <= 100:
        raise BrokenLabFile(f"{where}: {table.kind} needs a ratio above 1, at most 100")
    if table.kind not in _SLOWING and table.ratio is not None:
        raise BrokenLabFile(f"{where}: {table.kind} takes no ratio")
    return table
