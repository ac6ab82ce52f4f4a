"""The processes of one peer, one per rank: on the hosts of a lab (`lab.launch.Workers`) or on plain loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol

from holdfast.lab import lifeline
from holdfast.lab.worker import Ending, loopback_environment

STOP_GRACE_S = 2.0
STOP_LIMIT_S = 5.0


class Crew(Protocol):
    """What a race asks of a peer's processes, wherever they run."""

    endings: dict[int, Ending]

    @property
    def alive(self) -> list[int]: ...

    def pump(self, timeout_s: float) -> None:
        """Waits for something to happen, at most so long, and takes note of who has ended."""

    def stop(self) -> None:
        """Ends all. Safe to call twice."""


class LoopbackCrew:
    """Plain processes of this machine. Start it from the thread that will live longest: ranks die with that thread."""

    def __init__(
        self,
        num_ranks: int,
        command: Callable[[int], Sequence[str]],
        inherited: Mapping[int, Sequence[int]],
        logs: Path,
    ) -> None:
        self.endings: dict[int, Ending] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started = time.monotonic()
        logs.mkdir(parents=True, exist_ok=True)
        try:
            for rank in range(num_ranks):
                with (logs / f"rank-{rank}.log").open("wb") as log:
                    self._processes[rank] = subprocess.Popen(
                        lifeline.tied(command(rank)),
                        env={**os.environ, **loopback_environment(rank, num_ranks)},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        pass_fds=inherited[rank],
                        start_new_session=True,  # Ctrl-C reaches the race only, which then ends the ranks
                    )
        except BaseException:
            self.stop()
            raise

    @property
    def alive(self) -> list[int]:
        return [rank for rank in self._processes if rank not in self.endings]

    def pump(self, timeout_s: float) -> None:
        with ExitStack() as stack:
            watched = []
            for rank in self.alive:
                watched.append(os.pidfd_open(self._processes[rank].pid))
                stack.callback(os.close, watched[-1])
            wait(watched, max(0.0, timeout_s))
        for rank in self.alive:
            code = self._processes[rank].poll()
            if code is not None:
                after_s = time.monotonic() - self._started
                self.endings[rank] = Ending(rank, code if code >= 0 else 128 - code, after_s)

    def stop(self) -> None:
        for number, patience_s in ((signal.SIGTERM, STOP_GRACE_S), (signal.SIGKILL, STOP_LIMIT_S)):
            for rank in self.alive:
                with suppress(ProcessLookupError):
                    os.killpg(self._processes[rank].pid, number)
            give_up = time.monotonic() + patience_s
            while self.alive and time.monotonic() < give_up:
                self.pump(give_up - time.monotonic())
