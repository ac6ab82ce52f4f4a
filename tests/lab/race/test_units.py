from __future__ import annotations

import dataclasses
import math

import pytest

from holdfast.lab.race.result import RaceResult
from holdfast.lab.race.units import (
    NOTHING,
    drift_text,
    metric_text,
    milliseconds_text,
    rate_text,
    ratio_text,
    seconds_text,
    share_text,
    target_text,
)
from lab.race.made_up_races import made_up_race


@pytest.fixture(scope="module")
def by_accuracy() -> RaceResult:
    return made_up_race("holdfast", num_steps=30)


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (1.0, "100%"),
        (0.999996, "99.9996%"),
        (0.9999999999, "99.9999999%"),
        (0.99999, "99.999%"),
        (0.98999, "98.99%"),
        (0.9, "90.00%"),
        (0.0, "0.00%"),
        (math.nan, NOTHING),
    ],
)
def test_a_share_is_never_rounded_up(ratio: float, shown: str) -> None:
    assert share_text(ratio) == shown


def test_only_a_share_of_one_reads_as_all_of_it() -> None:
    assert all(share_text(1 - 10.0**-exponent) != "100%" for exponent in range(1, 16))


def test_an_accuracy_just_short_of_the_target_does_not_read_as_the_target(by_accuracy: RaceResult) -> None:
    assert metric_text(by_accuracy, 0.949999) == "94.99%"
    assert metric_text(by_accuracy, 0.95) == "95.00%"
    assert target_text(by_accuracy) == "95% accuracy"
    assert target_text(dataclasses.replace(by_accuracy, target=0.975)) == "97.5% accuracy"


def test_a_loss_just_short_of_the_target_does_not_read_as_the_target() -> None:
    result = made_up_race("holdfast", num_steps=30, metric="loss", target=1.25)
    assert metric_text(result, 1.25000001) == "1.2501"
    assert metric_text(result, 1.25) == "1.2500"
    assert target_text(result) == "a loss of 1.25"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.004, "0.00 s"),
        (0.5, "0.50 s"),
        (41.23, "41.2 s"),
        (119.94, "119.9 s"),
        (125.4, "2 min 5 s"),
        (7325.0, "2 h 2 min"),
        (119.96, "2 min 0 s"),
        (math.nan, NOTHING),
    ],
)
def test_seconds(seconds: float, shown: str) -> None:
    assert seconds_text(seconds) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0.0, "0 ms"),
        (0.0421, "42.1 µs"),
        (0.9996, "1.00 ms"),
        (8.4249, "8.42 ms"),
        (54.21, "54.2 ms"),
        (847.2, "847 ms"),
        (1240.0, "1.24 s"),
        (math.nan, NOTHING),
    ],
)
def test_milliseconds(milliseconds: float, shown: str) -> None:
    assert milliseconds_text(milliseconds) == shown


def test_a_lead_is_cut_off_not_rounded_up() -> None:
    assert [ratio_text(ratio) for ratio in (1.369, 1.3, 12.96, 123.9)] == ["1.36", "1.30", "12.9", "123"]


def test_drift_and_rates() -> None:
    assert [drift_text(drift) for drift in (0.0, 3.94e-4, math.nan)] == ["0", "3.9e-04", NOTHING]
    assert [rate_text(rate) for rate in (250e6, 1e9, 12.5e3)] == ["250 Mbit/s", "1 Gbit/s", "12.5 kbit/s"]
