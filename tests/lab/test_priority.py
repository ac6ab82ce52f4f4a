"""A worker gets ahead of ordinary processes where that is allowed, and says so where it is not."""

from __future__ import annotations

import json
import subprocess
import sys

PROBE = """
import json, os, resource, sys, threading
from holdfast.lab.priority import raise_priority
if sys.argv[1] == "forbidden":
    import ctypes
    ctypes.CDLL(None).prctl(24, 23)  # PR_CAPBSET_DROP, CAP_SYS_NICE: gone after the exec below
    resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
    os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2], "again"])
granted = raise_priority()
later = []
thread = threading.Thread(target=lambda: later.append(os.sched_getscheduler(0)))
thread.start()
thread.join()
print(json.dumps([granted, os.sched_getscheduler(0) == os.SCHED_RR, later[0] == os.SCHED_RR]))
"""


def probe(mode: str) -> list[bool]:
    run = subprocess.run([sys.executable, "-c", PROBE, mode], capture_output=True, text=True, timeout=60, check=True)
    answer: list[bool] = json.loads(run.stdout)
    return answer


def test_what_is_said_is_what_the_kernel_did_also_for_later_threads() -> None:
    granted, own, later = probe("allowed")
    assert granted == own == later


def test_without_the_right_to_it_nothing_changes() -> None:
    assert probe("forbidden") == [False, False, False]
