"""When a promise is kept, and when a measurement is repeated."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast.lab.calibrate.calibration import Attempt, judge, until_quiet
from holdfast.lab.calibrate.finding import Finding
from holdfast.lab.calibrate.iperf import FlowsApart


def attempt(value: float, late_ms: float = 0.3) -> Attempt:
    return Attempt(Finding(value, 0.01, 100), late_ms)


@pytest.mark.parametrize(
    ("figure", "promise", "found", "kept"),
    [
        ("rtt_ms", 1.0, 1.19, True),
        ("rtt_ms", 1.0, 1.21, False),
        ("rtt_ms", 1.0, 0.81, True),
        ("rtt_ms", 1.0, 0.79, False),
        ("loss_ratio", 0.01, 0.0109, True),
        ("loss_ratio", 0.01, 0.0111, False),
        ("loss_ratio", 0.01, 0.0089, False),
        ("loss_ratio", 0.0, 0.0, True),
        ("loss_ratio", 0.0, 1e-6, False),
        ("bandwidth_ratio", 0.8, 0.65, True),
        ("bandwidth_ratio", 0.8, 0.63, False),
    ],
)
def test_a_promise_is_kept_within_its_tolerance_and_none_means_none(
    figure: str, promise: float, found: float, kept: bool
) -> None:
    row = judge("own", figure, promise, [attempt(found)])
    assert row.kept is kept
    assert row.deviation == (None if promise == 0 else pytest.approx(found / promise - 1))
    assert (row.profile, row.found, row.standard_error, row.num_samples) == ("own", found, 0.01, 100)


def test_a_quiet_attempt_ends_the_measurement() -> None:
    lateness = {1: 5.0, 2: 1.9, 3: 0.1}
    attempts = until_quiet(lambda number: attempt(number, lateness[number]))
    row = judge("own", "rtt_ms", 2.0, attempts)
    assert (row.found, row.attempts, row.late_p999_ms, row.quiet) == (2.0, 2, 1.9, True)


@pytest.mark.parametrize(("disturbed", "attempts", "found"), [({1}, 2, 2.0), ({1, 2}, 3, 3.0), ({1, 2, 3}, 3, 2.0)])
def test_a_disturbed_instrument_is_worse_than_a_late_switch(disturbed: set[int], attempts: int, found: float) -> None:
    lateness = {1: 0.3, 2: 0.2, 3: 1.0}
    tries = until_quiet(
        lambda number: Attempt(Finding(number, None, 9, disturbance=2.0 * (number in disturbed)), lateness[number])
    )
    row = judge("own", "rtt_ms", 1.0, tries)
    assert (row.attempts, row.found, row.quiet) == (attempts, found, len(disturbed) < 3)


def test_after_three_attempts_the_quietest_counts_and_is_marked() -> None:
    lateness = {1: 5.0, 2: 2.1, 3: 9.0}
    attempts = until_quiet(lambda number: attempt(number, lateness[number]))
    row = judge("own", "rtt_ms", 2.0, attempts)
    assert (row.found, row.attempts, row.late_p999_ms, row.quiet) == (2.0, 3, 2.1, False)


def test_an_attempt_that_came_to_nothing_is_repeated_but_not_for_ever() -> None:
    def fail_until(last: int, number: int) -> Attempt:
        if number <= last:
            raise FlowsApart("too busy")
        return attempt(number)

    assert [one.found.value for one in until_quiet(partial(fail_until, 2))] == [3]
    with pytest.raises(FlowsApart):
        until_quiet(partial(fail_until, 3))
