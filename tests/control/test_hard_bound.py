"""t_B: the 95th percentile of all ranks' warm-up stages, scaled by bytes above a floor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.control.hard_bound import HardBound, nearest_rank

MEBIBYTE = 1 << 20

times_ms = st.lists(st.lists(st.floats(0.01, 1e5), min_size=1, max_size=40), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("num_values", "index"),
    # By hand: of 20 values the 19th, of 40 the 38th, of 100 the 95th, of 160 the 152nd; of few, the last.
    [(1, 0), (2, 1), (19, 18), (20, 18), (21, 19), (40, 37), (100, 94), (160, 151)],
)
def test_the_percentile_is_one_of_the_values(num_values: int, index: int) -> None:
    assert nearest_rank(95, num_values) == index


@given(st.integers(1, 10_000))
def test_it_is_the_smallest_value_that_95_percent_do_not_exceed(num_values: int) -> None:
    index = nearest_rank(95, num_values)
    assert 100 * (index + 1) >= 95 * num_values
    assert 100 * index < 95 * num_values


def test_both_stages_of_all_ranks_make_one_list() -> None:
    # 4 ranks x 20 operations x 2 stages; the 152nd smallest of 160 is the ninth from the top: 1,000 - 8.
    by_rank = [[1.0] * 40, [1.0] * 40, [1.0] * 31 + [1000.0 - i for i in range(9)], [2.0] * 40]
    bound = HardBound.measured(by_rank, MEBIBYTE, floor_ms=5.0)
    assert bound.t_b_ms == 992.0
    assert bound.reason == (
        "t_B 992.0 ms a stage of 1,048,576 bytes: 95 % of 160 warm-up stages took 992.0 ms or less "
        "(rank 2; slowest 1000.0 ms, rank 2)"
    )


def test_one_stall_in_twenty_operations_of_four_ranks_does_not_make_the_bound() -> None:
    by_rank = [[10.0 + i / 10 for i in range(40)] for _ in range(4)]
    by_rank[3][7] = by_rank[3][8] = 500.0
    bound = HardBound.measured(by_rank, MEBIBYTE, floor_ms=5.0)
    assert bound.t_b_ms < 14.0
    assert "slowest 500.0 ms, rank 3" in bound.reason


@given(times_ms)
def test_the_list_is_not_reordered_and_the_order_of_ranks_does_not_matter(by_rank: list[list[float]]) -> None:
    before = [list(times) for times in by_rank]
    bound = HardBound.measured(by_rank, MEBIBYTE, floor_ms=1.0)
    assert by_rank == before
    assert HardBound.measured(by_rank[::-1], MEBIBYTE, floor_ms=1.0).t_b_ms == bound.t_b_ms


def test_a_rank_that_measured_nothing_is_left_out() -> None:
    assert HardBound.measured([[], [8.0]], MEBIBYTE, floor_ms=1.0).t_b_ms == 8.0


@pytest.mark.parametrize("by_rank", [[], [[], []], [[1.0, float("nan")]], [[float("inf")]], [[-1.0]]])
def test_no_bound_is_made_of_nothing_or_of_what_is_no_time(by_rank: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="no bound"):
        HardBound.measured(by_rank, MEBIBYTE, floor_ms=1.0)


def test_the_floor_holds_and_says_so() -> None:
    bound = HardBound.measured([[2.0]], MEBIBYTE, floor_ms=20.0)
    assert bound.t_b_ms == 20.0
    assert bound.reason.endswith(", raised to the floor of 20 ms")
    assert "raised" not in HardBound.measured([[20.0]], MEBIBYTE, floor_ms=20.0).reason


def test_other_buckets_get_time_by_their_bytes() -> None:
    bound = HardBound.measured([[100.0]], 20 * MEBIBYTE, floor_ms=10.0)
    assert bound.stage_ms(20 * MEBIBYTE) == 100.0
    assert bound.stage_ms(5 * MEBIBYTE) == 25.0
    assert bound.stage_ms(40 * MEBIBYTE) == 200.0
    assert bound.stage_ms(2 * MEBIBYTE) == 10.0
    assert bound.stage_ms(1) == 10.0


@given(times_ms, st.floats(0.0, 1000.0), st.integers(0, 1 << 32), st.integers(0, 1 << 32))
def test_more_bytes_never_get_less_time(by_rank: list[list[float]], floor_ms: float, one: int, other: int) -> None:
    bound = HardBound.measured(by_rank, MEBIBYTE, floor_ms)
    assert floor_ms <= bound.stage_ms(min(one, other)) <= bound.stage_ms(max(one, other))


def test_a_given_deadline_is_halved_and_holds_for_every_bucket() -> None:
    bound = HardBound.given(30.0)
    assert [bound.stage_ms(num_bytes) for num_bytes in (1, MEBIBYTE, 1 << 30)] == [15.0] * 3
    assert bound.reason == "t_B 15.0 ms a stage: half of the 30 ms given"


def test_more_bytes_take_longer_in_proportion() -> None:
    before = HardBound.loaded(40.0, 1_000, 10.0)
    after = HardBound.of_more_bytes(before, 3.0)
    assert after.stage_ms(1_000) == 120.0
    assert after.stage_ms(500) == 60.0
    assert after.stage_ms(1) == 10.0
    assert "40.0 ms for 3.0 times as many bytes" in after.reason
