"""t_B stays the time that 95 % of stages stay within, without ever falling below what was measured."""

from __future__ import annotations

import random

import pytest

from holdfast.control.bound_margin import MOST_RATIO, BoundMargin


def hits_after_settling(margin: BoundMargin, median: float, spread: float, seed: int) -> float:
    """Of stages with normal times, how many reach a bound that was measured as 1."""
    generator = random.Random(seed)
    hits = []
    for _ in range(3000):
        hit = generator.gauss(median, spread) > margin.ratio
        margin.observe(hit_bound=hit)
        hits.append(hit)
    return sum(hits[1000:]) / 2000


@pytest.mark.parametrize("median", [0.97, 1.0, 1.1, 1.2])
def test_a_little_slower_than_during_the_warm_up_still_hits_in_one_of_twenty(median: float) -> None:
    assert 0.03 < hits_after_settling(BoundMargin(), median, 0.03, 1) < 0.08


def test_it_stays_where_it_was_measured_while_fewer_reach_it() -> None:
    margin = BoundMargin()
    assert hits_after_settling(margin, 0.8, 0.03, 2) == 0
    assert margin.ratio == 1
    assert margin.explain() == ""


def test_a_quick_drift_is_followed_within_ten_stages() -> None:
    margin = BoundMargin()
    needed = 0
    while margin.ratio < 1.2:
        margin.observe(hit_bound=True)
        needed += 1
    assert needed <= 10
    assert "22% more" in margin.explain()


def test_it_never_replaces_measuring_again_and_comes_back() -> None:
    margin = BoundMargin()
    for _ in range(1000):
        margin.observe(hit_bound=True)
    assert margin.ratio == MOST_RATIO
    for _ in range(1000):
        margin.observe(hit_bound=False)
    assert margin.ratio == 1
