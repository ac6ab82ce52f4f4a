"""A worker gets ahead of ordinary processes where that is allowed, and its communication ahead of its computation."""

from __future__ import annotations

import json
import subprocess
import sys

PROBE = """
import json, os, resource, sys, threading
from holdfast.lab.priority import put_communication_ahead, raise_priority
if sys.argv[1] == "forbidden":
    import ctypes
    ctypes.CDLL(None).prctl(24, 23)  # PR_CAPBSET_DROP, CAP_SYS_NICE: gone after the exec below
    resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
    os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2], "again", *sys.argv[2:]])
granted = raise_priority()
later = []
thread = threading.Thread(target=lambda: later.append(os.sched_getscheduler(0)))
thread.start()
thread.join()
if sys.argv[2:] == ["ahead"]:
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    put_communication_ahead()
    print(json.dumps([os.sched_getparam(thread).sched_priority for thread in (0, other.native_id)]))
    over.set()
else:
    print(json.dumps([granted, os.sched_getscheduler(0) == os.SCHED_RR, later[0] == os.SCHED_RR]))
"""


def probe(*arguments: str) -> list[int]:
    command = [sys.executable, "-c", PROBE, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    answer: list[int] = json.loads(run.stdout)
    return answer


def test_what_is_said_is_what_the_kernel_did_also_for_later_threads() -> None:
    granted, own, later = probe("allowed")
    assert granted == own == later


def test_without_the_right_to_it_nothing_changes() -> None:
    assert probe("forbidden") == [False, False, False]
    assert probe("forbidden", "ahead") == [0, 0]


def test_threads_that_communicate_go_before_the_one_that_computes() -> None:
    computing, communicating = probe("allowed", "ahead")
    if computing:  # else it is not allowed here
        assert communicating > computing
