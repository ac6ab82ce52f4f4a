"""Starts a command in every host of a cloud, each by itself: one host's death kills no other.

Their output comes back line by line, and what they announce (`holdfast.lab.events`) as steps and epochs. One thread
does all of it, in `pump`.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from holdfast.lab import events
from holdfast.lab.cloud import Cloud
from holdfast.lab.worker import DEFAULT_PORT, Ending, Worker, rank_environment, read_available

STOP_GRACE_S = 2.0
STOP_LIMIT_S = 5.0
# A line that does not end is handed on in pieces of this size.
MAX_LINE_BYTES = 1 << 16
_TICK_S = 0.5


class Workers:
    """The command on every host. Start it from the thread that will live longest: ranks die with that thread."""

    def __init__(
        self,
        cloud: Cloud,
        command: Sequence[str] | Callable[[int], Sequence[str]],
        *,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[int, str], None] = lambda _rank, _line: None,
        on_event: Callable[[int, str, int], None] = lambda _rank, _name, _number: None,
        logs: Path | None = None,
        master_port: int = DEFAULT_PORT,
        inherited: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """`inherited`: descriptors that a rank keeps. `logs`: a folder for `rank-K.log`."""
        self.cloud = cloud
        self.endings: dict[int, Ending] = {}
        self.workers: list[Worker] = []
        self._on_line, self._on_event = on_line, on_event
        self._stack = ExitStack()
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        self._logs: list[IO[bytes]] = []
        try:
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
            for rank in range(len(cloud.hosts)):
                if logs is not None:
                    self._logs.append(self._stack.enter_context((logs / f"rank-{rank}.log").open("wb", buffering=0)))
                variables = {**os.environ, **rank_environment(cloud, rank, master_port), **(environment or {})}
                own = command(rank) if callable(command) else command
                worker = Worker(rank, own, cloud, variables, (inherited or {}).get(rank, ()))
                self.workers.append(worker)
                self._stack.callback(worker.close)
                self._watch(worker)
        except BaseException:
            self.stop(grace_s=0)
            raise

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def alive(self) -> list[int]:
        return [worker.rank for worker in self.workers if worker.rank not in self.endings]

    def position(self, clock: str) -> int | None:
        """The furthest `step` or `epoch` that any rank has announced."""
        return max((worker.position[clock] for worker in self.workers if clock in worker.position), default=None)

    def pump(self, timeout_s: float) -> None:
        """Waits for something to happen, at most so long, and deals with it. Raises if the switch has ended."""
        self.cloud.switch.check()
        self._select(timeout_s)

    def wait(self, limit_s: float | None = None) -> list[Ending]:
        """Until every rank has ended or the limit has passed; how they ended, in that order."""
        give_up = float("inf") if limit_s is None else time.monotonic() + limit_s
        while self.alive and time.monotonic() < give_up:
            self.pump(min(_TICK_S, give_up - time.monotonic()))
        return list(self.endings.values())

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Asks the ranks to end, then makes them. Safe to call twice."""
        try:
            self._end(signal.SIGTERM, grace_s)
        finally:
            self._end(signal.SIGKILL, STOP_LIMIT_S)
            self._stack.close()
            self.workers = []

    def _end(self, number: int, patience_s: float) -> None:
        for worker in self.workers:
            worker.signal(number)
            worker.signal(signal.SIGCONT)  # a stopped process takes no other signal than SIGKILL
        give_up = time.monotonic() + patience_s
        while self.alive and time.monotonic() < give_up:
            self._select(give_up - time.monotonic())

    def _select(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            if key.fd in self._selector.get_map():  # an earlier one of this round may have forgotten it
                read, worker = key.data
                read(worker)

    def _watch(self, worker: Worker) -> None:
        for descriptor, read in (
            (worker.output, self._read_output),
            (worker.events, self._read_events),
            (worker.ended, self._collect),
        ):
            self._selector.register(descriptor, selectors.EVENT_READ, (read, worker))

    def _read_output(self, worker: Worker) -> bool:
        chunk = read_available(worker.output)
        if chunk == b"":
            self._selector.unregister(worker.output)
        if chunk and self._logs:
            self._logs[worker.rank].write(chunk)
        *lines, rest = (worker.unread_output + (chunk or b"")).split(b"\n")
        is_last = chunk == b"" or len(rest) > MAX_LINE_BYTES
        worker.unread_output = b"" if is_last else rest
        for line in [*lines, rest] if is_last and rest else lines:
            self._on_line(worker.rank, line.decode(errors="replace").rstrip("\r"))
        return bool(chunk)

    def _read_events(self, worker: Worker) -> bool:
        chunk = read_available(worker.events)
        if chunk == b"":
            self._selector.unregister(worker.events)
        *lines, rest = (worker.unread_events + (chunk or b"")).split(b"\n")
        worker.unread_events = rest[-MAX_LINE_BYTES:]
        for line in lines:
            event = events.parse(line.decode(errors="replace"))
            if event is not None:
                worker.position[event[0]] = event[1]
                self._on_event(worker.rank, *event)
        return bool(chunk)

    def _collect(self, worker: Worker) -> None:
        """Forgets the worker last: if a signal interrupts this, the next round does it again."""
        ending = worker.collect()
        # A process that left the session may still hold the pipes: what is in them is read, their end is not awaited.
        for descriptor, read in ((worker.events, self._read_events), (worker.output, self._read_output)):
            while descriptor in self._selector.get_map() and read(worker):
                pass
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        if worker.unread_output:
            self._on_line(worker.rank, worker.unread_output.decode(errors="replace"))
        self.endings.setdefault(worker.rank, ending)
        self._selector.unregister(worker.ended)
