"""Agreeing on the division into shards while operations go on, without anybody waiting for it.

Every `INTERVAL` calls the ranks start one small exact operation with what each of them has seen. Whoever has its result
within `LEAD` operations works out the division, which holds from then on. A rank without it goes on as before, and the
next exchange shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.control.slow_ranks import SlowRanks

INTERVAL = 16
LEAD = 12

Start = Callable[[Sequence[float]], int]
"""Starts the exchange of these values, and returns its operation's number."""
Poll = Callable[[int], list[list[float]] | None]
"""What all ranks said in that exchange, by rank, an empty list if it failed; none while it is under way."""
GiveUp = Callable[[int], None]


class ShardAgreement:
    def __init__(self, num_ranks: int) -> None:
        self.slow_ranks = SlowRanks(num_ranks)
        self.num_calls = 0
        self._exchange: int | None = None

    def before_call(self, next_operation: int, start: Start, poll: Poll, give_up: GiveUp) -> int | None:
        """To be asked before every bounded call. Not none: from this operation on there is a new division."""
        holds_from = self._conclude(next_operation, poll, give_up)
        self.num_calls += 1
        if self.num_calls % INTERVAL == 0:
            self._exchange = start(self.slow_ranks.take_view())
        return holds_from

    def resume(self, num_calls: int, give_up: GiveUp) -> None:
        """As if so many calls had been made: this rank was away during some of them."""
        self.num_calls = num_calls
        if self._exchange is not None:
            give_up(self._exchange)
            self._exchange = None

    def _conclude(self, next_operation: int, poll: Poll, give_up: GiveUp) -> int | None:
        exchange = self._exchange
        if exchange is None:
            return None
        if next_operation >= exchange + LEAD:
            self._exchange = None
            give_up(exchange)
            return None
        if (views := poll(exchange)) is None:
            return None
        self._exchange = None
        return exchange + LEAD if views and self.slow_ranks.agree(views) else None
