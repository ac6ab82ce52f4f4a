"""Keeps the processors awake while a lab runs: otherwise the hypervisor is measured, not the network.

An idle virtual processor halts, and a busy hypervisor gives it its core back late: a lab's ranks wait for each other some
thousand times a second, and each wait may become a late wake-up. The kernel takes a request for no latency at all, and then
looks for work instead of halting (docs/decisions/0032): for all peers alike, and only as long as the request's file is open,
so that nothing is left to undo, however a lab ends.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REQUEST = Path("/dev/cpu_dma_latency")
_NO_LATENCY = struct.pack("i", 0)  # microseconds, in the machine's byte order


@contextmanager
def processors_awake(request: Path = REQUEST) -> Iterator[bool]:
    """Whether the kernel took the request: not without the right to ask, nor where it has no such file."""
    try:
        descriptor = os.open(request, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield _ask(descriptor)
    finally:
        os.close(descriptor)


def _ask(descriptor: int) -> bool:
    try:
        return os.write(descriptor, _NO_LATENCY) == len(_NO_LATENCY)
    except OSError:
        return False
