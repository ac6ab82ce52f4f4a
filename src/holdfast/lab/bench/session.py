"""The ranks of a benchmark, up and joined, on a lab's hosts or on plain loopback; and one operation of all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from holdfast.config import Config
from holdfast.errors import LabError
from holdfast.lab import lifeline
from holdfast.lab.bench.row import Measured
from holdfast.lab.bench.slowest import Witness
from holdfast.lab.cloud import Cloud
from holdfast.lab.launch import Workers
from holdfast.lab.peer import Peer
from holdfast.lab.worker import loopback_environment

START_LIMIT_S = 180.0
JOIN_LIMIT_S = 150.0
OPERATION_LIMIT_S = 180.0
_END_LIMIT_S = 5.0
# How far ahead the common start lies: every rank must have heard of it and be waiting.
_NOTICE_S = 0.003
_LAST_LINES = 15
_SLICE_S = 0.5


class PeerFailed(LabError):
    """An order to one peer was not carried out; its ranks may still be at it, so the session is of no more use."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer = peer
        self.reason = reason


class Session:
    """Ranks that obey. In a lab every peer connects with the TCP settings that are its own."""

    def __init__(self, peers: Sequence[Peer], num_ranks: int, config: Config, cloud: Cloud | None) -> None:
        self.num_ranks = num_ranks
        self.cloud = cloud
        self._workers: Workers | None = None
        self._said: list[str] = []
        self._stack = ExitStack()
        try:
            scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
            self._orders = self._start(scratch / "store", cloud)
            for orders in self._orders:
                orders.send((config, cloud is not None))
            self._collect(START_LIMIT_S)
            # A host keeps what its TCP was set to: whoever takes what a host has connects before it is set.
            for peer in sorted(peers, key=lambda peer: peer.tcp is not None):
                if cloud is not None and peer.tcp is not None:
                    cloud.set_tcp(congestion_control=peer.tcp.congestion_control, rto_min_us=peer.tcp.rto_min_us)
                self._order_peer(peer, "join", limit_s=JOIN_LIMIT_S)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def set_size(self, num_bytes: int) -> None:
        self._order("size", num_bytes, limit_s=START_LIMIT_S)

    def operation(self, peer: Peer) -> tuple[int, list[Measured]]:
        """When it began on all ranks at once, and what each of them measured."""
        start_ns = time.monotonic_ns() + int(_NOTICE_S * 1e9)
        return start_ns, self._order_peer(peer, "operation", start_ns, limit_s=OPERATION_LIMIT_S)

    def series(self, peer: Peer, count: int) -> list[list[Measured]]:
        """So many operations back to back; by rank, what it measured of each."""
        start_ns = time.monotonic_ns() + int(_NOTICE_S * 1e9)
        return self._order_peer(peer, "series", start_ns, count, limit_s=OPERATION_LIMIT_S)

    def last_seen(self, peer: Peer) -> list[Witness]:
        """What the ranks of a Holdfast peer saw of the operation before; none where the peer cannot tell."""
        return [seen for seen in self._order_peer(peer, "last_seen", limit_s=OPERATION_LIMIT_S) if seen is not None]

    def _start(self, store: Path, cloud: Cloud | None) -> list[Connection]:
        pairs = [Pipe() for _ in range(self.num_ranks)]
        ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        try:
            self._start_ranks(ours, theirs, store, cloud)
        finally:
            for end in theirs:
                end.close()
        return ours

    def _start_ranks(
        self, ours: Sequence[Connection], theirs: Sequence[Connection], store: Path, cloud: Cloud | None
    ) -> None:
        def command(rank: int) -> list[str]:
            program = [sys.executable, "-m", "holdfast.lab.bench.rank"]
            return [*program, f"--orders={theirs[rank].fileno()}", f"--store={store}"]

        inherited = {rank: [end.fileno()] for rank, end in enumerate(theirs)}
        if cloud is not None:
            self._workers = Workers(cloud, command, on_line=self._note_line, inherited=inherited)
            self._stack.callback(self._workers.stop)
        else:
            for rank in range(self.num_ranks):
                environment = {**os.environ, **loopback_environment(rank, self.num_ranks)}
                process = subprocess.Popen(
                    lifeline.tied(command(rank)), env=environment, stdin=subprocess.DEVNULL, pass_fds=inherited[rank],
                    start_new_session=True,  # Ctrl-C reaches the bench only, which then ends the ranks
                )  # fmt: skip
                self._stack.callback(_end, process)
        self._stack.callback(_say_goodbye, ours)

    def _note_line(self, rank: int, line: str) -> None:
        self._said = [*self._said[1 - _LAST_LINES :], f"  [{rank}] {line}"]

    def _order_peer(self, peer: Peer, verb: str, *arguments: Any, limit_s: float) -> list[Any]:
        try:
            return self._order(verb, peer.name, *arguments, limit_s=limit_s)
        except LabError as error:
            raise PeerFailed(peer.name, str(error)) from error

    def _order(self, verb: str, *arguments: Any, limit_s: float) -> list[Any]:
        for rank, orders in enumerate(self._orders):
            try:
                orders.send((verb, arguments))
            except OSError:
                raise self._failure(rank, "ended without a word") from None
        return self._collect(limit_s)

    def _collect(self, limit_s: float) -> list[Any]:
        """One answer of every rank. Raises at the limit, when a rank has ended, and when one has failed."""
        give_up = time.monotonic() + limit_s
        waiting = {orders: rank for rank, orders in enumerate(self._orders)}
        results: dict[int, Any] = {}
        while waiting:
            left_s = give_up - time.monotonic()
            if left_s <= 0:
                raise self._failure(min(waiting.values()), f"did not answer within {limit_s:.0f} s")
            for answered in wait(list(waiting), min(left_s, _SLICE_S)):
                assert isinstance(answered, Connection)
                rank = waiting.pop(answered)
                results[rank] = self._answer(rank, answered)
            if waiting and self._workers is not None:
                self._workers.pump(0.0)  # a rank that cannot write its log would wait for us
        return [results[rank] for rank in range(self.num_ranks)]

    def _answer(self, rank: int, orders: Connection) -> Any:
        try:
            verdict, result = orders.recv()
        except (EOFError, ConnectionResetError):
            raise self._failure(rank, "ended without a word") from None
        if verdict == "failed":
            raise self._failure(rank, f"failed: {result}")
        return result

    def _failure(self, rank: int, what: str) -> LabError:
        if self._workers is not None:
            self._workers.pump(0.2)
        said = "\n".join(self._said)
        return LabError(f"rank {rank} of the benchmark {what}" + (f"; last lines:\n{said}" if said else ""))


def _say_goodbye(orders: Sequence[Connection]) -> None:
    for each in orders:
        with suppress(OSError):
            each.send(("end", ()))
        each.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_END_LIMIT_S)
