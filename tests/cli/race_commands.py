"""The `holdfast` command as a process, with everything it starts marked, so that nothing can be missed."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

HOLDFAST = [sys.executable, "-c", "from holdfast.cli import main; main()"]
LIMIT_S = 200
_CAP_NET_ADMIN, _CAP_SYS_ADMIN, _PR_CAPBSET_DROP = 12, 21, 24
# The same user, without the capabilities that make a network.
_POWERLESS = f"""
import ctypes, os, sys
for capability in ({_CAP_NET_ADMIN}, {_CAP_SYS_ADMIN}):
    ctypes.CDLL(None).prctl({_PR_CAPBSET_DROP}, capability)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def holdfast(*arguments: str, powerless: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _POWERLESS, *HOLDFAST[1:]] if powerless else HOLDFAST
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "NO_COLOR": "1", **variables},
    )


class Started:
    """A command that runs, and its processes as the kernel knows them."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        name, value = "STARTED_BY_A_TEST", secrets.token_hex(8)
        self._mark = f"{name}={value}".encode()
        self.process = subprocess.Popen(
            [*HOLDFAST, *arguments],
            env={**os.environ, name: value, "NO_COLOR": "1", **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever runs the tests in the background of a script has it ignored, and Python then leaves it so.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def wait_for_line(self, part: str) -> None:
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:  # ends with the process, whose waits have limits
            said.append(line)
            if part in line:
                return
        raise AssertionError(f"never said {part!r}: {''.join(said)}")

    def processes(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "stat").read_text().rpartition(") ")[2][0] not in "ZX":
                    found += [int(entry.name)] * (self._mark in (entry / "environ").read_bytes().split(b"\0"))
            except OSError:
                continue  # ended meanwhile, or of another user
        return found

    def close(self) -> None:
        for process in self.processes():
            os.kill(process, signal.SIGKILL)
        self.process.wait(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
