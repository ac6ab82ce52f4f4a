"""Makes calls, here or on threads, and judges them: each must end within a limit and raise only what is documented."""

from __future__ import annotations

import faulthandler
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from holdfast.errors import HoldfastError

ALLOWED = (HoldfastError, TypeError, ValueError)
CALL_LIMIT_S = 60.0  # every call has its own deadline, far below; this much later it hangs
_MOST_THREADS = 6
_STARTED = time.monotonic()


class Undocumented(AssertionError):
    """A call raised what no documentation mentions."""


class Caller:
    """Makes calls, here or on threads of its own, and keeps what they may not do."""

    num_answered = 0
    num_refused = 0

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._findings: list[str] = []

    def call(self, what: str, function: Callable[[], Any]) -> Any:
        """The result, or None where a documented error was raised."""
        self._write(what)
        faulthandler.dump_traceback_later(CALL_LIMIT_S, exit=True)
        try:
            return self._guarded(what, function)
        finally:
            faulthandler.cancel_dump_traceback_later()
            self.raise_findings()

    def spawn(self, what: str, function: Callable[[], Any]) -> None:
        """The same on a thread, so that it meets other calls half-way."""
        self._write(f"(thread) {what}")
        if len(self._threads) >= _MOST_THREADS:
            self.join()
        thread = threading.Thread(target=self._guarded, args=(f"(thread) {what}", function), name=what, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        self._write("join the threads")
        faulthandler.dump_traceback_later(CALL_LIMIT_S, exit=True)
        for thread in self._threads:
            thread.join()
        faulthandler.cancel_dump_traceback_later()
        self._threads = []
        self.raise_findings()

    def raise_findings(self) -> None:
        if self._findings:
            findings, self._findings = self._findings, []
            text = "\n".join(findings)
            print(f"FINDING {text}", flush=True)  # at once: hypothesis makes the calls again before it speaks
            raise Undocumented(text)

    def _guarded(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            answer = function()
            Caller.num_answered += 1
            return answer
        except ALLOWED:
            Caller.num_refused += 1
            return None
        except BaseException:
            self._findings.append(f"{what} raised\n{traceback.format_exc()}")
            return None

    def _write(self, what: str) -> None:
        # Flushed, so that it is there after a crash.
        print(f"  {time.monotonic() - _STARTED:7.2f} s {what[:200]}", flush=True)
