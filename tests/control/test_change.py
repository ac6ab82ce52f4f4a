"""When t_B is measured again: after a change that lasts, and not after one that passes."""

from __future__ import annotations

import random
from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.control.change import MOST_WINDOWS_IN_A_ROW, WINDOW, Change, NetworkChange
from holdfast.control.early_timeout import EarlyTimeout, stage_sample_ms
from holdfast.control.hard_bound import HardBound

NOTICED_WITHIN = 3 * WINDOW
P99_OVER_P50 = 3.0
SIGMA = log(P99_OVER_P50) / 2.326


class Network:
    """A bucket on ranks whose stages take log-normal times; t_B and t_C as the product makes them."""

    def __init__(self, seed: int, num_ranks: int = 4, sigma: float = SIGMA) -> None:
        self.chance = random.Random(seed)
        self.num_ranks = num_ranks
        self.sigma = sigma
        self.slow_down = 1.0
        self.change = NetworkChange()
        self.calibrate()

    def stage_ms(self) -> float:
        return self.slow_down * 10.0 * exp(self.chance.gauss(0, self.sigma))

    def calibrate(self) -> None:
        by_rank = [[self.stage_ms() for _ in range(40)] for _ in range(self.num_ranks)]
        self.t_b_ms = HardBound.measured(by_rank, 1 << 20, floor_ms=1.0).t_b_ms
        self.early = EarlyTimeout(self.t_b_ms)

    def operation(self, extra_ms: float = 0.0) -> Change | None:
        took = [[self.stage_ms() + extra_ms for _ in range(2)] for _ in range(self.num_ranks)]
        samples = [
            stage_sample_ms("complete" if first < self.t_b_ms else "bound", first, self.t_b_ms, 1, 1)
            for first, _ in took
        ]
        self.early.update(samples[0], samples[1:])
        hit = max(took[0]) >= self.t_b_ms
        return self.change.observe(hit_bound=hit, t_c_ms=self.early.t_c_ms)

    def run(self, num_operations: int) -> list[Change]:
        return [change for change in (self.operation() for _ in range(num_operations)) if change is not None]


seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.sampled_from([2, 3, 4, 8]))
@settings(max_examples=25, deadline=None)
def test_heavy_tails_that_do_not_change_are_no_change(seed: int, num_ranks: int) -> None:
    assert Network(seed, num_ranks).run(2000) == []


@given(seeds, st.integers(0, 350), st.sampled_from([2, 3, 4, 8]))
@settings(max_examples=25, deadline=None)
def test_a_network_of_half_the_speed_is_noticed_soon(seed: int, quiet: int, num_ranks: int) -> None:
    network = Network(seed, num_ranks)
    network.run(WINDOW + quiet)
    network.slow_down = 2.0
    assert network.run(NOTICED_WITHIN)[:1] == ["slower"]
    assert "became slower" in network.change.explain()


@given(seeds, st.integers(0, 350))
@settings(max_examples=25, deadline=None)
def test_a_network_of_five_times_the_speed_is_noticed_soon(seed: int, quiet: int) -> None:
    network = Network(seed)
    network.run(WINDOW + quiet)
    network.slow_down = 0.2
    assert network.run(NOTICED_WITHIN)[:1] == ["faster"]


def test_a_network_of_half_the_time_is_left_alone() -> None:
    network = Network(1)
    network.run(WINDOW)
    network.slow_down = 0.5
    assert network.run(1000) == []


@pytest.mark.parametrize("begin", range(0, 200, 7))
@pytest.mark.parametrize("length", [1, 5, 30, 60, 100, 120])
def test_a_burst_is_not_for_good_wherever_it_falls(begin: int, length: int) -> None:
    change = NetworkChange()
    found = [
        change.observe(hit_bound=begin <= i < begin + length, t_c_ms=40.0 if begin <= i < begin + length else 10.0)
        for i in range(500)
    ]
    assert found == [None] * 500


def test_a_stall_of_half_a_second_every_second_operation_window_is_no_change() -> None:
    network = Network(3)
    found = [network.operation(extra_ms=500.0 if i % 100 < 25 else 0.0) for i in range(1500)]
    assert found == [None] * 1500


def test_bounds_hit_from_the_first_operation_on_are_noticed() -> None:
    change = NetworkChange()
    found = [change.observe(hit_bound=True, t_c_ms=20.0) for _ in range(2 * WINDOW)]
    assert found == [None] * (2 * WINDOW - 1) + ["slower"]


def test_slower_then_faster_are_not_two_in_a_row() -> None:
    change = NetworkChange()
    for t_c_ms in (10.0, 20.0, 3.0, 20.0):
        assert [change.observe(hit_bound=False, t_c_ms=t_c_ms) for _ in range(WINDOW)] == [None] * WINDOW


def test_a_calibration_that_found_the_same_makes_the_next_one_rarer() -> None:
    change = NetworkChange()
    waited = []
    for _ in range(7):
        num_operations = 1
        while change.observe(hit_bound=True, t_c_ms=20.0) is None:
            num_operations += 1
        waited.append(num_operations // WINDOW)
        change.recalibrated(old_ms=20.0, new_ms=21.0)
    assert waited == [2, 4, 8, 16, 32, 32, 32]
    assert waited[-1] == MOST_WINDOWS_IN_A_ROW


def test_a_calibration_that_found_another_bound_starts_afresh() -> None:
    change = NetworkChange()
    change.recalibrated(old_ms=20.0, new_ms=20.0)
    change.recalibrated(old_ms=20.0, new_ms=40.0)
    found = [change.observe(hit_bound=True, t_c_ms=20.0) for _ in range(2 * WINDOW)]
    assert found[-1] == "slower"
    assert "2 windows in a row" in change.explain()
