"""Ends what labs leave behind. Namespaces and devices go with the processes that hold them, so processes are all."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.lab.marks import LabId, marked_processes

END_LIMIT_S = 5.0


@dataclass(frozen=True)
class Leftover:
    """A process whose lab is gone."""

    process: int
    lab: LabId
    command: str


def leftovers() -> list[Leftover]:
    """Processes of labs whose own process has ended."""
    return [Leftover(process, lab, _command(process)) for process, lab in marked_processes() if lab.is_gone()]


def processes_of(lab: LabId) -> list[int]:
    """The lab's processes, without its owner."""
    return [process for process, mark in marked_processes() if mark == lab and process != os.getpid()]


def end(processes: Collection[int], limit_s: float = END_LIMIT_S) -> list[int]:
    """Kills them and waits until they are gone; returns those that are not by then."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    give_up = time.monotonic() + limit_s
    remaining = [process for process in processes if _lives(process)]
    while remaining and time.monotonic() < give_up:
        time.sleep(0.01)
        remaining = [process for process in remaining if _lives(process)]
    return remaining


def end_lab(lab: LabId, limit_s: float = END_LIMIT_S) -> list[int]:
    """Ends everything that carries the lab's mark, also what is started meanwhile; returns what would not end."""
    give_up = time.monotonic() + limit_s
    remaining: list[int] = []
    while (found := processes_of(lab)) and time.monotonic() < give_up:
        remaining = end(found, give_up - time.monotonic())
    return remaining


def _lives(process: int) -> bool:
    """A process that has ended but was not collected by its parent is gone for our purposes: it holds nothing."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
