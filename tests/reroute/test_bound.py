from __future__ import annotations

import pytest
from hypothesis import given, settings
from pipeline_jobs import QUICK, jobs

from holdfast.reroute import Job, plan, uniform_job
from holdfast.reroute.bound import bounds, is_hidden, load, round_trip


def test_the_paper_example_is_exactly_hidden() -> None:
    job = uniform_job(4, 3, 6, [(1, 2)])
    assert load(job, 2) == 9
    assert bounds(job).work == 30
    assert (bounds(job).decoupled, bounds(job).rerouted) == (29, 33)
    assert is_hidden(job)


def test_three_failures_per_stage_of_256_workers_are_hidden_and_four_are_not() -> None:
    """Spec 5.5: PP = 8, DP = 32, M = 64."""
    three = [(k, stage) for stage in range(8) for k in range(3)]
    assert is_hidden(uniform_job(8, 32, 64, three))
    assert not is_hidden(uniform_job(8, 32, 64, [*three, (3, 0)]))


@pytest.mark.parametrize(("failed", "slots"), [([(0, 2)], 33), ([(0, 2), (1, 2)], 48), ([(0, 2), (1, 2), (2, 2)], 96)])
def test_the_bounds_of_section_10(failed: list[tuple[int, int]], slots: int) -> None:
    assert bounds(uniform_job(4, 4, 8, failed)).work - 3 == slots


def test_few_forwards_cannot_fill_the_round_trip() -> None:
    """Five forwards, but the first gradient is back after seven ticks: two ticks idle, so 17 instead of 15."""
    job = uniform_job(4, 6, 5)
    assert round_trip(job, 0) == 7
    assert (bounds(job).work, bounds(job).staggered) == (18, 20)


@settings(max_examples=30, deadline=None)
@given(jobs())
def test_no_plan_beats_its_bound(job: Job) -> None:
    made = plan(job, QUICK)
    limit = bounds(job)
    assert limit.work <= limit.staggered <= made.staggered.period
    assert limit.decoupled <= made.decoupled.slots
    if job.failed:
        assert limit.rerouted <= made.rerouted_best.slots
