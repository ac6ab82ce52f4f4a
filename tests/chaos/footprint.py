"""What a process holds: descriptors, threads, memory. Compared before and after."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import gc
import os
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Footprint:
    descriptors: collections.Counter[str]
    """By what they are open on, without the numbers that tell sockets and pipes apart."""
    threads: collections.Counter[str]
    resident_kib: int
    """Memory of its own: pages of programs and libraries come and go with what was executed."""

    @classmethod
    def here(cls) -> Footprint:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what is free is not held
        return cls(_descriptors(), _threads(), _resident_kib())

    def left_since(self, before: Footprint) -> list[str]:
        """Descriptors and threads that are here now and were not then."""
        grown = [(self.descriptors - before.descriptors, "descriptor"), (self.threads - before.threads, "thread")]
        return [f"{count} x {what} {name}" for counter, what in grown for name, count in sorted(counter.items())]

    def grown_kib_since(self, before: Footprint) -> int:
        return self.resident_kib - before.resident_kib


def _descriptors() -> collections.Counter[str]:
    targets: collections.Counter[str] = collections.Counter()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one the listing itself used
            targets[re.sub(r"\d+", "#", os.readlink(f"/proc/self/fd/{entry}"))] += 1
    return targets


def _threads() -> collections.Counter[str]:
    names: collections.Counter[str] = collections.Counter()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # ended while we looked
            names[(task / "comm").read_text().strip()] += 1
    return names


def _resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    match = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert match is not None
    return int(match.group(1))
