"""How long an all-reduce takes: every peer in one run, taking turns, so that noise hits all of them alike."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from holdfast.config import Config

# Warm-up fills caches, opens TCP connections and measures Holdfast's bound; it is not counted.
WARMUP_ITERATIONS = 8
_STORE_TIMEOUT = timedelta(seconds=120)


@dataclass(frozen=True)
class Plan:
    peers: Sequence[str]
    num_ranks: int
    sizes: Sequence[int]
    """Bytes of float32."""
    iterations: int
    config: Config
    profile: str = "loopback"


@dataclass(frozen=True)
class Row:
    """One peer at one size. Times are of the slowest rank; null (None) where a figure does not apply."""

    peer: str
    profile: str
    ranks: int
    bytes: int
    iterations: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    lower_bound_ms: float | None
    delivered_ratio: float
    wrong: int
    late_p999_ms: float | None


@dataclass(frozen=True)
class Samples:
    """What one rank measured of one peer at one size."""

    peer: str
    bytes: int
    seconds: Sequence[float]
    delivered_ratio: float
    wrong: int


def run(plan: Plan, on_progress: Callable[[str, int], None] = lambda _what, _done: None) -> list[Row]:
    """Starts the ranks as processes of their own, and returns a row per peer and size."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    port = _free_port()
    pipes, processes = [], []
    try:
        for rank in range(plan.num_ranks):
            parent_end, child_end = context.Pipe()
            process = context.Process(target=_rank_main, args=(rank, plan, port, child_end), daemon=True)
            process.start()
            child_end.close()
            pipes.append(parent_end)
            processes.append(process)
        samples = [_collect(rank, pipe, on_progress) for rank, pipe in enumerate(pipes)]
    finally:
        for process in processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join(timeout=5)
    return _rows(plan, samples)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _collect(rank: int, pipe: Connection, on_progress: Callable[[str, int], None]) -> list[Samples]:
    """Rank 0 reports progress as it goes; every rank ends with its samples or its error."""
    patience_s = 300.0
    while True:
        if not pipe.poll(patience_s):
            raise TimeoutError(f"rank {rank} said nothing for {patience_s:.0f} s")
        try:
            kind, content = pipe.recv()
        except EOFError:
            raise RuntimeError(f"rank {rank} ended without a word; its output above may say why") from None
        if kind == "progress":
            on_progress(*content)
        elif kind == "error":
            raise content
        else:
            return list(content)


def _rank_main(rank: int, plan: Plan, port: int, pipe: Connection) -> None:
    import ctypes
    import signal

    # A parent that is killed must not leave ranks behind.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    try:
        pipe.send(("samples", _measure(rank, plan, port, pipe)))
    except Exception as error:
        pipe.send(("error", error))


def _measure(rank: int, plan: Plan, port: int, pipe: Connection) -> list[Samples]:
    import torch
    import torch.distributed as dist

    from holdfast.lab import contestant

    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    store = dist.TCPStore("127.0.0.1", port, plan.num_ranks, rank == 0, timeout=_STORE_TIMEOUT)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=plan.num_ranks)
    contestants = [contestant.make(name, store, rank, plan.num_ranks, plan.config) for name in plan.peers]
    done = 0
    samples = []
    try:
        for size in plan.sizes:
            benches = [_Bench(each, rank, plan.num_ranks, size) for each in contestants]
            for iteration in range(WARMUP_ITERATIONS + plan.iterations):
                for bench in benches:
                    bench.step(counted=iteration >= WARMUP_ITERATIONS)
                done += 1
                if rank == 0:
                    pipe.send(("progress", (f"{size} bytes", done)))
            samples += [bench.samples() for bench in benches]
        dist.barrier()
    finally:
        for each in contestants:
            each.close()
        dist.destroy_process_group()
    return samples


class _Bench:
    """One peer at one size on one rank. The gradients are whole numbers, so that a right answer is exactly right."""

    def __init__(self, contestant: Any, rank: int, num_ranks: int, num_bytes: int) -> None:
        import torch

        self._contestant = contestant
        self._bytes = num_bytes
        count = max(1, num_bytes // 4)
        ramp = torch.arange(count, dtype=torch.float32) % 61
        self._gradient = ramp + rank
        self._expected = ramp + (num_ranks - 1) / 2
        self._work = torch.empty_like(ramp)
        self._seconds: list[float] = []
        self._delivered: list[float] = []
        self._wrong = 0
        contestant.new_size()

    def step(self, counted: bool) -> None:
        import torch.distributed as dist

        self._work.copy_(self._gradient)
        dist.barrier()
        started = time.perf_counter()
        delivered = self._contestant.average(self._work)
        elapsed = time.perf_counter() - started
        if not counted:
            return
        self._seconds.append(elapsed)
        self._delivered.append(delivered.ratio)
        if delivered.complete:
            self._wrong += int((self._work != self._expected).sum())

    def samples(self) -> Samples:
        ratio = sum(self._delivered) / len(self._delivered)
        return Samples(self._contestant.name, self._bytes, self._seconds, ratio, self._wrong)


def _rows(plan: Plan, by_rank: Sequence[Sequence[Samples]]) -> list[Row]:
    rows = []
    for of_all_ranks in zip(*by_rank, strict=True):
        slowest = sorted(max(seconds) * 1e3 for seconds in zip(*(each.seconds for each in of_all_ranks), strict=True))
        first = of_all_ranks[0]
        rows.append(
            Row(
                peer=first.peer,
                profile=plan.profile,
                ranks=plan.num_ranks,
                bytes=first.bytes,
                iterations=len(slowest),
                p50_ms=_percentile(slowest, 0.50),
                p95_ms=_percentile(slowest, 0.95),
                p99_ms=_percentile(slowest, 0.99),
                max_ms=slowest[-1],
                lower_bound_ms=None,  # loopback has no line rate
                delivered_ratio=sum(each.delivered_ratio for each in of_all_ranks) / len(of_all_ranks),
                wrong=sum(each.wrong for each in of_all_ranks),
                late_p999_ms=None,  # the lab's switch measures its own lateness; loopback has no switch
            )
        )
    return rows


def _percentile(ascending: Sequence[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]
