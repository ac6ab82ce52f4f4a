"""How commands end when a signal ends them: at once while they load, in order when they have built something up."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

SIGNALLED = 128
# Ending takes less; signals that come meanwhile must not disturb it.
_TEARDOWN_S = 10.0


@contextmanager
def killed_by_interrupts() -> Iterator[None]:
    """For imports: an exception in the midst of one may be swallowed by the interpreter, or abort a native module."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP end the block as an exception does, once: what it built is taken down undisturbed."""
    quiet_until = 0.0

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal quiet_until
        if time.monotonic() >= quiet_until:
            quiet_until = time.monotonic() + _TEARDOWN_S
            raise SystemExit(SIGNALLED + number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
