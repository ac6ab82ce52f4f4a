"""Puts workers ahead of ordinary processes, and what they communicate with ahead of what they compute with.

Otherwise the scheduler is measured, not the network. Round-robin gives equals turns of 100 ms, and nobody is woken into
another's turn: on a machine with fewer cores than hosts, a thread that has a packet to send would wait until other hosts'
ranks have finished their backward pass. Every real host has a core for that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# The lowest real-time priority: above every ordinary process, below the switch.
WORKER_PRIORITY = 1
COMMUNICATION_PRIORITY = WORKER_PRIORITY + 1
AHEAD_OF_RANKS_PRIORITY = COMMUNICATION_PRIORITY + 1


def raise_priority(priority: int = WORKER_PRIORITY) -> bool:
    """Round-robin real-time scheduling for this process, where allowed; says whether.

    Call it after importing torch: threads that exist already keep what they have, and the import itself is long enough
    to starve the others.
    """
    return _schedule(0, priority)


def put_communication_ahead() -> None:
    """All threads but the calling one, which computes: whatever sends, receives and sums for it, of any library.

    Nothing happens where this one has no real-time priority itself.
    """
    if os.sched_getscheduler(0) != os.SCHED_RR:
        return
    computing = threading.get_native_id()
    for thread in map(int, os.listdir("/proc/self/task")):
        with suppress(ProcessLookupError):  # it has ended
            if thread != computing:
                _schedule(thread, COMMUNICATION_PRIORITY)


@contextmanager
def ahead_of_ranks() -> Iterator[None]:
    """Ranks at real-time priority may fill all cores: a fault that is due must not wait for them."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    raise_priority(AHEAD_OF_RANKS_PRIORITY)
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def _schedule(thread: int, priority: int) -> bool:
    try:
        os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(priority))
    except PermissionError:
        return False
    return True
