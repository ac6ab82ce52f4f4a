"""One rank of a job: a command inside a host, with torchrun's environment variables and two pipes to the lab."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from holdfast.lab import enter, events
from holdfast.lab.cloud import Cloud
from holdfast.lab.host import INTERFACE
from holdfast.lab.marks import EVENTS, LAB, PACE

DEFAULT_PORT = 29500
_COLLECT_LIMIT_S = 5.0


@dataclass(frozen=True)
class Ending:
    """How a rank ended."""

    rank: int
    code: int
    """Exit code; 128 plus the signal's number if a signal ended it, as shells say it."""
    after_s: float

    @property
    def how(self) -> str:
        if self.code > 128 and self.code - 128 in {number.value for number in signal.Signals}:
            return f"ended by {signal.Signals(self.code - 128).name}"
        return "done" if self.code == 0 else f"exit code {self.code}"


class Worker:
    """A running rank. `output`, `events` and `ended` are descriptors that become readable."""

    def __init__(
        self, rank: int, command: Sequence[str], cloud: Cloud, environment: Mapping[str, str], inherited: Sequence[int]
    ) -> None:
        self.rank = rank
        self.position: dict[str, int] = {}
        """The last step and epoch that the rank has announced."""
        self.unread_output = self.unread_events = b""
        self._started = time.monotonic()
        namespace = cloud.hosts[rank].namespace.descriptor
        with ExitStack() as stack:
            self._pace = os.memfd_create("holdfast-lab-pace")
            stack.callback(os.close, self._pace)
            self.set_slowness(1.0)
            self.events, events_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            stack.callback(os.close, self.events)
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", enter.__file__, str(namespace), str(os.getpid()), *command],
                    env={**environment, EVENTS: str(events_end), PACE: str(self._pace)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[namespace, events_end, self._pace, *inherited],
                    start_new_session=True,  # Ctrl-C reaches the lab only; and what the rank starts ends with it
                )
            finally:
                os.close(events_end)
            assert self.process.stdout is not None
            stack.callback(self.process.stdout.close)
            self.output = self.process.stdout.fileno()
            os.set_blocking(self.output, False)
            self.ended = os.pidfd_open(self.process.pid)
            stack.callback(os.close, self.ended)
            self._descriptors = stack.pop_all()

    def set_slowness(self, ratio: float) -> None:
        """How many times as long as usual it should compute, if it asks."""
        os.pwrite(self._pace, struct.pack(events.PACE_FORMAT, ratio), 0)

    def signal(self, number: int) -> None:
        """To the command and all of its session, unless it has been collected."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def collect(self) -> Ending:
        """After `ended`: how. What the command left running in its session goes too, before its number is free."""
        self.signal(signal.SIGKILL)
        code = self.process.wait(_COLLECT_LIMIT_S)
        return Ending(self.rank, code if code >= 0 else 128 - code, time.monotonic() - self._started)

    def close(self) -> None:
        self._descriptors.close()


def rank_environment(cloud: Cloud, rank: int, master_port: int = DEFAULT_PORT) -> dict[str, str]:
    """The variables that torchrun would set with one rank per host, and the card that Gloo should use."""
    num_hosts = str(len(cloud.hosts))
    return {
        "MASTER_ADDR": cloud.master_address,
        "MASTER_PORT": str(master_port),
        "RANK": str(rank),
        "WORLD_SIZE": num_hosts,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        "GROUP_WORLD_SIZE": num_hosts,
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": num_hosts,
        "ROLE_NAME": "default",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": str(cloud.lab),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONUNBUFFERED": "1",
        # Without this, Gloo asks for the machine's host name, for which no host of the lab has an address.
        "GLOO_SOCKET_IFNAME": INTERFACE,
        LAB: str(cloud.lab),
    }


def loopback_environment(rank: int, num_ranks: int) -> dict[str, str]:
    """The same for ranks that are plain processes of this machine and find each other through a file."""
    # Without the interface's name Gloo asks for the machine's host name, which need not have an address.
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def read_available(descriptor: int) -> bytes | None:
    """What a pipe holds: nothing at its end, None if there is no more for now."""
    try:
        return os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return None
