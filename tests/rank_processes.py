"""Real processes, one per rank, on this machine.

They are forked from one server that has torch loaded, so that a rank starts in about 0.1 s. The test process hosts the
Store: a test can then kill any rank, and wait for a rank to reach a place before it does something to it.

    def each_rank(member: Member, count: int) -> float: ...

    results = run_ranks(each_rank, 4, 1000)          # by rank; raises RankFailed with every traceback
    with start_ranks(each_rank, 4, 1000) as ranks:   # to interfere meanwhile
        ranks.store.wait(["ready"]); ranks.kill(1)
        results = ranks.results(dead={1})

Every rank that ends by itself is checked for what it leaves behind: no I/O thread, no UDP socket.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import itertools
import logging
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from holdfast.bridge import rendezvous
from holdfast.config import Config
from holdfast.link.link import Link

HOST = "127.0.0.1"
# What every rank would otherwise import by itself; DDP's constructor imports torch._dynamo and more, 3 s in all.
PRELOADED = ["pytest", "numpy", "torch", "torch._dynamo", "torch._dynamo.distributed", "torch._inductor.utils"]
PRELOADED += ["torch.distributed.fsdp", "torch.profiler", "holdfast.bridge.ddp"]
_GROUP_TIMEOUT = timedelta(seconds=60)


class RankFailed(AssertionError):
    """A rank raised, died or did not end in time."""


@dataclass
class Member:
    """What a function that runs as one rank is given."""

    rank: int
    num_ranks: int
    store: dist.Store
    _links: list[Link] = field(default_factory=list)
    _barriers: Iterator[int] = field(default_factory=itertools.count)
    _joins: Iterator[int] = field(default_factory=itertools.count)

    def join(self, *, epoch: int = 0, step_bytes: int = 0, record: bool = False, **settings: Any) -> Link:
        """A link to all other ranks, closed when the function returns."""
        link = rendezvous.join(
            dist.PrefixStore(f"join/{next(self._joins)}", self.store),
            rank=self.rank,
            num_ranks=self.num_ranks,
            # What most tests are about is the network, though all ranks are on one host.
            config=Config(**{"join_timeout_s": 20.0, "shared_memory": False, **settings}),
            step_bytes=step_bytes,
            epoch=epoch,
            record=record,
        )
        self._links.append(link)
        return link

    def join_group(self) -> None:
        """Makes these ranks the default process group (gloo)."""
        dist.init_process_group(
            "gloo", store=self.store, rank=self.rank, world_size=self.num_ranks, timeout=_GROUP_TIMEOUT
        )

    def say(self, word: str) -> None:
        self.store.set(f"said/{word}", "")

    def hear(self, word: str, timeout_s: float = 30.0) -> None:
        self.store.wait([f"said/{word}"], timedelta(seconds=timeout_s))

    def barrier(self, timeout_s: float = 30.0) -> None:
        """Without Holdfast and without the process group: through the Store."""
        name = f"barrier/{next(self._barriers)}"
        if self.store.add(name, 1) == self.num_ranks:
            self.store.set(f"{name}/open", "")
        self.store.wait([f"{name}/open"], timedelta(seconds=timeout_s))

    def close_links(self) -> None:
        for link in self._links:
            link.close()


@dataclass(frozen=True)
class _Ended:
    value: Any = None
    error: BaseException | None = None
    trace: str = ""


class RankProcesses:
    """Ranks under way. Leaving the `with` block ends whatever still runs."""

    def __init__(self, processes: list[ForkServerProcess], pipes: list[Connection], store: dist.Store, ends: float):
        self.processes = processes
        self.store = store
        self._pipes = pipes
        self._ends = ends
        self._ended: dict[int, _Ended] = {}

    def __enter__(self) -> RankProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()  # also ends a stopped process
        for process, pipe in zip(self.processes, self._pipes, strict=True):
            process.join(10)
            pipe.close()
        assert multiprocessing.active_children() == []

    def hear(self, word: str, timeout_s: float = 30.0) -> None:
        """Waits until a rank says this word, or any rank has failed instead."""
        ends = time.monotonic() + timeout_s
        while not self.store.check([f"said/{word}"]):
            # One may say its last word and end: its word counts.
            if wait(self._pipes, 0.02) and not self.store.check([f"said/{word}"]):
                self.results()  # raises what it failed with
                return
            if time.monotonic() > ends:
                self._give_up(list(range(len(self.processes))))

    def say(self, word: str) -> None:
        self.store.set(f"said/{word}", "")

    def signal(self, rank: int, number: signal.Signals) -> None:
        pid = self.processes[rank].pid
        assert pid is not None
        os.kill(pid, number)

    def kill(self, rank: int) -> None:
        self.signal(rank, signal.SIGKILL)

    @contextlib.contextmanager
    def stopped(self, rank: int) -> Iterator[None]:
        self.signal(rank, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(rank, signal.SIGCONT)

    def results(self, *, dead: Collection[int] = ()) -> list[Any]:
        """What every rank returned; `dead` ones were killed by the test and give None."""
        self._collect(dead)
        failed = {rank: ended for rank, ended in self._ended.items() if ended.error is not None}
        if failed:
            text = "\n".join(f"--- rank {rank}\n{ended.trace}" for rank, ended in sorted(failed.items()))
            raise RankFailed(f"{len(failed)} of {len(self.processes)} ranks failed\n{text}") from None
        return [self._ended.get(rank, _Ended()).value for rank in range(len(self.processes))]

    def _collect(self, dead: Collection[int]) -> None:
        open_pipes = {pipe: rank for rank, pipe in enumerate(self._pipes) if rank not in self._ended}
        while open_pipes:
            readable = wait(list(open_pipes), max(0.0, self._ends - time.monotonic()))
            if not readable:
                self._give_up(sorted(open_pipes.values()))
            for pipe in readable:
                assert isinstance(pipe, Connection)
                rank = open_pipes.pop(pipe)
                try:
                    self._ended[rank] = pickle.loads(pipe.recv_bytes())
                except EOFError:
                    self.processes[rank].join(10)
                    if rank not in dead:
                        death = RankFailed(f"ended with code {self.processes[rank].exitcode}")
                        self._ended[rank] = _Ended(error=death, trace=str(death))

    def _give_up(self, ranks: list[int]) -> None:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                self.signal(rank, signal.SIGCONT)
                self.signal(rank, signal.SIGUSR1)  # faulthandler prints where it is
        time.sleep(0.3)
        ended = "".join(f"\n--- rank {rank}\n{ended.trace}" for rank, ended in self._ended.items() if ended.error)
        raise RankFailed(f"ranks {ranks} did not end in time; their stacks are in the captured stderr{ended}")


class RankServer:
    """Starts ranks. One per test session."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self._runs = itertools.count()

    def start(
        self,
        function: Callable[..., Any],
        num_ranks: int,
        *args: Any,
        timeout_s: float = 60.0,
        group: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> RankProcesses:
        run = f"run/{next(self._runs)}"
        processes, pipes = [], []
        for rank in range(num_ranks):
            ours, theirs = self._context.Pipe(duplex=False)
            task = (function, rank, num_ranks, args, self._store.port, run, group, dict(environment or {}))
            process = self._context.Process(target=_run_rank, args=(theirs, *task), name=f"rank-{rank}", daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        return RankProcesses(processes, pipes, dist.PrefixStore(run, self._store), time.monotonic() + timeout_s)

    def run(self, function: Callable[..., Any], num_ranks: int, *args: Any, **options: Any) -> list[Any]:
        with self.start(function, num_ranks, *args, **options) as ranks:
            return ranks.results()


# ---------------------------------------------------------------------------------------------------- in the process


def _run_rank(
    pipe: Connection,
    function: Callable[..., Any],
    rank: int,
    num_ranks: int,
    args: tuple[Any, ...],
    store_port: int,
    run: str,
    group: bool,
    environment: dict[str, str],
) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    torch.set_num_threads(1)
    network = {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": HOST, "HOLDFAST_SHARED_MEMORY": "false"}
    os.environ.update({**network, **environment})
    logging.basicConfig(level=logging.WARNING, format=f"rank {rank}: %(name)s: %(message)s")
    try:
        store = dist.PrefixStore(run, dist.TCPStore(HOST, store_port, is_master=False))
        member = Member(rank, num_ranks, store)
        if group:
            member.join_group()
        try:
            ended = _Ended(value=function(member, *args))
        finally:
            member.close_links()
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()
        left = left_behind()
        assert not left, f"left behind: {left}"
    except SystemExit:
        atexit._run_exitfuncs()  # a script that exits runs these, a multiprocessing child does not
        raise
    except BaseException as error:
        ended = _Ended(error=error, trace=traceback.format_exc())
    pipe.send_bytes(_pickled(ended))
    pipe.close()


def _pickled(ended: _Ended) -> bytes:
    try:
        return pickle.dumps(ended)
    except Exception as error:
        trace = f"{ended.trace}\n(not picklable: {error})"
        return pickle.dumps(_Ended(error=RankFailed(str(ended.error)), trace=trace))


def left_behind() -> list[str]:
    """What this process still has of Holdfast: I/O threads and UDP sockets."""
    return [f"thread {name}" for name in io_threads()] + [f"UDP socket {number}" for number in udp_sockets()]


def io_threads() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            names.append((task / "comm").read_text().strip())
    return [name for name in names if name.startswith("holdfast")]


def udp_sockets() -> list[int]:
    """File descriptors of this process that are UDP sockets."""
    inodes = set()
    for table in ("udp", "udp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            inodes.add(line.split()[9])
    numbers = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(entry)
            if target.startswith("socket:[") and target[8:-1] in inodes:
                numbers.append(int(entry.name))
    return numbers
