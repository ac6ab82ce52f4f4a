"""The bound of an all-reduce: given, or measured over all ranks with a floor."""

from __future__ import annotations

import pytest

from holdfast.control.deadline import given_bound, measured_bound


def test_a_given_bound_is_taken_as_it_is() -> None:
    bound = given_bound(12.5)
    assert bound.deadline_ms == 12.5
    assert bound.reason == "12.5 ms, as given"


def test_each_stage_gets_half() -> None:
    assert given_bound(30.0).stage_ms == 15.0


@pytest.mark.parametrize(
    ("by_rank", "deadline_ms", "slowest_rank"),
    [([10.0, 30.0, 20.0], 120.0, 1), ([30.0], 120.0, 0), ([5.0, 5.0], 20.0, 0), ([7.0, 7.0, 8.0], 32.0, 2)],
)
def test_a_measured_bound_follows_the_slowest_rank(by_rank: list[float], deadline_ms: float, slowest_rank: int) -> None:
    bound = measured_bound(by_rank, factor=4.0, floor_ms=0.0)
    assert bound.deadline_ms == deadline_ms
    assert f"rank {slowest_rank}" in bound.reason
    assert "4 x the slowest" in bound.reason


def test_the_floor_holds_and_says_so() -> None:
    bound = measured_bound([1.0, 2.0], factor=4.0, floor_ms=20.0)
    assert bound.deadline_ms == 20.0
    assert "raised to the floor of 20 ms" in bound.reason


def test_a_bound_that_happens_to_be_the_floor_was_not_raised() -> None:
    assert "raised" not in measured_bound([5.0], factor=4.0, floor_ms=20.0).reason


def test_a_usual_stage_is_half_of_the_slowest_warm_up_operation() -> None:
    assert measured_bound([80.0, 100.0], factor=4.0, floor_ms=20.0).usual_stage_ms == 50.0
    assert given_bound(30.0).usual_stage_ms == 15.0


def test_the_silence_that_ends_a_stage_is_never_a_moment_only() -> None:
    assert measured_bound([200.0], factor=4.0, floor_ms=20.0).early_wait_ratio(0.1) == 0.1
    quick = measured_bound([1.0], factor=4.0, floor_ms=20.0)
    assert quick.early_wait_ratio(0.1) * quick.usual_stage_ms == pytest.approx(5.0)
