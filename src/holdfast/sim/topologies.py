"""Who sends what to whom, and what a lost packet costs: transpose, server and ring over one modelled network.

The network is the lab's switch in virtual time, packet by packet: links with a rate, paths with delay and loss, and
towards every host a finite queue that cross traffic shares. The transport is that of the OptiReduce paper without its
remedies: nothing is sent again, what did not arrive is zero, and at the deadline everybody has what it has. Values are
real, so a partial sum that is lost takes with it all that was added up so far.

Senders fill their link. A receiver knows when a message is over, also if its last packet is lost: ends are small and
can be repeated, and no pattern shall wait for what will not come.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from holdfast import _native

PACKET_ELEMENTS = 350
PACKET_HEADER_BYTES = 92
"""Of Holdfast, UDP and IP, with the tag of an encrypted datagram."""
SERVER = 0
_NEVER = 2**62

Floats = NDArray[np.float32]
PatternName = Literal["transpose", "server", "ring"]


@dataclass(frozen=True)
class Reduced:
    """One all-reduce as a pattern left it."""

    results: Floats
    """By rank; zero where nothing arrived."""
    elapsed_ms: float
    """Until the last packet came out or was lost, or the deadline."""
    lost_ratio: float
    """Of the packets that came out or were lost."""

    def relative_error(self, gradients: Floats) -> float:
        """Mean square of what is wrong in the results of all ranks, over the mean square of the true mean."""
        wanted = gradients.mean(axis=0, dtype=np.float64)
        return float(np.mean((self.results - wanted) ** 2) / np.mean(wanted**2))


class _Message:
    def __init__(
        self, sender: int, receiver: int, values: Floats, into: Floats, on_end: Callable[[], None] | None = None
    ) -> None:
        """`into` is zero, and filled as packets arrive."""
        self.sender = sender
        self.receiver = receiver
        self.num_packets = max(1, -(-len(values) // PACKET_ELEMENTS))  # also who has nothing to say says so
        self._values = values
        self._into = into
        self._on_end = on_end
        self._num_under_way = self.num_packets

    def bytes_of(self, index: int) -> int:
        return 4 * min(PACKET_ELEMENTS, len(self._values) - index * PACKET_ELEMENTS) + PACKET_HEADER_BYTES

    def on_passage(self, index: int, arrived: bool) -> None:
        if arrived:
            place = slice(index * PACKET_ELEMENTS, (index + 1) * PACKET_ELEMENTS)
            self._into[place] = self._values[place]
        self._num_under_way -= 1
        if self._num_under_way == 0 and self._on_end is not None:
            self._on_end()


class _Transport:
    def __init__(self, conditions: _native.Conditions, seed: int) -> None:
        self._fabric = _native.Fabric(num_ports=len(conditions.ports), seed=seed, now_ns=0)
        self._fabric.configure(0, conditions)
        self._now_ns = 0
        self._to_send: list[tuple[int, int]] = []  # (when, packet), the earliest on top
        self._packets: list[tuple[_Message, int]] = []  # by number: of which message, and which of its packets
        self._num_lost = self._num_through = 0

    def send(self, messages: Iterable[_Message], *, start_ns: int = 0, interval_ns: int = 0) -> None:
        """Packet by packet in turn, all at once or at even intervals; a host's link is first in, first out.

        Times count from now.
        """
        waiting = [(message, 0) for message in messages]
        at_ns = self._now_ns + start_ns
        while waiting:
            for message, index in waiting:
                heapq.heappush(self._to_send, (at_ns, len(self._packets)))
                self._packets.append((message, index))
                at_ns += interval_ns
            waiting = [(message, index + 1) for message, index in waiting if index + 1 < message.num_packets]

    def run(self, deadline_ns: int) -> tuple[float, float]:
        """Until nothing is under way, or the deadline: how long that took in milliseconds, and the share lost."""
        while True:
            next_send_ns = self._to_send[0][0] if self._to_send else _NEVER
            passages = self._fabric.run_until_passage(min(next_send_ns, deadline_ns))
            for at_ns, packet, arrived in passages:
                self._now_ns = at_ns
                self._on_passage(packet, arrived)
            if passages:
                continue
            if next_send_ns >= deadline_ns:
                break
            self._now_ns = next_send_ns
            _, packet = heapq.heappop(self._to_send)
            self._admit(packet)
        return self._now_ns / 1e6, self._num_lost / max(1, self._num_through)

    def _admit(self, packet: int) -> None:
        message, index = self._packets[packet]
        self._fabric.admit(self._now_ns, message.sender, message.receiver, packet, message.bytes_of(index))

    def _on_passage(self, packet: int, arrived: bool) -> None:
        message, index = self._packets[packet]
        self._num_through += 1
        self._num_lost += not arrived
        message.on_passage(index, arrived)


# ---------------------------------------------------------------------------------------------------- the patterns


class _Sum:
    """What has arrived of so many contributions, each of which ends once."""

    def __init__(self, own: Floats, num_others: int, on_complete: Callable[[Floats], None]) -> None:
        self._total = own.copy()
        self._num_missing = num_others
        self._on_complete = on_complete

    def add(self, contribution: Floats) -> None:
        self._total += contribution
        self._num_missing -= 1
        if self._num_missing == 0:
            self._on_complete(self._total)


def _start_transpose(transport: _Transport, gradients: Floats, results: Floats) -> None:
    """Rank i sums shard i. Each rank serves one peer after the other, in turns in which nobody hears two at once."""
    num_ranks = len(gradients)
    shards = _pieces(gradients.shape[1], num_ranks)
    peers = [[(rank - turn) % num_ranks for turn in range(1, num_ranks)] for rank in range(num_ranks)]

    def owner_of(owner: int) -> _Sum:
        def give_to_all(total: Floats) -> None:
            results[owner, shards[owner]] = total / np.float32(num_ranks)
            for peer in peers[owner]:
                shard = shards[owner]
                transport.send([_Message(owner, peer, results[owner, shard], results[peer, shard])])

        return _Sum(gradients[owner, shards[owner]], num_ranks - 1, give_to_all)

    sums = [owner_of(rank) for rank in range(num_ranks)]
    for rank in range(num_ranks):
        for peer in peers[rank]:
            transport.send([_contribution(rank, peer, gradients[rank, shards[peer]], sums[peer])])


def _start_server(
    transport: _Transport, gradients: Floats, results: Floats, interval_ns: int, phases: NDArray[np.float64]
) -> None:
    """Everybody sends everything to one of the ranks, which sends everything to everybody."""
    num_ranks = len(gradients)
    others = [rank for rank in range(num_ranks) if rank != SERVER]

    def give_to_all(total: Floats) -> None:
        results[SERVER] = total / np.float32(num_ranks)
        transport.send(_Message(SERVER, rank, results[SERVER], results[rank]) for rank in others)

    total = _Sum(gradients[SERVER], num_ranks - 1, give_to_all)
    for rank in others:
        contribution = _contribution(rank, SERVER, gradients[rank], total)
        transport.send([contribution], start_ns=int(phases[rank] * interval_ns), interval_ns=interval_ns)


def _start_ring(transport: _Transport, gradients: Floats, results: Floats) -> None:
    """Each piece goes round twice: once to be summed, once to be known. What is lost of it stays lost on its way."""
    num_ranks = len(gradients)
    pieces = _pieces(gradients.shape[1], num_ranks)

    def pass_sum_on(rank: int, piece: int, partial: Floats, num_added: int) -> None:
        if num_added == num_ranks:
            results[rank, pieces[piece]] = partial / np.float32(num_ranks)
            pass_result_on(rank, piece, 1)
            return
        successor = (rank + 1) % num_ranks
        heard = np.zeros_like(partial)

        def add_own() -> None:
            pass_sum_on(successor, piece, heard + gradients[successor, pieces[piece]], num_added + 1)

        transport.send([_Message(rank, successor, partial, heard, add_own)])

    def pass_result_on(rank: int, piece: int, num_knowing: int) -> None:
        if num_knowing == num_ranks:
            return
        successor, place = (rank + 1) % num_ranks, pieces[piece]
        on_end = lambda: pass_result_on(successor, piece, num_knowing + 1)  # noqa: E731
        transport.send([_Message(rank, successor, results[rank, place], results[successor, place], on_end)])

    for rank in range(num_ranks):
        pass_sum_on(rank, rank, gradients[rank, pieces[rank]], 1)


def _contribution(sender: int, receiver: int, values: Floats, total: _Sum) -> _Message:
    heard = np.zeros_like(values)
    return _Message(sender, receiver, values, heard, lambda: total.add(heard))


def _pieces(count: int, num_ranks: int) -> list[slice]:
    edges = [count * rank // num_ranks for rank in range(num_ranks + 1)]
    return [slice(begin, end) for begin, end in pairwise(edges)]


# ---------------------------------------------------------------------------------------------------- one operation


def reduce_by(
    pattern: PatternName,
    gradients: Floats,
    conditions: _native.Conditions,
    *,
    seed: int,
    deadline_ms: float,
    server_load: float | None = None,
) -> Reduced:
    """The mean of the gradients, one row a rank, as this pattern brings it about on this network.

    `server_load` is what all workers together offer to the server's port, in multiples of its rate, paced evenly; none:
    each fills its own link.
    """
    transport = _Transport(conditions, seed)
    results = np.zeros_like(gradients)
    if pattern == "transpose":
        _start_transpose(transport, gradients, results)
    elif pattern == "ring":
        _start_ring(transport, gradients, results)
    else:
        num_ranks = len(gradients)
        interval_ns = 0
        if server_load is not None:
            packet_bits = 8 * (4 * PACKET_ELEMENTS + PACKET_HEADER_BYTES)
            port = conditions.ports[SERVER]
            interval_ns = round(1e9 * packet_bits * (num_ranks - 1) / (server_load * port.downlink_bits_per_s))
        _start_server(transport, gradients, results, interval_ns, np.random.default_rng(seed).random(num_ranks))
    elapsed_ms, lost_ratio = transport.run(round(deadline_ms * 1e6))
    return Reduced(results, elapsed_ms, lost_ratio)


def least_ms(pattern: PatternName, num_ranks: int, num_elements: int, bits_per_s: float) -> float:
    """What the pattern's busiest link needs for its bytes, without loss or delay."""
    num_packets = -(-num_elements // PACKET_ELEMENTS)
    bucket_ms = 8e3 * (4 * num_elements + PACKET_HEADER_BYTES * num_packets) / bits_per_s
    return 2 * (num_ranks - 1) * bucket_ms / (1 if pattern == "server" else num_ranks)
