"""Puts a worker ahead of ordinary processes: otherwise the scheduler is measured, not the network."""

from __future__ import annotations

import os

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
