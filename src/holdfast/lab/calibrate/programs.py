"""Programs inside the lab's hosts: started, heard, and ended, whatever happens meanwhile."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from holdfast.errors import LabError, LabUnavailable
from holdfast.lab.cloud import Cloud
from holdfast.lab.worker import Worker, rank_environment, read_available

_TICK_S = 0.5
_LAST_WORDS = 3
_PACKAGES = {"iperf3": "iperf3", "ping": "iputils-ping"}
"""Debian's."""


def require(*names: str) -> None:
    """Raises LabUnavailable if this machine lacks one of the programs, before anything is built."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        packages = " ".join(_PACKAGES[name] for name in missing)
        raise LabUnavailable(
            f"calibration measures with {' and '.join(missing)}, which this machine has not",
            what_to_try=f"`apt-get install {packages}`",
        )


class Program:
    """A command in a host."""

    def __init__(self, command: Sequence[str], worker: Worker) -> None:
        self.command = command
        self.worker = worker
        self.code: int | None = None
        """None while it runs."""
        self._said = b""

    @property
    def output(self) -> str:
        """What it has said so far, errors included."""
        return self._said.decode(errors="replace")

    def listen(self) -> bool:
        """Whether there may be more."""
        chunk = read_available(self.worker.output)
        self._said += chunk or b""
        return bool(chunk)

    def __str__(self) -> str:
        return f"{self.command[0]} in host {self.worker.rank}"


class Programs:
    """Everything that is started here ends with the block."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._stack = ExitStack()
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        self._running: list[Program] = []

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_error: object) -> None:
        for program in self._running:
            program.worker.signal(signal.SIGKILL)
            program.worker.collect()
        self._stack.close()

    def start(self, host: int, command: Sequence[str], *, priority: int | None = None) -> Program:
        """`priority`: real-time, where allowed, so that the scheduler of a busy machine is not measured."""
        variables = {**os.environ, **rank_environment(self._cloud, host), "LC_ALL": "C"}
        program = Program(command, Worker(host, command, self._cloud, variables, ()))
        self._stack.callback(program.worker.close)
        self._running.append(program)
        if priority is not None:
            with suppress(PermissionError, ProcessLookupError):
                os.sched_setscheduler(program.worker.process.pid, os.SCHED_RR, os.sched_param(priority))
        for descriptor, react in ((program.worker.output, self._hear), (program.worker.ended, self._collect)):
            self._selector.register(descriptor, selectors.EVENT_READ, (react, program))
        return program

    def wait(self, until: Callable[[], bool], limit_s: float, what: str) -> None:
        """Raises if a program fails, if the switch ends, or if it is not so in time."""
        give_up = time.monotonic() + limit_s
        while not until():
            self._cloud.switch.check()
            patience_s = give_up - time.monotonic()
            if patience_s <= 0:
                raise LabError(f"not within {limit_s:.0f} s: {what}", what_to_try="a less busy machine")
            self._pump(min(_TICK_S, patience_s))

    def finish(self, programs: Sequence[Program], limit_s: float) -> None:
        """Until all of them have ended."""
        names = ", ".join(map(str, programs))
        self.wait(lambda: all(program.code is not None for program in programs), limit_s, f"the end of {names}")

    def _pump(self, patience_s: float) -> None:
        for key, _ in self._selector.select(patience_s):
            react, program = key.data
            react(program)

    def _hear(self, program: Program) -> None:
        if not program.listen():
            self._forget(program.worker.output)

    def _collect(self, program: Program) -> None:
        while program.listen():
            pass
        self._forget(program.worker.output)
        self._forget(program.worker.ended)
        self._running.remove(program)
        program.code = program.worker.collect().code
        if program.code != 0:
            last_words = " / ".join(program.output.strip().splitlines()[-_LAST_WORDS:])
            raise LabError(f"{program} ended with code {program.code}: {last_words or 'without a word'}")

    def _forget(self, descriptor: Any) -> None:
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)
