"""Agreeing on what all ranks must do alike while operations go on, without anybody waiting for it.

Every `INTERVAL` calls the ranks start one small exact operation with what each of them has seen of every topic. Whoever
has its result works out what holds from `LEAD` operations later on. A rank that has none after `PATIENCE` of them, because
it or its network stood still, objects: all go on as before, and the next exchange shows what was missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

INTERVAL = 16
LEAD = 12
PATIENCE = 5
_SETTLING = 2
"""So many operations before it holds it is settled: those that others begin early are then known to be divided so."""


class Exchange(Protocol):
    """How ranks tell each other."""

    def start(self, own: Sequence[float]) -> int:
        """Starts the exchange of these values, and returns its operation's number."""

    def poll(self, operation: int) -> list[list[float]] | None:
        """What all ranks said in that exchange, by rank, an empty list if it failed; none while it is under way."""

    def give_up(self, operation: int) -> None:
        """Nobody will ask for it any more."""

    def object_to(self, operation: int) -> None:
        """Tells all ranks that this one goes on without the answer."""

    def was_objected_to(self, operation: int) -> bool:
        """Has another rank told this one?"""


class Topic(Protocol):
    """One thing to agree on. What it makes of all views must follow from them, and from what was agreed before."""

    def take_view(self) -> list[float]:
        """What this rank tells the others; as many values every time, and on every rank."""

    def agree(self, views: Sequence[Sequence[float]]) -> bool:
        """All ranks' views, by rank. True: something changes."""

    def explain(self) -> str:
        """What is agreed, and why."""


class Agreement:
    def __init__(self, topics: Sequence[Topic]) -> None:
        self._topics = topics
        self.num_calls = 0
        self._exchange: int | None = None
        self._answer: list[list[float]] | None = None
        self._view_sizes: list[int] = []

    def before_call(self, next_operation: int, exchange: Exchange) -> tuple[int, list[Topic]] | None:
        """To be asked before every bounded call. Not none: from this operation on these topics are settled anew."""
        news = self._conclude(next_operation, exchange)
        self.num_calls += 1
        if self.num_calls % INTERVAL == 0:
            views = [topic.take_view() for topic in self._topics]
            self._view_sizes = [len(view) for view in views]
            self._exchange = exchange.start([value for view in views for value in view])
            self._answer = None
        return news

    def resume(self, num_calls: int) -> None:
        """As if so many calls had been made: this rank was away during some of them.

        An exchange that it took part in before is not over for it: the others will act on the answer, too.
        """
        self.num_calls = num_calls

    def _conclude(self, next_operation: int, exchange: Exchange) -> tuple[int, list[Topic]] | None:
        started = self._exchange
        if started is None:
            return None
        if self._answer is None:
            self._answer = exchange.poll(started)
            if self._answer == []:  # it failed here, and perhaps not everywhere
                exchange.object_to(started)
        if self._answer is None:
            if next_operation >= started + PATIENCE:
                self._exchange = None
                exchange.give_up(started)
                exchange.object_to(started)
            return None
        if next_operation < started + LEAD - _SETTLING:
            return None  # others may still object
        self._exchange = None
        if not self._answer or exchange.was_objected_to(started):
            return None
        changed = self._agree(self._answer)
        return (max(started + LEAD, next_operation), changed) if changed else None

    def _agree(self, by_rank: Sequence[Sequence[float]]) -> list[Topic]:
        changed, begin = [], 0
        for topic, size in zip(self._topics, self._view_sizes, strict=True):
            if topic.agree([values[begin : begin + size] for values in by_rank]):
                changed.append(topic)
            begin += size
        return changed
