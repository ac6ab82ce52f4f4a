"""x: held by the share that came late; a model network shows where it settles."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.control.early_wait import LEAST_RATIO, MOST_RATIO, WINDOW, EarlyWait

HIGH, INSIDE, LOW = 0.0011, 0.0005, 0.00005


def feed(wait: EarlyWait, *shares: float) -> float:
    for share in shares:
        wait.observe(share)
    return wait.ratio


def test_it_starts_at_ten_percent() -> None:
    assert EarlyWait().ratio == 0.10


def test_above_the_band_it_doubles_up_to_half_of_t_c() -> None:
    wait = EarlyWait()
    ratios = [feed(wait, *[HIGH] * WINDOW) for _ in range(4)]
    assert ratios == [0.2, 0.4, 0.5, 0.5]
    assert "already at its limit" in wait.explain()


def test_inside_the_band_it_stays() -> None:
    wait = EarlyWait()
    assert feed(wait, *[INSIDE] * 10 * WINDOW) == 0.10
    assert wait.explain() == "x 10.0% of t_C: kept, 0.050% of the last 100 operations came late, within 0.01% and 0.10%"


def test_below_the_band_it_loses_a_point_a_window_down_to_its_limit() -> None:
    wait = EarlyWait()
    ratios = [feed(wait, *[LOW] * WINDOW) for _ in range(12)]
    assert ratios == pytest.approx([0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01, 0.01, 0.01, 0.01])


def test_the_edges_of_the_band_belong_to_it() -> None:
    # Powers of two near the edges, so that a hundred of them add up without rounding.
    assert feed(EarlyWait(), *[0.0], *[0.1 / 64] * 64, *[0.0] * 35) == 0.10
    assert feed(EarlyWait(), *[0.01 / 64] * 64, *[0.0] * 36) == 0.10


def test_one_burst_over_a_few_operations_doubles_once() -> None:
    wait = EarlyWait()
    assert feed(wait, *[0.2] * 6, *[INSIDE] * 200) == 0.2


def test_a_lasting_flood_of_late_packets_does_not_wait_for_whole_windows() -> None:
    assert feed(EarlyWait(), *[0.2] * 30) == MOST_RATIO


def test_what_the_network_dropped_does_not_raise_it() -> None:
    wait = EarlyWait()
    for _ in range(2000):
        lost, late = 100, 0  # a tenth of 1,000 never came
        assert lost > 0
        wait.observe(late / 1000)
    assert wait.ratio == pytest.approx(LEAST_RATIO)


def test_users_limits_hold() -> None:
    assert EarlyWait(least_ratio=0.2).ratio == 0.2
    assert EarlyWait(most_ratio=0.05).ratio == 0.05
    assert feed(EarlyWait(least_ratio=0.08), *[0.0] * 1000) == 0.08
    assert feed(EarlyWait(most_ratio=0.15), *[HIGH] * 1000) == 0.15
    assert feed(EarlyWait(0.1, 0.1), *[HIGH, 0.0] * 1000) == 0.1
    with pytest.raises(ValueError, match="cannot stay between"):
        EarlyWait(least_ratio=0.3, most_ratio=0.2)
    with pytest.raises(ValueError, match="cannot stay between"):
        EarlyWait(least_ratio=0.0)


def test_the_silence_is_never_a_moment_only() -> None:
    assert EarlyWait().wait_ms(200.0) == 20.0
    assert EarlyWait(floor_ms=5.0).wait_ms(1.0) == 5.0


@given(st.lists(st.floats(0, 1), max_size=300))
def test_it_never_leaves_its_limits(shares: list[float]) -> None:
    wait = EarlyWait()
    for share in shares:
        assert LEAST_RATIO <= wait.observe(share) <= MOST_RATIO


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mean_delay", [0.002, 0.01, 0.03, 0.06, 0.08])
@pytest.mark.parametrize("num_stragglers", [5, 50])
def test_x_settles_where_little_comes_late(seed: int, mean_delay: float, num_stragglers: int) -> None:
    """In a stage of 1,000 packets some come after the silence began, by an exponential delay (in units of t_C)."""
    chance = random.Random(seed)
    wait = EarlyWait()
    shares = []
    for _ in range(6000):
        late = sum(chance.expovariate(1 / mean_delay) > wait.ratio for _ in range(num_stragglers))
        shares.append(late / 1000)
        wait.observe(shares[-1])
    settled = sum(shares[-1000:]) / 1000
    assert settled <= 0.001
    assert settled >= 0.0001 or wait.ratio == pytest.approx(LEAST_RATIO)
