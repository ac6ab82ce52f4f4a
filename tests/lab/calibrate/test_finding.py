"""A figure's error is what another run of the same length would differ by: tried out by many runs."""

from __future__ import annotations

import numpy
import pytest

from holdfast.lab.calibrate import finding
from holdfast.lab.calibrate.finding import Finding
from holdfast.lab.calibrate.iperf import Interval

SEED = 7


def intervals(lost: numpy.ndarray, packets: int) -> list[Interval]:
    return [Interval(0.5, 0, packets, int(count)) for count in lost]


def spread(findings: list[Finding]) -> tuple[float, float]:
    """How much the values differ from run to run, and what each run said of it on average."""
    errors = [one.standard_error for one in findings if one.standard_error is not None]
    assert len(errors) == len(findings)
    return float(numpy.std([one.value for one in findings])), float(numpy.mean(errors))


def test_the_error_of_independent_loss() -> None:
    random = numpy.random.default_rng(SEED)
    found = [finding.loss(intervals(random.binomial(1000, 0.01, 40), 1000)) for _ in range(400)]
    actual, said = spread(found)
    assert said == pytest.approx(actual, rel=0.15)
    assert said == pytest.approx((0.01 * 0.99 / 40_000) ** 0.5, rel=0.1)


def test_the_error_of_loss_in_bursts_is_larger() -> None:
    random = numpy.random.default_rng(SEED)
    found = [finding.loss(intervals(20 * random.binomial(50, 0.01, 40), 1000)) for _ in range(400)]
    actual, said = spread(found)
    assert said == pytest.approx(actual, rel=0.15)
    assert said > 4 * (0.01 * 0.99 / 40_000) ** 0.5


def test_no_loss_among_n_packets_is_known_to_one_in_n() -> None:
    assert finding.loss(intervals(numpy.zeros(5), 1000)) == Finding(0.0, 1 / 5000, 5000)


def test_the_median_and_its_error() -> None:
    random = numpy.random.default_rng(SEED)
    found = [finding.median(list(random.exponential(1.0, 300))) for _ in range(400)]
    actual, said = spread(found)
    assert numpy.mean([one.value for one in found]) == pytest.approx(numpy.log(2), rel=0.01)
    assert said == pytest.approx(actual, rel=0.2)
    assert finding.median([3.0]) == Finding(3.0, 0.0, 1)


def test_the_mean_and_its_error() -> None:
    assert finding.mean([1.0, 2.0, 3.0]) == Finding(2.0, pytest.approx(3**-0.5), 3)
    assert finding.mean([5.0]) == Finding(5.0, None, 1)


def test_the_tails_length_and_its_error() -> None:
    random = numpy.random.default_rng(SEED)

    def run() -> Finding:
        # Episodes of 20 operations, one in twenty of them three times as slow.
        slow = numpy.repeat(random.random(100) < 0.05, 20)
        return finding.p99_to_p50(list((1 + 2 * slow) * random.normal(1.0, 0.05, 2000)))

    actual, said = spread([run() for _ in range(25)])
    assert 0.5 * actual < said < 2 * actual
    assert finding.p99_to_p50([2.0] * 500) == Finding(1.0, 0.0, 500)
    assert finding.p99_to_p50([1.0] * 98 + [4.0] * 2) == Finding(4.0, None, 100)
