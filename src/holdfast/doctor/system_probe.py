"""Asks the system: kernel, torch, cores, clock. Works also where the native module cannot be loaded."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from holdfast.doctor.facts import ClockFacts, SystemFacts, TorchFacts
from holdfast.key_file import UnusableKey, read_key

TORCH_LIMIT_S = 120.0  # a cold import from a network file system takes a minute
NUM_SLEEPS = 200
SLEEP_S = 1e-3
_READS_PER_ROUND = 2_000
_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
# What an import prints goes to stderr, so that the last line of stdout is the answer.
_ASK_TORCH = """
import json, sys
answer, sys.stdout = sys.stdout, sys.stderr
import torch
has_gloo = torch.distributed.is_available() and torch.distributed.is_gloo_available()
print(json.dumps([torch.__version__, has_gloo]), file=answer)
"""


def probe_system(key_file: str | None) -> SystemFacts:
    return SystemFacts(
        kernel=platform.release(),
        libc=" ".join(platform.libc_ver()).strip(),
        torch=_probe_torch(),
        num_cpus=len(os.sched_getaffinity(0)),
        cpu_quota=cpu_quota(),
        extension_error=_extension_error(),
        key_error="" if key_file is None else _key_error(Path(key_file)),
    )


def _extension_error() -> str:
    try:
        importlib.import_module("holdfast._native")
    except ImportError as error:
        return str(error)
    return ""


def _key_error(path: Path) -> str:
    try:
        read_key(path)
    except UnusableKey as problem:
        return str(problem)
    return ""


def _probe_torch() -> TorchFacts:
    command = [sys.executable, "-c", _ASK_TORCH]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return TorchFacts(None, error=str(error))
    if answer.returncode != 0:
        last_words = answer.stderr.strip().splitlines()[-1:] or [f"the import ended with code {answer.returncode}"]
        return TorchFacts(None, error=last_words[0])
    version, has_gloo = json.loads(answer.stdout.splitlines()[-1])
    return TorchFacts(version, has_gloo)


def cpu_quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float | None:
    """The tightest limit from the own cgroup (version 2) up to the root; inside a container the root is the own one."""
    relative = next((line[3:] for line in _read(own).splitlines() if line.startswith("0::")), "/").lstrip("/")
    quotas = []
    group = root / relative
    for folder in (group, *group.parents):
        fields = _read(folder / "cpu.max").split()
        if len(fields) == 2 and fields[0] != "max":
            quotas.append(int(fields[0]) / int(fields[1]))
        if folder == root:
            break
    return min(quotas, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def probe_clock() -> ClockFacts:
    lateness, wall_offsets = [], []
    num_backward, last = 0, time.monotonic_ns()
    for _ in range(NUM_SLEEPS):
        before = time.monotonic_ns()
        time.sleep(SLEEP_S)
        after = time.monotonic_ns()
        num_backward += (before < last) + (after < before)
        last = after
        lateness.append((after - before) / 1e3 - SLEEP_S * 1e6)
        wall_offsets.append(_wall_offset_ns())
    lateness.sort()
    return ClockFacts(
        source=_read(_CLOCK_SOURCE).strip(),
        read_ns=min(_read_ns() for _ in range(5)),
        lateness_p50_us=lateness[NUM_SLEEPS // 2 - 1],
        lateness_p99_us=lateness[NUM_SLEEPS * 99 // 100 - 1],
        num_backward=num_backward,
        wall_jump_ms=(max(wall_offsets) - min(wall_offsets)) / 1e6,
    )


def _wall_offset_ns() -> int:
    """Wall clock less monotonic clock, of the tightest of a few pairs: being interrupted in between is no jump."""
    tightest: tuple[int, int] | None = None
    for _ in range(5):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        pair = (after - before, wall - (before + after) // 2)
        tightest = pair if tightest is None else min(tightest, pair)
    assert tightest is not None
    return tightest[1]


def _read_ns() -> float:
    start = time.perf_counter_ns()
    for _ in range(_READS_PER_ROUND):
        time.monotonic_ns()
    return (time.perf_counter_ns() - start) / _READS_PER_ROUND
