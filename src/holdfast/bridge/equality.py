"""Making replicas equal: compare digests of everything with rank 0, fetch what differs.

All messages go by exact delivery under one deadline. Rank 0 tells its digests, every other rank answers with the
indices that differ, and rank 0 sends those tensors. Every note carries the round it belongs to, so that what a round
that failed left behind is never taken for an answer.

A rank 0 that was away, or lost something that was not mended yet, must not give its state to those that went on: it first
asks who is sure of its own, and becomes equal to the lowest of those, in a round of the two.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from holdfast import _native
from holdfast.errors import BucketMismatch, DeadlineExceeded, OperationError, PeerDead
from holdfast.link.link import Link

CHANNELS = _DIGESTS, _WANTED, _PIECE, _SERVED = 0x51, 0x52, 0x53, 0x54  # of notes
_ROUND_BYTES = 8
# What rank 0 begins a round with.
_COMPARE, _WHO_IS_SURE, _TELL_ME = b"c", b"w", b"t"
_REFERENCE = 0
_DIGEST_BYTES = 16
# A note is held in memory as a whole; larger tensors travel in pieces.
_PIECE_BYTES = 4 << 20
# How often a wait looks whether those it waits for are still there.
_LOOK_S = 0.1
_SURE, _UNSURE = b"s", b"u"
_PIECE_HEADER = struct.Struct(">IQ")  # which tensor, which byte of it


@dataclass(frozen=True)
class Equalised:
    """What `synchronize()` found and mended on this rank."""

    tensors_compared: int
    tensors_fetched: int
    bytes_fetched: int


def model_state(module: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> list[torch.Tensor]:
    """Parameters, buffers and optimizer state, in an order all ranks share."""
    tensors = [tensor.detach() for tensor in (*module.parameters(), *module.buffers())]
    return tensors + [tensor.detach() for optimizer in optimizers for _, _, tensor in optimizer_state(optimizer)]


def optimizer_state(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, str, torch.Tensor]]:
    """All tensors that an optimizer keeps: of which parameter, by which name, in an order all ranks share."""
    number = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for key in sorted(state):
                if isinstance(state[key], torch.Tensor):
                    yield parameter, f"{key} of parameter {number}", state[key]
            number += 1


def equalise(link: Link, tensors: Sequence[torch.Tensor], deadline_s: float, *, sure: bool = True) -> Equalised:
    """Makes these tensors equal on all ranks, bit for bit: to rank 0's, unless it is not `sure` of its own.

    Every rank calls it with tensors of the same shapes.
    """
    if link.num_ranks == 1:
        return Equalised(len(tensors), 0, 0)
    clock = _Clock(deadline_s)
    digests = [_digest(tensor) for tensor in tensors]
    if link.rank != _REFERENCE:
        return _fetch(link, tensors, digests, clock, sure)
    fetched = Equalised(len(tensors), 0, 0)
    if not sure and (surest := _lowest_that_is_sure(link, clock)) is not None:
        fetched = _fetch_from(link, tensors, digests, clock, surest)
        digests = [_digest(tensor) for tensor in tensors]
    _serve(link, tensors, digests, clock, {rank for rank in range(link.num_ranks) if rank != _REFERENCE})
    return fetched


def _lowest_that_is_sure(link: Link, clock: _Clock) -> int | None:
    """Of those that are there; none: nobody is surer than rank 0."""
    round_id = _native.random_bytes(_ROUND_BYTES)
    waiting = {rank for rank in range(link.num_ranks) if rank != _REFERENCE}
    for peer in sorted(waiting):
        link.send_note(peer, _DIGESTS, round_id + _WHO_IS_SURE, clock.left_s())
    found = []
    while waiting:
        try:
            peer, answer = _receive(link, _WANTED, clock, waiting, round_id)
        except PeerDead as error:
            waiting -= set(error.peers)
            continue
        waiting.discard(peer)
        if answer == _SURE:
            found.append(peer)
    return min(found, default=None)


def _fetch_from(
    link: Link, tensors: Sequence[torch.Tensor], digests: Sequence[bytes], clock: _Clock, peer: int
) -> Equalised:
    """Rank 0's own part in a round in which another one serves."""
    for channel in (_DIGESTS, _PIECE, _SERVED):
        link.discard_notes(channel)
    ticket = link.send_note(peer, _DIGESTS, _native.random_bytes(_ROUND_BYTES) + _TELL_ME, clock.left_s())
    _, announcement = _receive(link, _DIGESTS, clock, {peer})
    fetched = _fetch_round(link, tensors, digests, clock, announcement, peer)
    link.finish_note(peer, ticket, clock.left_s())
    return fetched


def _serve(
    link: Link, tensors: Sequence[torch.Tensor], digests: Sequence[bytes], clock: _Clock, waiting: set[int]
) -> None:
    gone: set[int] = set()
    round_id = _native.random_bytes(_ROUND_BYTES)
    announcement = round_id + _COMPARE + b"".join(digests)
    tickets = [(peer, link.send_note(peer, _DIGESTS, announcement, clock.left_s())) for peer in sorted(waiting)]
    while waiting:
        try:
            peer, content = _receive(link, _WANTED, clock, waiting, round_id)
        except PeerDead as error:  # the others are served first
            gone.update(error.peers)
            waiting -= gone
            continue
        waiting.discard(peer)
        for index in _wanted_indices(content, len(tensors), peer):
            for piece in _pieces(index, _to_bytes(tensors[index])):
                tickets.append((peer, link.send_note(peer, _PIECE, round_id + piece, clock.left_s())))
        # Only this tells the peer that the round it answered is still going on here.
        tickets.append((peer, link.send_note(peer, _SERVED, round_id, clock.left_s())))
    for peer, ticket in tickets:
        if peer not in gone:
            link.finish_note(peer, ticket, clock.left_s())
    if gone:
        raise _peer_dead(gone)


def _fetch(
    link: Link, tensors: Sequence[torch.Tensor], digests: Sequence[bytes], clock: _Clock, sure: bool
) -> Equalised:
    for channel in (_PIECE, _SERVED):  # nothing of a new round comes before this rank has answered
        link.discard_notes(channel)
    _, announcement = _receive(link, _DIGESTS, clock, {_REFERENCE})
    while True:
        round_id, kind = announcement[:_ROUND_BYTES], announcement[_ROUND_BYTES : _ROUND_BYTES + 1]
        try:
            if kind == _COMPARE:
                return _fetch_round(link, tensors, digests, clock, announcement, _REFERENCE)
            if kind == _WHO_IS_SURE:
                ticket = link.send_note(_REFERENCE, _WANTED, round_id + (_SURE if sure else _UNSURE), clock.left_s())
                link.finish_note(_REFERENCE, ticket, clock.left_s())
            elif kind == _TELL_ME:
                _serve(link, tensors, digests, clock, {_REFERENCE})
            _, announcement = _receive(link, _DIGESTS, clock, {_REFERENCE})
        except _NewerRound as newer:  # rank 0 gave the earlier one up
            announcement = newer.announcement


class _NewerRound(Exception):
    def __init__(self, announcement: bytes) -> None:
        self.announcement = announcement


def _fetch_round(
    link: Link,
    tensors: Sequence[torch.Tensor],
    digests: Sequence[bytes],
    clock: _Clock,
    announcement: bytes,
    server: int,
) -> Equalised:
    round_id, reference = announcement[:_ROUND_BYTES], announcement[_ROUND_BYTES + 1 :]
    if len(reference) != _DIGEST_BYTES * len(digests):
        raise BucketMismatch(
            f"rank {server} compares {len(reference) // _DIGEST_BYTES} tensors, this rank {len(digests)}",
            peers=[server],
            what_to_try="the same model and optimizer on every rank, after the same number of steps",
        )
    wanted = {
        index: bytearray(tensors[index].numel() * tensors[index].element_size())
        for index, digest in enumerate(digests)
        if digest != reference[index * _DIGEST_BYTES : (index + 1) * _DIGEST_BYTES]
    }
    answer = round_id + json.dumps(list(wanted)).encode()
    ticket = link.send_note(server, _WANTED, answer, clock.left_s())
    missing = {(index, start) for index, content in wanted.items() for start in _piece_starts(len(content))}
    while missing:
        _, piece = _receive(link, _PIECE, clock, {server}, round_id)
        index, start = _PIECE_HEADER.unpack_from(piece)
        content = piece[_PIECE_HEADER.size :]
        if (index, start) not in missing or len(content) != min(_PIECE_BYTES, len(wanted[index]) - start):
            raise OperationError(
                f"rank {server} sent a piece of a tensor that was not asked for",
                peers=[server],
                what_to_try="the same model and optimizer on every rank",
            )
        missing.discard((index, start))
        wanted[index][start : start + len(content)] = content
    _receive(link, _SERVED, clock, {server}, round_id)
    for index, received in wanted.items():
        _from_bytes(tensors[index], received)
    link.finish_note(server, ticket, clock.left_s())
    return Equalised(len(tensors), len(wanted), sum(map(len, wanted.values())))


def _wanted_indices(content: bytes, num_tensors: int, peer: int) -> list[int]:
    try:
        indices = json.loads(content)
        valid = all(type(index) is int and 0 <= index < num_tensors for index in indices)
    except (ValueError, TypeError):
        valid = False
    if not valid:
        raise OperationError(
            "a rank asked for tensors that do not exist", peers=[peer], what_to_try="the same version on every rank"
        )
    return list(indices)


def _receive(
    link: Link, channel: int, clock: _Clock, expected: set[int], round_id: bytes | None = None
) -> tuple[int, bytes]:
    """The next note from those expected, of this round. What an earlier round left behind is thrown away."""
    while True:
        gone = expected & link.gone_peers()  # asked first, so that what they sent before is still heard
        received = link.receive_note(channel, 0.0 if gone else min(clock.left_s(), _LOOK_S))
        if received is not None:
            sender, content = received
            if sender not in expected:
                continue
            if round_id is None:
                return sender, content
            if content[:_ROUND_BYTES] == round_id:
                return sender, content[_ROUND_BYTES:]
            continue
        if gone:
            raise _peer_dead(gone)
        if round_id is not None and link.rank != _REFERENCE:
            # Looked for only when nothing of this round is left: rank 0 begins another one either because this one
            # failed, or when all of it has arrived here.
            newer = link.receive_note(_DIGESTS, 0.0)
            if newer is not None and newer[0] == _REFERENCE:
                raise _NewerRound(newer[1])
        if clock.left_s() == 0.0:
            raise DeadlineExceeded(
                "not all ranks took part in making replicas equal",
                peers=sorted(expected),
                deadline_ms=clock.total_s * 1e3,
                what_to_try="call synchronize() and state_dict() on every rank, not only on rank 0",
            )


def _peer_dead(peers: set[int]) -> PeerDead:
    return PeerDead(
        "a rank is gone and was not made equal",
        peers=sorted(peers),
        what_to_try="look at that rank's log; synchronize() and detach() are for all ranks together",
    )


class _Clock:
    """What is left of one deadline for several waits."""

    def __init__(self, total_s: float) -> None:
        self.total_s = total_s
        self._ends = time.monotonic() + total_s

    def left_s(self) -> float:
        return max(0.0, self._ends - time.monotonic())


def _digest(tensor: torch.Tensor) -> bytes:
    return hashlib.blake2b(_to_bytes(tensor), digest_size=_DIGEST_BYTES).digest()


def _to_bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@torch.no_grad()
def _from_bytes(tensor: torch.Tensor, content: bytearray) -> None:
    flat = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    tensor.copy_(flat.view(tensor.dtype).view(tensor.shape))


def _piece_starts(num_bytes: int) -> range:
    return range(0, num_bytes, _PIECE_BYTES)


def _pieces(index: int, content: bytes) -> Iterator[bytes]:
    # Notes complete in any order, so each piece says where it belongs.
    for start in _piece_starts(len(content)):
        yield _PIECE_HEADER.pack(index, start) + content[start : start + _PIECE_BYTES]
