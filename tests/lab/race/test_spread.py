from __future__ import annotations

import random

from holdfast.lab.quantile import quantile
from holdfast.lab.race.spread import log_ticks, tail_curve, thinned, value_at, wants_log


def test_the_tail_curve_meets_the_percentiles_and_ends_with_the_slowest_step() -> None:
    rng = random.Random(3)
    step_ms = [rng.lognormvariate(3, 0.5) for _ in range(2000)]
    curve = dict(tail_curve(step_ms))
    assert curve[2.0] == quantile(step_ms, 0.5)
    assert curve[100.0] == quantile(step_ms, 0.99)
    assert curve[1.0] == min(step_ms)
    assert curve[2000.0] == max(step_ms)
    values = list(curve.values())
    assert values == sorted(values)


def test_a_single_step_has_a_tail_too() -> None:
    assert set(tail_curve([7.0])) == {(1.0, 7.0)}


def test_thinning_keeps_every_stall() -> None:
    step_ms = [10.0] * 5000
    stalls = (17, 2222, 4999)
    for index in stalls:
        step_ms[index] = 500.0
    kept = thinned(step_ms, 800)
    assert len(kept) <= 800
    assert [index for index, value in kept if value == 500.0] == list(stalls)
    assert all(step_ms[index] == value for index, value in kept)


def test_few_values_are_all_kept() -> None:
    assert thinned([3.0, 1.0, 2.0], 3) == [(0, 3.0), (1, 1.0), (2, 2.0)]


def test_a_mark_sits_on_its_line() -> None:
    seconds, values = [1.0, 3.0, 3.0, 5.0], [0.2, 0.4, 0.5, 0.9]
    assert [value_at(at, seconds, values) for at in (0.0, 2.0, 4.0, 9.0)] == [0.2, 0.30000000000000004, 0.7, 0.9]


def test_a_long_tail_asks_for_a_log_axis() -> None:
    assert wants_log([10.0, 200.0])
    assert not wants_log([10.0, 30.0, float("nan")])
    assert not wants_log([])


def test_log_ticks_are_round_and_few() -> None:
    assert [text for tick, text in log_ticks([40.0, 600.0], 6).items() if 40 <= tick <= 600] == [
        "50",
        "100",
        "200",
        "500",
    ]
    assert [text for tick, text in log_ticks([0.5, 40_000.0], 6).items() if 0.5 <= tick <= 40_000] == [
        "1", "10", "100", "1,000", "10,000",
    ]  # fmt: skip
