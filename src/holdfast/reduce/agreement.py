"""Agreeing on what all ranks must do alike while operations go on, without anybody waiting for it.

Every `INTERVAL` calls the ranks start one small exact operation with what each of them has seen of every topic. Whoever
has its result within `LEAD` operations works out what holds from then on. A rank without it goes on as before, and the
next exchange shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

INTERVAL = 16
LEAD = 12

Start = Callable[[Sequence[float]], int]
"""Starts the exchange of these values, and returns its operation's number."""
Poll = Callable[[int], list[list[float]] | None]
"""What all ranks said in that exchange, by rank, an empty list if it failed; none while it is under way."""
GiveUp = Callable[[int], None]


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
        self._view_sizes: list[int] = []

    def before_call(
        self, next_operation: int, start: Start, poll: Poll, give_up: GiveUp
    ) -> tuple[int, list[Topic]] | None:
        """To be asked before every bounded call. Not none: from this operation on these topics are settled anew."""
        news = self._conclude(next_operation, poll, give_up)
        self.num_calls += 1
        if self.num_calls % INTERVAL == 0:
            views = [topic.take_view() for topic in self._topics]
            self._view_sizes = [len(view) for view in views]
            self._exchange = start([value for view in views for value in view])
        return news

    def resume(self, num_calls: int) -> None:
        """As if so many calls had been made: this rank was away during some of them.

        An exchange that it took part in before is not over for it: the others will act on the answer, too.
        """
        self.num_calls = num_calls

    def _conclude(self, next_operation: int, poll: Poll, give_up: GiveUp) -> tuple[int, list[Topic]] | None:
        exchange = self._exchange
        if exchange is None:
            return None
        if next_operation >= exchange + LEAD:
            self._exchange = None
            give_up(exchange)
            return None
        if (by_rank := poll(exchange)) is None:
            return None
        self._exchange = None
        changed = self._agree(by_rank) if by_rank else []
        return (exchange + LEAD, changed) if changed else None

    def _agree(self, by_rank: Sequence[Sequence[float]]) -> list[Topic]:
        changed, begin = [], 0
        for topic, size in zip(self._topics, self._view_sizes, strict=True):
            if topic.agree([values[begin : begin + size] for values in by_rank]):
                changed.append(topic)
            begin += size
        return changed
