"""How ranks tell each other what they have seen: exact operations that nobody waits for.

One that has to go on without an answer says so in a note, which the others read before they act on theirs.
"""

from __future__ import annotations

import array
import struct
import weakref
from collections.abc import Sequence
from typing import Protocol

from holdfast import _native
from holdfast.link.link import Link
from holdfast.reduce.pending import Pending

_CHANNEL = 0x63
_OBJECTION = struct.Struct(">I")  # the exchange's operation
_NOTE_LIMIT_S = 1.0
_KEPT_OPERATIONS = 256


class ExactSums(Protocol):
    """What an exchange is made of."""

    def start_exchange(self, own: Sequence[float]) -> tuple[Pending, array.array[float]]:
        """Begins the exact sum of vectors in which each rank fills its own place."""

    def take_report(self, pending: Pending) -> _native.OperationReport | None:
        """Without waiting for it."""

    def abandon(self, pending: Pending) -> None: ...


class ViewExchange:
    def __init__(self, link: Link, sums: ExactSums) -> None:
        self._link = link
        self._sums = weakref.proxy(sums)  # whose part this is
        self._under_way: dict[int, tuple[Pending, array.array[float]]] = {}
        self._tickets: list[int] = []
        self._objections: set[int] = set()

    def start(self, own: Sequence[float]) -> int:
        pending, values = self._sums.start_exchange(own)
        self._under_way[pending.operation] = pending, values
        return int(pending.operation)

    def poll(self, operation: int) -> list[list[float]] | None:
        pending, values = self._under_way[operation]
        report = self._sums.take_report(pending)
        if report is None:
            return None
        del self._under_way[operation]
        return by_rank(values, self._link.num_ranks) if report.status == _native.Status.done else []

    def give_up(self, operation: int) -> None:
        pending, _ = self._under_way.pop(operation)
        self._sums.abandon(pending)

    def object_to(self, operation: int) -> None:
        self._tickets = [ticket for ticket in self._tickets if not self._link.note_is_settled(ticket)]
        for peer in set(range(self._link.num_ranks)) - {self._link.rank} - self._link.gone_peers():
            note = _OBJECTION.pack(operation)
            self._tickets.append(self._link.send_note(peer, _CHANNEL, note, _NOTE_LIMIT_S))

    def was_objected_to(self, operation: int) -> bool:
        while (received := self._link.receive_note(_CHANNEL, 0.0)) is not None:
            _, note = received
            if len(note) == _OBJECTION.size:
                self._objections.update(_OBJECTION.unpack(note))
        # One to a later exchange, which this rank has not come to yet, is kept until then.
        self._objections = {other for other in self._objections if operation <= other < operation + _KEPT_OPERATIONS}
        return operation in self._objections


def by_rank(values: array.array[float], num_ranks: int) -> list[list[float]]:
    count = len(values) // num_ranks
    return [list(values[at : at + count]) for at in range(0, len(values), count)]
