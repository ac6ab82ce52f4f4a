"""One rank of a benchmark: `python -m holdfast.lab.bench.rank`. Does what it is told on an inherited socket.

Nothing but the operations themselves goes over the network that is measured: orders, results and the Store (a file)
stay on this machine.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from holdfast.config import Config, WireName
from holdfast.lab.bench import contestant
from holdfast.lab.bench.row import Measured
from holdfast.lab.bench.slowest import Witness
from holdfast.lab.peer import Peer, peer_named
from holdfast.lab.priority import raise_priority

# The one who gives orders is dead, or has forgotten us.
ORDER_LIMIT_S = 600.0
_STORE_LIMIT = timedelta(seconds=120)


class Rank:
    """The orders: `join` a contestant, prepare a `size`, run one `operation`, or a `series`, at a given time, and tell
    what was `last_seen`."""

    def __init__(self, rank: int, num_ranks: int, config: Config, store: dist.Store) -> None:
        self._rank, self._num_ranks, self._config, self._store = rank, num_ranks, config, store
        self._contestants: dict[str, contestant.Contestant] = {}
        self._gradient = self._expected = self._sizes = self._work = torch.empty(0)

    def join(self, peer: str) -> None:
        self._contestants[peer] = contestant.make(
            peer_named(peer), self._store, self._rank, self._num_ranks, self._config
        )

    def size(self, num_bytes: int) -> None:
        """Spread like a bell, as gradients are: whatever a peer does with their bits, it shall not profit from the bench."""
        total = torch.zeros(max(1, num_bytes // 4), dtype=torch.float64)
        sizes = torch.zeros_like(total)
        for rank in range(self._num_ranks):
            gradient = torch.randn(len(total), generator=torch.Generator().manual_seed(rank))
            total += gradient
            sizes += gradient.abs()
            if rank == self._rank:
                self._gradient = gradient
        self._expected = total / self._num_ranks
        self._sizes = sizes / self._num_ranks + self._expected.abs()
        self._work = self._gradient.clone()
        for each in self._contestants.values():
            each.new_size()

    def operation(self, peer: str, start_ns: int) -> Measured:
        """All ranks begin at the same time, whatever the network does."""
        time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))
        began_ns = time.monotonic_ns()
        delivered = self._contestants[peer].average(self._work)
        ended_ns = time.monotonic_ns()
        of = peer_named(peer)
        wrong = self._num_wrong(of, of.wire) if delivered.complete else 0
        wrong_if_narrow = self._num_wrong(of, "bf16") if wrong else 0
        self._work.copy_(self._gradient)  # now, not between the order and the start of the next one
        return Measured(
            began_ns,
            ended_ns,
            delivered.ratio,
            delivered.missing_by_rank,
            wrong,
            delivered.stages,
            delivered.late_ratio,
            delivered.narrow_ratio,
            wrong_if_narrow,
        )

    def series(self, peer: str, start_ns: int, count: int) -> list[Measured]:
        """One operation after the other, with no more between them than a rank needs to get ready."""
        return [self.operation(peer, start_ns) for _ in range(count)]

    def last_seen(self, peer: str) -> Witness | None:
        return self._contestants[peer].last_seen()

    def _num_wrong(self, peer: Peer, wire_name: WireName) -> int:
        """More than all roundings on the way can be off, each by a unit of its format's last place at most."""
        wire = torch.finfo(torch.bfloat16 if wire_name == "bf16" else torch.float32).eps
        # Gloo sums in the format of the wire and rounds once a rank, to nearest. Holdfast sums in float32, and rounds each
        # contribution and the mean to the wire's format, up or down.
        summing = self._num_ranks / 2 * (wire if peer.transport == "gloo" else torch.finfo(torch.float32).eps)
        error = (self._work.double() - self._expected).abs()
        return int((error > (wire + summing) * self._sizes).sum())

    def close(self) -> None:
        for each in self._contestants.values():
            each.close()


def serve(rank: Rank, orders: Connection) -> None:
    """Until told to `end`, or until the other side is gone."""
    while orders.poll(ORDER_LIMIT_S):
        try:
            verb, arguments = orders.recv()
        except EOFError:
            return
        if verb == "end":
            return
        orders.send(_carry_out(rank, verb, arguments))


def _carry_out(rank: Rank, verb: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "done", getattr(rank, verb)(*arguments)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", type=int, required=True, help="descriptor of the socket on which orders come")
    parser.add_argument("--store", required=True, help="file through which the ranks find each other")
    options = parser.parse_args()
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    orders = Connection(options.orders)
    try:
        config, wants_priority = orders.recv()
        # On plain loopback ranks and rivals share one machine with everybody: nobody is put ahead.
        if wants_priority:
            raise_priority()
        store = dist.FileStore(options.store, num_ranks)
        store.set_timeout(_STORE_LIMIT)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=_STORE_LIMIT)
        this = Rank(rank, num_ranks, config, dist.PrefixStore("bench", store))
        orders.send(("done", None))
        serve(this, orders)
        this.close()
    except (EOFError, BrokenPipeError):
        pass  # the bench has ended
    # No farewell over a network that may be broken: whatever is left goes with the process.
    os._exit(0)


if __name__ == "__main__":
    main()
