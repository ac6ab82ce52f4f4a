"""When the Hadamard transform comes on, when it goes, and that ranks who remember different things find together."""

from __future__ import annotations

import math

import pytest

from holdfast.control.hadamard_switch import NUM_CALM, OFF_BELOW, ON_ABOVE, HadamardSwitch


def exchange(switches: list[HadamardSwitch], *lost_ratios: float, missed_by: int | None = None) -> list[bool]:
    """One after some operations in which each rank lost this share; a rank may get no answer."""
    for switch, lost_ratio in zip(switches, lost_ratios, strict=True):
        for _ in range(16):
            switch.observe(round(10_000 * lost_ratio), 10_000)
    views = [switch.take_view() for switch in switches]
    return [rank != missed_by and switch.agree(views) for rank, switch in enumerate(switches)]


def switches(num_ranks: int, *, on: bool = False) -> list[HadamardSwitch]:
    made = [HadamardSwitch() for _ in range(num_ranks)]
    if on:
        assert exchange(made, *[0.5] * num_ranks) == [True] * num_ranks
    return made


def states(ranks: list[HadamardSwitch]) -> list[bool]:
    return [switch.on for switch in ranks]


@pytest.mark.parametrize(
    ("lost_ratios", "on"),
    [
        ((0.0, 0.0, 0.0), False),
        ((ON_ABOVE, ON_ABOVE, ON_ABOVE), False),
        ((0.021, 0.021, 0.021), True),
        ((0.0, 0.0, 0.07), True),  # the mean over the ranks
        ((0.0, 0.0, 0.05), False),
    ],
)
def test_it_comes_on_above_two_per_cent(lost_ratios: tuple[float, ...], on: bool) -> None:
    ranks = switches(3)
    assert exchange(ranks, *lost_ratios) == [on] * 3
    assert states(ranks) == [on] * 3
    assert ("is on" if on else "is off") in ranks[0].explain()


@pytest.mark.parametrize(("num_bad", "on"), [(1, False), (4, False), (5, True)])
def test_operations_in_which_a_rank_goes_or_comes_do_not_switch_it_on(num_bad: int, on: bool) -> None:
    switch = HadamardSwitch()
    for number in range(16):
        switch.observe(4_400 if number < num_bad else 0, 10_000)
    assert switch.agree([switch.take_view()]) is on


def test_it_goes_after_some_calm_exchanges_in_a_row_and_not_before() -> None:
    ranks = switches(2, on=True)
    for lost_ratio in (0.0, 0.0, OFF_BELOW, 0.0, 0.004):  # the third is not below
        assert exchange(ranks, lost_ratio, lost_ratio) == [False, False]
        assert states(ranks) == [True, True]
    assert NUM_CALM == 3
    assert exchange(ranks, 0.0, 0.0) == [True, True]
    assert states(ranks) == [False, False]
    assert "less than 0.5% was dropped" in ranks[0].explain()


@pytest.mark.parametrize("on", [False, True])
def test_between_the_two_thresholds_it_stays_as_it_is(on: bool) -> None:
    ranks = switches(2, on=on)
    for _ in range(3 * NUM_CALM):
        assert exchange(ranks, 0.01, 0.01) == [False, False]
    assert states(ranks) == [on, on]


def test_a_share_is_one_of_entries_not_of_operations() -> None:
    (rank,) = switches(1)
    rank.observe(100, 9_000)
    rank.observe(0, 1_000)
    assert rank.take_view()[1] == pytest.approx(0.01)


def test_a_large_bucket_that_loses_in_every_step_is_no_outlier_among_small_ones() -> None:
    (rank,) = switches(1)
    for _ in range(4):
        rank.observe(10_000, 100_000)
        for _ in range(3):
            rank.observe(0, 1_000)
    assert rank.take_view()[1] == pytest.approx(0.1, rel=0.05)


def test_small_operations_that_lose_everything_are_outliers() -> None:
    (rank,) = switches(1)
    for _ in range(8):
        rank.observe(0, 10_000)
        rank.observe(1_000, 1_000)
    assert rank.take_view()[1] == 0.0
    assert rank.take_view()[1] < 0, "nothing since"


def test_a_rank_without_operations_or_with_nonsense_does_not_count() -> None:
    ranks = switches(4)
    ranks[0].observe(30, 1_000)
    views = [switch.take_view() for switch in ranks]
    views[2][1], views[3][1] = math.nan, 7.0
    assert [switch.agree(views) for switch in ranks] == [True] * 4
    assert "3.0% of all gradient entries" in ranks[1].reason
    silent = switches(2)
    assert [switch.agree([[0.0, -1.0], [0.0, -1.0]]) for switch in silent] == [False, False]


@pytest.mark.parametrize("missed_by", [0, 2])
def test_a_rank_that_missed_the_switching_on_has_it_after_the_next_exchange(missed_by: int) -> None:
    ranks = switches(3)
    exchange(ranks, 0.1, 0.1, 0.1, missed_by=missed_by)
    assert states(ranks) == [rank != missed_by for rank in range(3)]
    assert exchange(ranks, 0.1, 0.1, 0.1) == [rank == missed_by for rank in range(3)]
    assert states(ranks) == [True, True, True]
    assert "most ranks had seen" in ranks[missed_by].explain()


def test_a_rank_that_missed_a_calm_exchange_goes_on_counting_with_the_others() -> None:
    ranks = switches(3, on=True)
    exchange(ranks, 0.0, 0.0, 0.0, missed_by=1)
    for _ in range(NUM_CALM - 2):
        assert exchange(ranks, 0.0, 0.0, 0.0) == [False] * 3
    assert exchange(ranks, 0.0, 0.0, 0.0) == [True] * 3
    assert states(ranks) == [False] * 3


def test_without_most_all_begin_again_with_what_is_right_at_any_loss() -> None:
    ranks = switches(2)
    exchange(ranks, 0.1, 0.1, missed_by=1)
    assert exchange(ranks, 0.0, 0.0) == [False, True]
    assert states(ranks) == [True, True]
    assert "different things" in ranks[0].explain()


def test_a_rank_that_missed_the_switching_off_brings_the_others_back() -> None:
    ranks = switches(2, on=True)
    for _ in range(NUM_CALM - 1):
        exchange(ranks, 0.0, 0.0)
    exchange(ranks, 0.0, 0.0, missed_by=1)
    assert states(ranks) == [False, True]
    exchange(ranks, 0.0, 0.0)
    assert states(ranks) == [True, True]
    for _ in range(NUM_CALM):
        exchange(ranks, 0.0, 0.0)
    assert states(ranks) == [False, False]
