from __future__ import annotations

from collections import Counter

from hypothesis import given
from pipeline_jobs import jobs

from holdfast.reroute import Job, Worker, uniform_job
from holdfast.reroute.bound import load
from holdfast.reroute.routing import route


def test_the_figure_of_the_paper() -> None:
    """Micro-batches 7, 9, 11 (from 1) of dead worker 1:2 go to pipeline 0, and 8, 10, 12 to pipeline 2."""
    assert route(uniform_job(4, 3, 6, [(1, 2)]), 2)[1] == [0, 2, 0, 2, 0, 2]


def test_the_turn_is_not_reset_between_dead_pipelines() -> None:
    rows = route(uniform_job(2, 4, 3, [(0, 1), (1, 1)]), 1)
    assert rows[0] + rows[1] == [2, 3, 2, 3, 2, 3]


@given(jobs())
def test_work_goes_to_live_peers_only_and_the_busiest_has_the_load_of_the_bound(job: Job) -> None:
    for stage in range(job.shape.stages):
        rows = route(job, stage)
        taken = Counter(peer for row in rows for peer in row)
        assert all(Worker(peer, stage) not in job.failed for peer in taken)
        assert max(taken.values()) == load(job, stage)
        for pipeline, row in enumerate(rows):
            if Worker(pipeline, stage) not in job.failed:
                assert set(row) == {pipeline}
