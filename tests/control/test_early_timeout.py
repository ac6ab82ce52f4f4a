"""t_C: the samples of figure 8, the median over ranks, the moving average."""

from __future__ import annotations

from itertools import permutations
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.control.early_timeout import EarlyTimeout, StageEnd, stage_sample_ms

ends = st.sampled_from(get_args(StageEnd))


@pytest.mark.parametrize(
    ("end", "elapsed_ms", "received", "total", "sample_ms"),
    [
        ("complete", 12.0, 1000, 1000, 12.0),
        ("bound", 40.0, 999, 1000, 40.0),
        ("bound", 40.3, 999, 1000, 40.0),  # woken late: the sample is t_B, not what the clock says
        ("early", 12.0, 800, 1000, 15.0),
        ("early", 12.0, 3, 1000, 4000.0),
        ("early", 12.0, 999, 1000, 12.0 * 1000 / 999),  # not 12: no integer division
        ("early", 12.0, 0, 1000, 40.0),
        ("early", 12.0, 0, 0, 40.0),
        ("complete", 0.1, 0, 0, 0.1),
    ],
)
def test_what_a_stage_says(end: StageEnd, elapsed_ms: float, received: int, total: int, sample_ms: float) -> None:
    assert stage_sample_ms(end, elapsed_ms, 40.0, received, total) == pytest.approx(sample_ms, rel=1e-12)


@given(ends, st.floats(0, 1e4), st.integers(0, 1000), st.integers(0, 1000))
def test_a_sample_is_never_shorter_than_the_stage(end: StageEnd, elapsed_ms: float, one: int, other: int) -> None:
    received, total = min(one, other), max(one, other)
    assert stage_sample_ms(end, elapsed_ms, max(40.0, elapsed_ms), received, total) >= elapsed_ms * (1 - 1e-12)


def test_it_starts_from_the_bound() -> None:
    early = EarlyTimeout(40.0)
    assert early.t_c_ms == 40.0
    assert early.explain() == "t_C 40.0 ms: t_B, until the first operation has been measured"


def test_the_newest_median_weighs_95_percent() -> None:
    early = EarlyTimeout(40.0)
    assert early.update(10.0, [12.0, 14.0]) == pytest.approx(0.95 * 12.0 + 0.05 * 40.0)
    assert early.update(10.0, [10.0, 10.0]) == pytest.approx(0.95 * 10.0 + 0.05 * 13.4)


def test_one_slow_rank_of_four_does_not_move_it() -> None:
    early = EarlyTimeout(10.0)
    early.update(10.0, [10.0, 10.0, 500.0])
    assert early.t_c_ms == pytest.approx(10.0)


def test_an_even_number_of_ranks_takes_the_middle_of_the_two_in_the_middle() -> None:
    assert EarlyTimeout(15.0).update(10.0, [20.0]) == pytest.approx(15.0)


def test_ranks_that_announced_nothing_are_left_out() -> None:
    early = EarlyTimeout(40.0)
    early.update(10.0, [None, 12.0, None, 14.0, float("nan"), float("inf"), -1.0])
    assert early.t_c_ms == pytest.approx(0.95 * 12.0 + 0.05 * 40.0)
    assert "median of 3 ranks (here 10.0 ms)" in early.explain()
    assert EarlyTimeout(40.0).update(10.0, []) == pytest.approx(0.95 * 10.0 + 0.05 * 40.0)


def test_the_callers_list_keeps_its_order() -> None:
    for samples in permutations([30.0, 10.0, 20.0]):
        given_list = list(samples)
        EarlyTimeout(40.0).update(5.0, given_list)
        assert given_list == list(samples)


@given(st.floats(1, 100), st.lists(st.lists(st.floats(1, 100), min_size=1, max_size=8), max_size=30))
def test_it_stays_between_what_was_measured(initial_ms: float, rounds: list[list[float]]) -> None:
    early = EarlyTimeout(initial_ms)
    for own_ms, *peers_ms in rounds:
        early.update(own_ms, peers_ms)
    everything = [initial_ms, *(ms for samples in rounds for ms in samples)]
    assert min(everything) * (1 - 1e-9) <= early.t_c_ms <= max(everything) * (1 + 1e-9)
