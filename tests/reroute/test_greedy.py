from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_jobs import jobs

from holdfast.reroute import Job, Schedule, uniform_job, violations
from holdfast.reroute.greedy import Rule, list_schedule
from holdfast.reroute.timing import Clock
from holdfast.reroute.workload import Workload

RULES = st.builds(
    Rule,
    split=st.booleans(),
    window=st.none() | st.sampled_from([0.5, 1.0, 1.5, 2.0]),
    weights_before_forwards=st.booleans(),
    by_arrival=st.booleans(),
    shuffle_places=st.sampled_from([0.0, 1.0, 4.0]),
    seed=st.integers(0, 9),
)


@settings(max_examples=75, deadline=None)
@given(jobs(), RULES)
def test_every_rule_gives_a_valid_schedule_within_memory(job: Job, rule: Rule) -> None:
    work = Workload(job)
    orders = list_schedule(work, rule)
    timing = Clock(work).earliest(orders)
    assert timing is not None
    for synchronous in (True, False):
        schedule = Schedule(work, orders, timing, synchronous)
        assert not violations(job, schedule.operations(), schedule.period, synchronous=synchronous)


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_the_tightest_memory_still_gives_a_schedule(cap: int) -> None:
    """One micro-batch at a time on every worker, with re-routing across stages: nobody may wait in a circle."""
    work = Workload(uniform_job(4, 4, 8, [(0, 1), (1, 1), (2, 3), (3, 0)], memory_limit=cap))
    orders = list_schedule(work, Rule(split=True))
    assert sum(map(len, orders.sequence.values())) == 3 * work.num_cells


def test_the_same_seed_gives_the_same_schedule() -> None:
    work = Workload(uniform_job(4, 4, 8, [(0, 1)]))
    rule = Rule(split=True, shuffle_places=2.5, seed=7)
    assert list_schedule(work, rule).sequence == list_schedule(work, rule).sequence
