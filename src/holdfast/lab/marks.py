"""The mark by which every process of a lab is known: an environment variable that names the lab and its process.

It survives whatever a worker starts, so nothing of a lab can be missed when it ends.
The names begin with an underscore because `HOLDFAST_...` is a setting.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LAB = "_HOLDFAST_LAB"
EVENTS = "_HOLDFAST_LAB_EVENTS"
PACE = "_HOLDFAST_LAB_PACE"


@dataclass(frozen=True)
class LabId:
    """A lab and the process that owns it; process numbers are used again, so the start time is part of the name."""

    process_namespace: int
    process: int
    started: int
    unique: str

    @classmethod
    def of_this_process(cls) -> LabId:
        process = os.getpid()
        started = _start_time(process)
        assert started is not None
        return cls(_own_process_namespace(), process, started, secrets.token_hex(4))

    @classmethod
    def parse(cls, text: str) -> LabId | None:
        fields = text.split(".")
        if len(fields) != 4 or not all(field.isdigit() for field in fields[:3]):
            return None
        return cls(int(fields[0]), int(fields[1]), int(fields[2]), fields[3])

    def __str__(self) -> str:
        return f"{self.process_namespace}.{self.process}.{self.started}.{self.unique}"

    def is_gone(self) -> bool:
        """Whether the owner has ended. A lab in another container is none of our business, so never gone."""
        return self.process_namespace == _own_process_namespace() and _start_time(self.process) != self.started


def marked_processes() -> Iterator[tuple[int, LabId]]:
    """Every living process that carries a mark and may be looked at."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # ended meanwhile, or of another user
        for variable in environment.split(b"\0"):
            name, _, value = variable.partition(b"=")
            lab = LabId.parse(value.decode(errors="replace")) if name == LAB.encode() else None
            if lab is not None:
                yield int(entry.name), lab


def _start_time(process: int) -> int | None:
    """In clock ticks since boot; None if there is no such process, or only what its parent has not collected."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _own_process_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
