"""When the ranks ask each other, when the answer counts, and that nobody waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.control.hadamard_switch import HadamardSwitch
from holdfast.control.slow_ranks import NUM_ROWS, SlowRanks
from holdfast.reduce.agreement import INTERVAL, LEAD, Agreement, Topic


class Rank:
    """One rank whose exchanges end when the test says so; each call and each exchange takes a number."""

    def __init__(self) -> None:
        self.slow_ranks = SlowRanks(4)
        self.agreement = Agreement([self.slow_ranks])
        self.next_operation = 20  # a warm-up came before
        self.started: list[int] = []
        self.answers = True
        self.given_up: list[int] = []
        self.rates = {1: 100.0, 2: 100.0, 3: 25.0}
        self.own: Sequence[float] = ()

    def start(self, own: Sequence[float]) -> int:
        self.started.append(self.next_operation)
        self.own = own
        self.next_operation += 1
        return self.started[-1]

    def poll(self, operation: int) -> list[list[float]] | None:
        assert operation == self.started[-1]
        assert self.next_operation < operation + LEAD
        others = [self.own[0], 100.0, 100.0, 100.0, 25.0]
        return [list(self.own), others, others, others] if self.answers else None

    def call(self) -> int | None:
        news = self.agreement.before_call(self.next_operation, self.start, self.poll, self.given_up.append)
        self.next_operation += 1
        self.slow_ranks.observe(self.rates)
        if news is None:
            return None
        holds_from, topics = news
        assert topics == [self.slow_ranks]
        return holds_from


def test_a_division_holds_from_an_operation_that_is_still_to_come() -> None:
    rank = Rank()
    found = [
        (rank.next_operation, holds_from) for _ in range(NUM_ROWS * INTERVAL + LEAD) if (holds_from := rank.call())
    ]
    assert len(rank.started) == NUM_ROWS
    [(next_operation, holds_from)] = found
    assert holds_from == rank.started[-1] + LEAD
    assert next_operation < holds_from


def test_an_exchange_without_an_answer_is_given_up_and_the_next_one_is_started() -> None:
    rank = Rank()
    rank.answers = False
    assert [holds_from for _ in range(4 * INTERVAL) if (holds_from := rank.call())] == []
    assert len(rank.started) == 4
    assert rank.given_up == rank.started[:-1]  # the last may still end
    rank.answers = True
    assert len([holds_from for _ in range(4 * INTERVAL) if (holds_from := rank.call())]) == 1


def test_an_answer_that_comes_after_its_operation_is_not_used() -> None:
    rank = Rank()
    for _ in range(INTERVAL):
        rank.call()
    rank.next_operation += LEAD  # exact operations in between
    before = rank.slow_ranks.take_view()[0]
    assert rank.call() is None
    assert rank.slow_ranks.take_view()[0] == before


def test_a_rank_that_was_away_still_uses_the_answer_to_an_exchange_that_it_took_part_in() -> None:
    rank, others = Rank(), Rank()
    for _ in range(NUM_ROWS * INTERVAL):
        rank.call()
        others.call()
    num_skipped = 3
    expected = [others.call() for _ in range(num_skipped + 1)]
    rank.next_operation += num_skipped
    rank.agreement.resume(rank.agreement.num_calls + num_skipped)
    assert rank.call() == next(filter(None, expected))
    assert rank.slow_ranks.division == others.slow_ranks.division


class Loss:
    """The view of a rank on loss, by hand."""

    def __init__(self, lost_ratio: float) -> None:
        self.switch = HadamardSwitch()
        self.lost_ratio = lost_ratio

    def take_view(self) -> list[float]:
        self.switch.observe(round(1000 * self.lost_ratio), 1000)
        return self.switch.take_view()


def test_one_exchange_carries_the_views_of_all_topics_and_names_those_that_change() -> None:
    slow_ranks, switch = SlowRanks(3), HadamardSwitch()
    agreement = Agreement([slow_ranks, switch])
    own: list[float] = []

    def start(values: Sequence[float]) -> int:
        own[:] = values
        return 100

    def poll(operation: int) -> list[list[float]]:
        assert operation == 100
        others = [own[0], 100.0, 100.0, 100.0, *Loss(0.09).take_view()]
        return [list(own), others, others]

    news: list[tuple[int, list[Topic]]] = []
    for call in range(INTERVAL + 1):
        switch.observe(0, 1000)
        slow_ranks.observe({1: 100.0, 2: 100.0})
        if found := agreement.before_call(101, start, poll, lambda _: None):
            news.append(found)
            assert call == INTERVAL
    assert news == [(100 + LEAD, [switch])]
    assert switch.on
    assert "6.0% of all gradient entries" in switch.explain()
