from __future__ import annotations

import pytest

from holdfast.reroute import Worker, uniform_job
from holdfast.reroute.policies import POLICIES, DropPipeline, PolicyCosts, Redundancy, Reroute, Restart, Templates

JOB = uniform_job(4, 6, 5)
COSTS = PolicyCosts()
NOBODY: frozenset[Worker] = frozenset()
ONE = frozenset({Worker(1, 2)})


@pytest.mark.parametrize("kind", POLICIES)
def test_losing_more_never_helps_and_returning_never_costs_a_detection(kind: type[Reroute]) -> None:
    policy = kind(JOB, COSTS)
    two = ONE | {Worker(3, 0)}
    rates = [policy.respond(NOBODY, dead, 0.0).rate for dead in (NOBODY, ONE, two)]
    assert 1.0 >= rates[0] >= rates[1] >= rates[2] >= 0
    assert policy.respond(two, ONE, 0.0).pause_s <= policy.respond(ONE, two, 0.0).pause_s


def test_holdfast_loses_nothing_to_failures_the_bubbles_hide() -> None:
    policy = Reroute(JOB, COSTS)
    response = policy.respond(NOBODY, ONE, 0.0)
    assert response.rate == 1.0
    assert response.pause_s == pytest.approx(1.0 + 0.5 + 2.7)
    same_stage = frozenset({Worker(0, 2), Worker(1, 2), Worker(2, 2)})
    moved = policy.respond(NOBODY, same_stage, 0.0)
    assert moved.rate == 1.0
    assert moved.pause_s == pytest.approx(response.pause_s + COSTS.copy_state_s)


def test_holdfast_goes_back_to_the_checkpoint_if_a_stage_is_lost() -> None:
    policy = Reroute(JOB, COSTS)
    response = policy.respond(NOBODY, frozenset(Worker(k, 1) for k in range(6)), 700.0)
    assert response.pause_s > COSTS.restart_s
    assert response.lost_s > 0
    assert 0 < response.rate < 1


def test_dropping_loses_a_whole_pipeline_per_worker() -> None:
    policy = DropPipeline(JOB, COSTS)
    assert policy.respond(NOBODY, ONE, 0.0).rate == pytest.approx(5 / 6)
    assert policy.respond(NOBODY, ONE | {Worker(1, 0)}, 0.0).rate == pytest.approx(5 / 6)
    assert policy.respond(NOBODY, ONE | {Worker(2, 0)}, 0.0).rate == pytest.approx(4 / 6)


def test_templates_use_every_worker() -> None:
    """20 workers as five pipelines of four, six micro-batches each: (6 + 3) x 3 + 3 = 30 instead of 27."""
    policy = Templates(JOB, COSTS)
    four = frozenset(Worker(k, 0) for k in range(4))
    assert policy.respond(NOBODY, four, 0.0).rate == pytest.approx(27 / 30)
    assert policy.respond(NOBODY, NOBODY, 0.0).rate == 1.0


def test_redundancy_pays_even_without_failures() -> None:
    policy = Redundancy(JOB, COSTS)
    assert policy.respond(NOBODY, NOBODY, 0.0).rate == pytest.approx(27 / (8 * 4 + 3))


def test_a_restart_loses_the_work_since_the_checkpoint() -> None:
    policy = Restart(JOB, COSTS)
    response = policy.respond(NOBODY, ONE, 1000.0)
    assert response.lost_s == pytest.approx(400.0)
    assert response.rate == pytest.approx(27 / 30)
    assert policy.respond(ONE | {Worker(2, 2)}, ONE, 0.0).pause_s == 0
    assert policy.respond(ONE, NOBODY, 0.0).pause_s == COSTS.restart_s
    assert policy.respond(NOBODY, frozenset(JOB.shape.workers()), 0.0).rate == 0.0
