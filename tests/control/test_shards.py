"""Uneven shards: the exact optimum against brute force, and when a new division is worth it."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.control.shards import (
    FULL_WEIGHT,
    LEAST_STEP,
    MAX_NUMBER,
    Division,
    lower_bound_ms,
    optimal_weights,
    propose,
)

rate_lists = st.lists(st.floats(0.05, 20.0), min_size=3, max_size=8)


def slowest_ms(shares: list[float], rates: list[float], num_bytes: float = 1.0) -> float:
    """The docstring's t_i, written out: what rank i sends, and it receives as much."""
    num_ranks = len(rates)
    sent = [num_bytes * (1 - share) + (num_ranks - 1) * share * num_bytes for share in shares]
    return max(each / rate for each, rate in zip(sent, rates, strict=True))


@pytest.mark.parametrize(
    "rates",
    [[1, 1, 1], [1, 1, 0.25], [1, 1, 0.7], [4, 2, 1], [1, 1, 1, 1], [1, 1, 1, 0.25], [1, 1, 1, 0.8], [1, 0.3, 1, 0.6]],
)
def test_no_division_on_a_fine_grid_is_faster(rates: list[float]) -> None:
    steps = 24
    grid = [
        [*head, steps - sum(head)] for head in product(range(steps + 1), repeat=len(rates) - 1) if sum(head) <= steps
    ]
    brute = min(slowest_ms([part / steps for part in parts], rates) for parts in grid)
    best = slowest_ms(optimal_weights(rates), rates)
    assert best <= brute + 1e-9
    # The grid is off by at most one step of its own.
    assert brute <= best + (len(rates) - 2) / steps / min(rates)
    assert best == pytest.approx(lower_bound_ms(rates, 1))


@given(rate_lists, st.data())
def test_moving_a_little_from_one_rank_to_another_never_helps(rates: list[float], data: st.DataObject) -> None:
    shares = optimal_weights(rates)
    giver = data.draw(st.sampled_from([rank for rank, share in enumerate(shares) if share > 0]))
    taker = data.draw(st.integers(0, len(rates) - 1))
    moved = list(shares)
    amount = data.draw(st.floats(0, 1)) * shares[giver]
    moved[giver] -= amount
    moved[taker] += amount
    assert slowest_ms(moved, rates) >= slowest_ms(shares, rates) * (1 - 1e-9)


@given(rate_lists)
def test_shares_sum_to_one_and_reach_the_bound(rates: list[float]) -> None:
    shares = optimal_weights(rates)
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares) >= 0.0
    assert slowest_ms(shares, rates, 1000) == pytest.approx(lower_bound_ms(rates, 1000))


def test_equal_rates_get_equal_shares() -> None:
    assert optimal_weights([3.0] * 5) == pytest.approx([0.2] * 5)
    assert lower_bound_ms([100.0] * 4, 1000) == pytest.approx(1000 * 1.5 / 100)  # 2 (N-1)/N


def test_a_quarter_of_the_rate_still_sends_its_own_gradient() -> None:
    rates = [1.0, 1.0, 1.0, 0.25]
    assert optimal_weights(rates) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0])
    assert lower_bound_ms(rates, 100) == 400
    assert slowest_ms([0.25] * 4, rates, 100) == 600


def test_two_ranks_cannot_divide_better() -> None:
    assert optimal_weights([1.0, 0.1]) == [0.5, 0.5]
    assert lower_bound_ms([1.0, 0.1], 10) == pytest.approx(100.0)
    assert lower_bound_ms([1.0], 10) == 0.0
    even = Division.even(2)
    assert propose([[1.0, 0.1]], even) is even
    alone = Division.even(1)
    assert propose([[1.0]], alone) is alone


def test_a_rank_at_a_quarter_of_the_rate_gets_the_least() -> None:
    division = propose([[1.0, 0.25, 1.0, 1.0]] * 5, Division.even(4))
    assert division.weights == (64, 1, 64, 64)
    assert division.reason == "shards in proportion to 64/1/64/64: rank 1 at 0.25 of the others' rate"
    assert slowest_ms(division.shares, [1.0, 0.25, 1.0, 1.0]) < 1.02 * lower_bound_ms([1.0, 0.25, 1.0, 1.0], 1)


def test_a_somewhat_slow_rank_gets_a_middle_weight() -> None:
    rates = [1.0, 0.65, 1.0, 1.0]
    division = propose([rates] * 5, Division.even(4))
    assert 1 < division.weights[1] < 20
    assert slowest_ms(division.shares, rates) < 1.02 * lower_bound_ms(rates, 1)


def test_a_rank_that_is_slow_now_and_then_keeps_its_shard() -> None:
    even = Division.even(4)
    rows = [[1.0, 0.2, 1.0, 1.0]] * 4 + [[1.0, 0.9, 1.0, 1.0]]
    assert propose(rows, even) is even
    assert propose([], even) is even


@given(st.integers(3, 8), st.data())
def test_noise_leaves_shards_even(num_ranks: int, data: st.DataObject) -> None:
    row = st.lists(st.floats(0.82, 1.22), min_size=num_ranks, max_size=num_ranks)
    even = Division.even(num_ranks)
    assert propose(data.draw(st.lists(row, min_size=1, max_size=5)), even) is even


def test_it_is_harder_to_begin_than_to_go_on() -> None:
    even = Division.even(4)
    reduced = propose([[1.0, 0.25, 1.0, 1.0]], even)
    between = [[1.0, 0.72, 1.0, 1.0]]
    assert propose(between, even) is even
    assert propose(between, reduced).weights[1] < FULL_WEIGHT
    assert propose([[1.0, 0.85, 1.0, 1.0]], reduced).weights == even.weights
    assert propose([[1.0, 0.85, 1.0, 1.0], [1.0, 0.3, 1.0, 1.0]], reduced).weights[1] < FULL_WEIGHT


def test_small_corrections_are_not_worth_an_agreement() -> None:
    reduced = propose([[1.0, 0.65, 1.0, 1.0]], Division.even(4))
    assert propose([[1.0, 0.66, 1.0, 1.0]], reduced) is reduced
    other = propose([[1.0, 0.75, 1.0, 1.0]], reduced)
    assert abs(other.weights[1] - reduced.weights[1]) > LEAST_STEP


@settings(max_examples=200)
@given(rate_lists)
def test_weights_fit_a_byte_and_are_the_same_on_every_rank(rates: list[float]) -> None:
    even = Division.even(len(rates))
    division = propose([rates] * 2, even)
    assert all(1 <= weight <= 64 for weight in division.weights)
    assert max(division.weights) == 64
    assert propose([list(rates)] * 2, Division.even(len(rates))) == division
    assert slowest_ms(division.shares, rates) <= slowest_ms(even.shares, rates) * 1.05


def test_every_change_has_another_number_also_after_even_shards() -> None:
    division = Division.even(4)
    for slow in [0, 1, 2, 3] * 4:
        following = propose([[0.25 if rank == slow else 1.0 for rank in range(4)]], division)
        assert following.weights != division.weights
        assert 1 <= following.number <= MAX_NUMBER
        assert following.number != division.number
        division = following
    even = propose([[1.0] * 4], division)
    assert len(set(even.weights)) == 1
    assert propose([[0.25, 1.0, 1.0, 1.0]], even).number != division.number
