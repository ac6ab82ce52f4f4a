"""Processor time that the hypervisor gave to others: a virtual machine that is robbed measures its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_STEAL = 7
# user, nice, system, idle, iowait, irq, softirq, steal. The guests' time, which follows, is part of user and nice.
_NUM_KINDS = 8


@dataclass(frozen=True)
class ProcessorTime:
    """Of all processors together, in the kernel's ticks: since boot, or between two such readings."""

    stolen: int = 0
    total: int = 0

    @classmethod
    def now(cls) -> ProcessorTime:
        return cls.parse(Path("/proc/stat").read_text())

    @classmethod
    def parse(cls, stat: str) -> ProcessorTime:
        name, *fields = stat.partition("\n")[0].split()
        if name != "cpu" or len(fields) < _NUM_KINDS:
            raise ValueError(f"not the first line of /proc/stat: {name!r} with {len(fields)} figures")
        kinds = [int(field) for field in fields[:_NUM_KINDS]]
        return cls(kinds[_STEAL], sum(kinds))

    def __add__(self, other: ProcessorTime) -> ProcessorTime:
        return ProcessorTime(self.stolen + other.stolen, self.total + other.total)

    def __sub__(self, earlier: ProcessorTime) -> ProcessorTime:
        return ProcessorTime(self.stolen - earlier.stolen, self.total - earlier.total)

    @property
    def stolen_ratio(self) -> float:
        """0 for a span shorter than a tick. The kernel may take some of it back: never below 0."""
        return max(0.0, self.stolen / self.total) if self.total > 0 else 0.0
