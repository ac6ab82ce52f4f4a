"""The lab's side of the switch: starts its process, asks it, ends it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.errors import SwitchFailed
from holdfast.lab.conditions import Conditions
from holdfast.lab.host import Host
from holdfast.lab.marks import LAB, LabId

START_LIMIT_S = 30.0
ANSWER_LIMIT_S = 10.0
STOP_LIMIT_S = 5.0


@dataclass(frozen=True)
class PortReport:
    """Traffic of one port since the last reset, in IP packets of at most the MTU."""

    packets_from_host: int
    bytes_from_host: int
    packets_to_host: int
    bytes_to_host: int
    queue_peak_bytes: int
    uplink_peak_bytes: int
    cross_traffic_bytes: float
    losses: Mapping[str, int]
    """By cause, at this port or on the paths from it."""


@dataclass(frozen=True)
class Report:
    """What the switch did since it was last reset, and how late it was."""

    duration_s: float
    losses: Mapping[str, int]
    """Packets by cause: random, burst, queue, down, frozen, unroutable, malformed, refused."""
    lateness_p50_us: float
    """How long after its due time a packet was handed to its host's kernel."""
    lateness_p99_us: float
    lateness_p999_us: float
    lateness_max_us: float
    lateness_counts: Sequence[tuple[float, int]]
    """(at most so many microseconds late, so many packets), ascending."""
    realtime: bool
    cpu_s: float
    num_wakeups: int
    num_reads: int
    num_writes: int
    ports: tuple[PortReport, ...]


class SwitchClient:
    """A running switch between these hosts. The devices are its own from now on, and go with it."""

    def __init__(self, hosts: Sequence[Host], lab: LabId, seed: int) -> None:
        ours, theirs = socket.socketpair()
        ports = [f"--port={host.descriptor}={host.address}" for host in hosts]
        command = [sys.executable, "-m", __package__ + ".switch_process", f"--control={theirs.fileno()}"]
        self._socket = ours
        self._unread = b""
        with theirs:
            self.process = subprocess.Popen(
                [*command, f"--seed={seed}", *ports],
                env={**os.environ, LAB: str(lab)},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *(host.descriptor for host in hosts)],
                start_new_session=True,  # Ctrl-C reaches the lab only, which then ends the switch in order
            )
        try:
            self._receive(START_LIMIT_S)
        except BaseException:
            self.close()
            raise
        for host in hosts:
            host.close_descriptor()

    def configure(self, conditions: Conditions) -> None:
        """Takes effect at once."""
        self._ask("configure", conditions=conditions.to_json())

    def draw_anew(self, seed: int) -> None:
        """All that is random comes from this seed from now on, whatever was before; `seed` in 64 bits."""
        self._ask("draw_anew", seed=seed)

    def report(self) -> Report:
        document = self._ask("report")
        ports = tuple(PortReport(**port) for port in document.pop("ports"))
        return Report(**document, ports=ports)

    def reset(self) -> None:
        """Counters and lateness begin anew."""
        self._ask("reset")

    def capacity_bound_s(self, start_ns: int, bytes_out: Sequence[int], bytes_in: Sequence[int]) -> float:
        """The least seconds from `start_ns` (time.monotonic_ns) in which the hosts could have sent and received that."""
        return float(self._ask("bound", start_ns=start_ns, bytes_out=list(bytes_out), bytes_in=list(bytes_in)))

    def frozen_s(self, start_ns: int, end_ns: int) -> list[float]:
        """For how many seconds between the two (time.monotonic_ns) each host was frozen."""
        return list(self._ask("frozen", start_ns=start_ns, end_ns=end_ns))

    def check(self) -> None:
        """Raises if the switch has ended."""
        code = self.process.poll()
        if code is not None:
            raise SwitchFailed(
                f"the lab's switch ended with code {code}", what_to_try="its last lines above; then run the lab again"
            )

    def close(self) -> None:
        """In order if it answers, else by force. Safe to call twice."""
        if self._socket.fileno() >= 0 and self.process.poll() is None:
            with suppress(SwitchFailed):
                self._ask("stop", limit_s=STOP_LIMIT_S)
        self._socket.close()
        try:
            self.process.wait(STOP_LIMIT_S)  # also one that fails has its last words
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_LIMIT_S)

    def _ask(self, verb: str, limit_s: float = ANSWER_LIMIT_S, **arguments: Any) -> Any:
        line = json.dumps({"verb": verb, "arguments": arguments}) + "\n"
        self._socket.settimeout(limit_s)
        try:
            self._socket.sendall(line.encode())
        except OSError as error:
            raise SwitchFailed(f"the lab's switch does not listen: {error}") from error
        answer = self._receive(limit_s)
        if "error" in answer:
            raise SwitchFailed(f"the lab's switch refused to {verb}: {answer['error']}")
        return answer.get("result")

    def _receive(self, limit_s: float) -> dict[str, Any]:
        self._socket.settimeout(limit_s)
        while b"\n" not in self._unread:
            try:
                chunk = self._socket.recv(1 << 16)
            except OSError as error:
                raise SwitchFailed(f"the lab's switch said nothing for {limit_s:.0f} s") from error
            if not chunk:
                raise SwitchFailed("the lab's switch ended", what_to_try="its last lines above say why")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer
