from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_jobs import QUICK, jobs

from holdfast.errors import StageLost
from holdfast.reroute import Job, StageCost, Worker, normalise, uniform_job
from holdfast.reroute.bound import stage_period
from holdfast.reroute.normalise import best_spread, best_spreads, shortest_period
from holdfast.reroute.planner import plan_staggered


@settings(max_examples=100, deadline=None)
@given(jobs(), st.data())
def test_the_spread_is_the_best_of_all_spreads(job: Job, data: st.DataObject) -> None:
    """Against every distribution there is: shortest period first, then fewest moves."""
    stages, most = job.shape.stages, job.shape.pipelines - 1
    count = data.draw(st.integers(0, stages * most))
    actual = job.failures_per_stage
    all_spreads = [spread for spread in product(range(most + 1), repeat=stages) if sum(spread) == count]

    def period(spread: tuple[int, ...]) -> int:
        return max(stage_period(job, stage, lost) for stage, lost in enumerate(spread))

    def moves(spread: tuple[int, ...]) -> int:
        return sum(max(0, here - lost) for here, lost in zip(actual, spread, strict=True))

    best = best_spread(job, count, actual)
    assert period(best) == shortest_period(job, count) == min(map(period, all_spreads))
    assert moves(best) == min(moves(spread) for spread in all_spreads if period(spread) == period(best))
    found = best_spreads(job, count, limit=1000)
    assert sorted(found) == sorted(spread for spread in all_spreads if period(spread) == period(best))


def test_one_copy_buys_a_third() -> None:
    """Spec 5.3: two failures in one stage take 48 slots, spread over two stages 33."""
    job = uniform_job(4, 4, 8, [(0, 2), (1, 2)], cost=StageCost(state=7))
    advice = normalise(job)
    assert len(advice.moves) == 1
    assert advice.moves[0].takes_place_of in job.failed
    assert advice.moves[0].worker not in job.failed
    assert advice.state_to_copy == 7
    assert (advice.bound_before - 3, advice.bound_after - 3) == (48, 33)
    spread, _ = plan_staggered(job.with_failed(advice.failed), QUICK)
    assert spread.slots <= 34


def test_failures_that_are_spread_already_stay_where_they_are() -> None:
    job = uniform_job(4, 4, 8, [(0, 0), (3, 1)])
    advice = normalise(job)
    assert advice.moves == ()
    assert advice.failed == job.failed


def test_a_slower_stage_bears_fewer_failures() -> None:
    costs = tuple(StageCost(forward=ticks) for ticks in (1, 1, 6, 1))
    assert best_spread(Job(uniform_job(4, 4, 8).shape, costs), 3)[2] == 0


def test_more_failures_than_the_stages_can_bear_are_refused() -> None:
    with pytest.raises(StageLost, match="at most 4"):
        best_spread(uniform_job(4, 2, 4), 5)


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_moves_lead_to_the_spread_and_never_touch_the_dead(job: Job) -> None:
    advice = normalise(job)
    after = job.with_failed(advice.failed)
    assert after.failures_per_stage == advice.failures_per_stage
    assert len(advice.failed) == len(job.failed)
    movers = [move.worker for move in advice.moves]
    assert len(set(movers)) == len(movers)
    assert not set(movers) & job.failed
    assert advice.bound_after <= advice.bound_before


def test_workers_know_their_names() -> None:
    assert str(Worker(1, 2)) == "1:2"
