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
        self.objected_to: list[int] = []
        self.heard_objections: set[int] = set()
        self.rates = {1: 100.0, 2: 100.0, 3: 25.0}
        self.own: Sequence[float] = ()

    def start(self, own: Sequence[float]) -> int:
        self.started.append(self.next_operation)
        self.own = own
        self.next_operation += 1
        return self.started[-1]

    def give_up(self, operation: int) -> None:
        self.given_up.append(operation)

    def object_to(self, operation: int) -> None:
        self.objected_to.append(operation)

    def was_objected_to(self, operation: int) -> bool:
        return operation in self.heard_objections

    def poll(self, operation: int) -> list[list[float]] | None:
        assert operation == self.started[-1]
        others = [self.own[0], 100.0, 100.0, 100.0, 25.0]
        return [list(self.own), others, others, others] if self.answers else None

    def call(self) -> int | None:
        news = self.agreement.before_call(self.next_operation, self)
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
    assert rank.given_up == rank.objected_to == rank.started[:-1]  # the last may still end
    rank.answers = True
    assert len([holds_from for _ in range(4 * INTERVAL) if (holds_from := rank.call())]) == 1


def test_nobody_changes_what_somebody_has_no_answer_for() -> None:
    rank = Rank()
    for _ in range(NUM_ROWS * INTERVAL):
        rank.call()
    rank.heard_objections = {rank.started[-1]}
    before = rank.slow_ranks.take_view()[0]
    assert [rank.call() for _ in range(LEAD)] == [None] * LEAD
    assert rank.slow_ranks.take_view()[0] == before
    assert rank.objected_to == []


def test_an_exchange_that_failed_here_is_objected_to() -> None:
    rank = Rank()
    rank.poll = lambda _operation: []  # type: ignore[method-assign]
    for _ in range(INTERVAL + LEAD):
        assert rank.call() is None
    assert rank.objected_to == rank.started[:1]


def test_an_answer_waits_for_objections_until_just_before_it_holds() -> None:
    rank = Rank()
    for _ in range(NUM_ROWS * INTERVAL):
        rank.call()
    while (holds_from := rank.call()) is None:
        assert rank.next_operation < rank.started[-1] + LEAD
    assert holds_from == rank.started[-1] + LEAD
    assert rank.next_operation >= holds_from - 2


def test_whoever_skipped_operations_with_the_answer_in_hand_acts_on_it_at_once() -> None:
    rank = Rank()
    for _ in range(NUM_ROWS * INTERVAL):
        rank.call()
    rank.next_operation += LEAD + 3
    assert rank.call() == rank.next_operation - 1


def test_a_rank_that_was_away_still_uses_the_answer_to_an_exchange_that_it_took_part_in() -> None:
    rank, others = Rank(), Rank()
    for _ in range(NUM_ROWS * INTERVAL):
        rank.call()
        others.call()
    num_skipped = 3
    for _ in range(num_skipped):
        others.call()
    rank.next_operation += num_skipped
    rank.agreement.resume(rank.agreement.num_calls + num_skipped)
    answers = [(rank.call(), others.call()) for _ in range(LEAD - num_skipped)]
    assert len([own for own, theirs in answers if own is not None and own == theirs]) == 1
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
    exchange = Rank()

    def poll(operation: int) -> list[list[float]]:
        others = [exchange.own[0], 100.0, 100.0, 100.0, *Loss(0.09).take_view()]
        return [list(exchange.own), others, others]

    exchange.poll = poll  # type: ignore[method-assign]
    news: list[tuple[int, list[Topic]]] = []
    for _ in range(INTERVAL + LEAD):
        switch.observe(0, 1000)
        slow_ranks.observe({1: 100.0, 2: 100.0})
        if found := agreement.before_call(exchange.next_operation, exchange):
            news.append(found)
        exchange.next_operation += 1
    assert news == [(exchange.started[0] + LEAD, [switch])]
    assert switch.on
    assert "6.0% of all gradient entries" in switch.explain()
