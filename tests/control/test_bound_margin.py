"""t_B moves to where it cuts off a few thousandths of the stages: wider on quiet networks, narrower where tails are long."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from holdfast.control.bound_margin import MOST_RATIO, REMEMBERED_STAGES, ROOM, TAIL, TOLERATED_RATIO, BoundMargin

Times = Callable[[random.Random], float]


def settle(margin: BoundMargin, times: Times, seed: int, stages: int = 6000) -> tuple[float, float]:
    """Stages of such times, in units of the measured t_B: of the second half, what was cut and how many were."""
    generator = random.Random(seed)
    cuts = []
    for index in range(stages):
        took = times(generator)
        cut = max(0.0, 1 - margin.ratio / took)  # all senders come at an even pace
        margin.observe(index % 2, elapsed_ms=min(took, margin.ratio), cut_ratio=cut)
        cuts.append(cut)
    later = cuts[stages // 2 :]
    return sum(later) / len(later), sum(cut > 0 for cut in later) / len(later)


@pytest.mark.parametrize("median", [0.97, 1.0, 1.1, 1.3])
@pytest.mark.parametrize("seed", range(3))
def test_a_machine_slower_than_during_the_warm_up_loses_next_to_nothing(median: float, seed: int) -> None:
    margin = BoundMargin(1.0, 0.0)
    cut, hits = settle(margin, lambda generator: generator.gauss(median, 0.03), seed)
    assert cut < TOLERATED_RATIO / 20
    assert hits < 0.01
    assert ROOM * median * 0.97 < margin.ratio < median * 1.15
    assert median < 1 or f"{ROOM:g} times what a stage usually takes" in margin.explain()


def test_stages_of_two_kinds_have_the_room_of_the_longer_one() -> None:
    margin = BoundMargin(1.0, 0.0)
    for index in range(400):
        margin.observe(index % 2, elapsed_ms=(0.3, 1.0)[index % 2], cut_ratio=0.0)
    assert margin.ratio == pytest.approx(ROOM)


def test_a_process_that_stood_still_does_not_change_what_is_usual() -> None:
    margin = BoundMargin(1.0, 0.0)
    for index in range(400):
        margin.observe(index % 2, elapsed_ms=10.0 if index == 200 else 0.8, cut_ratio=0.0)
        assert margin.ratio <= 1.001


def test_room_is_not_a_reason_to_leave_what_may_be_had_by_waiting_half_more() -> None:
    margin = BoundMargin(1.0, 0.0)
    for _ in range(200):
        margin.observe(0, elapsed_ms=10.0, cut_ratio=0.0)  # by the clock; t_B ended it, some time
    assert margin.ratio == MOST_RATIO


def test_pauses_of_a_third_in_every_twenty_fifth_stage_are_soon_let_in() -> None:
    margin = BoundMargin(1.0, 0.0)
    pauses: Times = lambda generator: 0.9 + (0.33 if generator.random() < 0.04 else 0.0)  # noqa: E731
    cut, _ = settle(margin, pauses, 2, stages=400)  # 200 operations
    assert cut < 0.004


def test_it_stays_where_it_was_measured_while_nothing_is_far_from_usual() -> None:
    margin = BoundMargin(1.0, 0.0)
    cut, hits = settle(margin, lambda generator: generator.gauss(0.8, 0.03), 3)
    assert (cut, hits, margin.ratio) == (0, 0, 1)
    assert margin.explain() == ""


def test_a_long_tail_is_cut_at_the_price_of_a_few_thousandths() -> None:
    margin = BoundMargin(1.0, 0.0)
    tail: Times = lambda generator: 0.45 + generator.expovariate(1 / 0.1)  # noqa: E731
    cut, hits = settle(margin, tail, 5)
    assert TAIL * 0.55 <= margin.ratio < 1
    assert cut < 0.004
    assert 0 < hits < 0.05
    assert "less, because that cuts off hardly more" in margin.explain()


def test_a_warm_up_that_met_a_frozen_host_is_forgotten_after_twenty_operations() -> None:
    margin = BoundMargin(1.0, 0.0)  # five times a usual stage
    settle(margin, lambda _: 0.2, 6, stages=REMEMBERED_STAGES - 1)
    assert margin.ratio > 0.98
    settle(margin, lambda _: 0.2, 6, stages=1)
    assert margin.ratio == pytest.approx(TAIL * 0.2)


def test_ranks_that_are_often_late_are_waited_for_at_the_price_of_a_few_thousandths() -> None:
    margin = BoundMargin(1.0, 0.0)
    late: Times = lambda generator: 1.0 if generator.random() < 0.1 else 0.2  # noqa: E731
    cut, _ = settle(margin, late, 6)
    assert cut < 0.005


def test_the_floor_holds_and_nothing_is_said_of_what_would_be_below_it() -> None:
    margin = BoundMargin(1.0, 1.0)
    settle(margin, lambda _: 0.3, 7)
    assert margin.ratio == 1
    assert margin.explain() == ""


def test_no_stage_at_all_is_no_reason_for_no_time_at_all() -> None:
    margin = BoundMargin(1.0, 0.0)
    settle(margin, lambda _: 1e-9, 8)
    assert margin.ratio == pytest.approx(0.1)


def test_a_quick_drift_is_followed_within_ten_stages() -> None:
    margin = BoundMargin(1.0, 0.0)
    for index in range(10):
        margin.observe(index % 2, elapsed_ms=margin.ratio, cut_ratio=max(0.0, 1 - margin.ratio / 1.25))
    assert margin.ratio > 1.15
    assert "because it cut off more than" in margin.explain()


def test_it_never_replaces_measuring_again_and_comes_back() -> None:
    margin = BoundMargin(1.0, 0.0)
    for _ in range(1000):
        margin.observe(0, elapsed_ms=margin.ratio, cut_ratio=0.5)
    assert margin.ratio == MOST_RATIO
    for _ in range(1000):
        margin.observe(0, elapsed_ms=0.9, cut_ratio=0.0)
    assert margin.ratio == 1
