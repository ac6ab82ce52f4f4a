"""Puts a worker ahead of ordinary processes: otherwise the scheduler is measured, not the network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# The lowest real-time priority: above every ordinary process, below the switch.
WORKER_PRIORITY = 1


def raise_priority(priority: int = WORKER_PRIORITY) -> bool:
    """Round-robin real-time scheduling for this process, where allowed; says whether.

    Call it after importing torch: threads that exist already keep what they have, and the import itself is long enough
    to starve the others.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    except PermissionError:
        return False
    return True


@contextmanager
def ahead_of_ranks() -> Iterator[None]:
    """Ranks at real-time priority may fill all cores: a fault that is due must not wait for them."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    raise_priority(WORKER_PRIORITY + 1)
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)
