"""Who is persistently slow: the same verdict on every rank, and none after a bad moment."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.control.shards import FULL_WEIGHT
from holdfast.control.slow_ranks import NUM_ROWS, SlowRanks

WITH_ONE_SLOW = [100.0, 100.0, 100.0, 25.0]


def heard_by(listener: int, rates: Sequence[float]) -> dict[int, float]:
    """A rank hears at its own pace at most."""
    return {rank: min(rate, rates[listener]) for rank, rate in enumerate(rates) if rank != listener}


def exchange(ranks: list[SlowRanks], rates: Sequence[float], num_operations: int = 5) -> list[bool]:
    for listener, rank in enumerate(ranks):
        for _ in range(num_operations):
            rank.observe(heard_by(listener, rates))
    views = [rank.take_view() for rank in ranks]
    return [rank.agree(views) for rank in ranks]


def exchange_that_rank_0_misses(ranks: list[SlowRanks]) -> None:
    for listener, rank in enumerate(ranks):
        rank.observe(heard_by(listener, WITH_ONE_SLOW))
    views = [rank.take_view() for rank in ranks]
    for rank in ranks[1:]:
        rank.agree(views)


def new_job(num_ranks: int = 4) -> list[SlowRanks]:
    return [SlowRanks(num_ranks) for _ in range(num_ranks)]


def test_a_rank_at_a_quarter_of_the_rate_gets_less_once_enough_exchanges_say_so() -> None:
    for num_ranks in (3, 4, 8):
        ranks = new_job(num_ranks)
        slow = num_ranks - 1
        rates = [100.0] * slow + [25.0]
        for _ in range(NUM_ROWS - 1):
            assert exchange(ranks, rates) == [False] * num_ranks
        assert exchange(ranks, rates) == [True] * num_ranks
        weights = ranks[0].division.weights
        assert weights[slow] < FULL_WEIGHT // 4
        assert set(weights[:slow]) == {FULL_WEIGHT}
        assert {rank.division for rank in ranks} == {ranks[0].division}
        assert f"rank {slow}" in ranks[0].explain()


def test_it_gets_a_full_shard_again_when_it_has_recovered() -> None:
    ranks = new_job()
    for _ in range(NUM_ROWS):
        exchange(ranks, WITH_ONE_SLOW)
    changes = [exchange(ranks, [100.0] * 4)[0] for _ in range(NUM_ROWS)]
    assert not changes[0]
    assert sum(changes) == 1
    assert ranks[0].division.weights == (FULL_WEIGHT,) * 4
    assert ranks[0].explain().startswith("even shards")


def test_one_bad_stretch_changes_nothing() -> None:
    ranks = new_job()
    for slow in (0, 1, 2, 3, 0, 1):
        rates = [100.0] * 4
        rates[slow] = 10.0
        assert not any(exchange(ranks, rates))


def test_a_rank_that_missed_an_exchange_makes_all_begin_again() -> None:
    ranks = new_job()
    exchange_that_rank_0_misses(ranks)
    changes = [exchange(ranks, WITH_ONE_SLOW)[0] for _ in range(1 + NUM_ROWS)]
    assert changes == [False] * NUM_ROWS + [True]


def test_ranks_with_different_divisions_return_to_even_ones() -> None:
    ranks = new_job()
    for _ in range(NUM_ROWS - 1):
        exchange(ranks, WITH_ONE_SLOW)
    exchange_that_rank_0_misses(ranks)
    assert len({rank.division.weights for rank in ranks}) == 2
    assert exchange(ranks, [100.0] * 4) == [False, True, True, True]
    assert {rank.division.weights for rank in ranks} == {(FULL_WEIGHT,) * 4}


def test_nothing_is_concluded_where_somebody_was_not_heard() -> None:
    ranks = new_job()
    for _ in range(2 * NUM_ROWS):
        assert exchange(ranks, WITH_ONE_SLOW, num_operations=0) == [False] * 4


def test_fewer_than_half_of_the_listeners_prove_nothing() -> None:
    ranks = new_job()
    for _ in range(2 * NUM_ROWS):
        ranks[0].observe({1: 100.0, 2: 100.0, 3: 25.0})
        ranks[1].observe({0: 100.0})
        ranks[2].observe({0: 100.0})
        views = [rank.take_view() for rank in ranks]
        assert [rank.agree(views) for rank in ranks] == [False] * 4


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0, 1e308, 0.0])
def test_what_a_faulty_rank_says_is_not_believed(nonsense: float) -> None:
    for num_ranks in (3, 5):
        ranks = new_job(num_ranks)
        for _ in range(2 * NUM_ROWS):
            for listener, rank in enumerate(ranks):
                rank.observe(heard_by(listener, [100.0] * num_ranks))
            views = [rank.take_view() for rank in ranks]
            views[0][1:] = [nonsense] * num_ranks
            assert [rank.agree(views) for rank in ranks] == [False] * num_ranks


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(1.0, 100.0), min_size=5, max_size=5), min_size=1, max_size=12))
def test_all_ranks_always_agree(course: list[list[float]]) -> None:
    ranks = new_job(5)
    for rates in course:
        assert len(set(exchange(ranks, rates))) == 1
        assert len({rank.division for rank in ranks}) == 1
