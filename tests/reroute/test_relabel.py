from __future__ import annotations

from hypothesis import given, settings
from pipeline_jobs import jobs

from holdfast.reroute import Job, Schedule, violations
from holdfast.reroute.greedy import Rule, list_schedule
from holdfast.reroute.relabel import in_number_order, route_groups
from holdfast.reroute.timing import Clock
from holdfast.reroute.workload import Workload


@settings(max_examples=80, deadline=None)
@given(jobs())
def test_renumbering_keeps_length_memory_and_validity_and_orders_each_group(job: Job) -> None:
    work = Workload(job)
    clock = Clock(work)
    shuffled = list_schedule(work, Rule(split=True, shuffle_places=4.0, seed=3))
    tidy = in_number_order(work, shuffled)
    before, after = clock.earliest(shuffled), clock.earliest(tidy)
    assert before is not None
    assert after is not None
    assert max(after.stage_end) <= max(before.stage_end)
    schedule = Schedule(work, tidy, after, synchronous=False)
    assert schedule.peak_memory == Schedule(work, shuffled, before, synchronous=False).peak_memory
    assert not violations(job, schedule.operations(), schedule.period, synchronous=False)
    for group in route_groups(work):
        for stage in range(job.shape.stages):
            for kind in range(3):
                starts = [after.start[3 * (stage * work.width + number) + kind] for number in group]
                assert starts == sorted(starts)
