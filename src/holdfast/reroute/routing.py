"""Which live peer runs the micro-batches of a dead worker (adaptive pipelining, spec section 2)."""

from __future__ import annotations

from holdfast.reroute.shape import Job, Worker


def live_peers(job: Job, stage: int) -> list[int]:
    """Pipelines whose worker at `stage` is alive, ascending."""
    return [k for k in range(job.shape.pipelines) if Worker(k, stage) not in job.failed]


def route(job: Job, stage: int) -> list[list[int]]:
    """`route(job, s)[k][m]`: the pipeline whose worker at stage s runs micro-batch m of pipeline k.

    Dead workers' micro-batches go round-robin over all live peers. The turn is not reset between dead pipelines, so
    the busiest peer gets M + ceil(f M / (J - f)) micro-batches and no more.
    """
    peers = live_peers(job, stage)
    alive = set(peers)
    turn = 0
    rows = []
    for k in range(job.shape.pipelines):
        if k in alive:
            rows.append([k] * job.shape.microbatches)
            continue
        row = []
        for _ in range(job.shape.microbatches):
            row.append(peers[turn % len(peers)])
            turn += 1
        rows.append(row)
    return rows
