"""Processes that end with the process that started them, even if that one is killed.

Also run by path, without the package, so that it costs milliseconds: `python lifeline.py PARENT COMMAND...` becomes the
command. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """From here on the kernel kills this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the process that started this one has ended already")


def tied(command: Sequence[str]) -> list[str]:
    """The command, as one that ends with this process from its first moment on: importing torch takes seconds."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
