"""What an interrupt does while a command loads, and after that."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROBE = """
import os, signal
from holdfast.cli.signals import killed_by_interrupts
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    while True: pass
try:
    with killed_by_interrupts():
        if {loading}: interrupt()
    interrupt()
except KeyboardInterrupt:
    print("in order")
"""


@pytest.mark.parametrize(("loading", "code", "said"), [(True, -signal.SIGINT, ""), (False, 0, "in order\n")])
def test_an_interrupt_kills_while_it_loads_and_is_an_exception_afterwards(loading: bool, code: int, said: str) -> None:
    script = PROBE.format(loading=loading)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (code, said)
