"""What a worker tells the lab, and what the lab tells a worker. Outside the lab, all of it does nothing.

    from holdfast.lab import events

    events.epoch(1)
    events.step(12)                      # faults `at_step = 12` and schedules by steps happen now
    events.straggle(seconds_computed)    # sleeps as long as the fault `slow_backward` wants this host to be slower

On the wire: lines `step 12` and `epoch 3` on the descriptor that `_HOLDFAST_LAB_EVENTS` names, so a shell can do it too.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from contextlib import suppress
from functools import cache

from holdfast.lab.marks import EVENTS, PACE

PACE_FORMAT = "d"
PACE_BYTES = struct.calcsize(PACE_FORMAT)


def step(number: int) -> None:
    """This rank begins step `number`."""
    _say(f"step {number}\n")


def epoch(number: int) -> None:
    """This rank begins epoch `number`."""
    _say(f"epoch {number}\n")


def slowness() -> float:
    """How many times as long as usual this host should compute at the moment; 1 without a fault."""
    pace = _pace()
    return 1.0 if pace is None else float(struct.unpack(PACE_FORMAT, pace[:PACE_BYTES])[0])


def straggle(seconds_computed: float) -> None:
    """Call it after computing for so long: on a slow host it takes the rest of the time that it should have taken."""
    extra_s = (slowness() - 1.0) * seconds_computed
    if extra_s > 0:
        time.sleep(extra_s)


def parse(line: str) -> tuple[str, int] | None:
    """An event's name and number; None for anything else, which a command may have written by mistake."""
    name, _, number = line.strip().partition(" ")
    if name not in ("step", "epoch") or not number.isdecimal() or len(number) > 18:
        return None
    return name, int(number)


def _say(line: str) -> None:
    descriptor = os.environ.get(EVENTS)
    if descriptor is None:
        return
    with suppress(OSError):  # a lab that is ending, or too busy to read: training goes on
        os.write(int(descriptor), line.encode())


@cache
def _pace() -> mmap.mmap | None:
    descriptor = os.environ.get(PACE)
    if descriptor is None:
        return None
    try:
        return mmap.mmap(int(descriptor), PACE_BYTES, access=mmap.ACCESS_READ)
    except OSError:
        return None
