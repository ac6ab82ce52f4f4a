"""Plans in the text form of torch.distributed.pipelining: one row per worker, `0F0,2I0,2W0`.

Stage, operation, micro-batch. Torch knows one pipeline, so micro-batches are numbered through all of them
(`pipeline * M + microbatch`), and it has no optimizer action, so steps are left out (spec section 9).
"""

from __future__ import annotations

from holdfast.reroute.schedule import OPTIMIZER, Schedule
from holdfast.reroute.shape import Worker


def action_rows(schedule: Schedule) -> dict[Worker, list[str]]:
    """Every worker's actions in order; a dead worker's row is empty."""
    rows: dict[Worker, list[str]] = {worker: [] for worker in schedule.job.shape.workers()}
    microbatches = schedule.job.shape.microbatches
    for operation in schedule.operations():
        if operation.op != OPTIMIZER and operation.microbatch is not None:
            number = operation.pipeline * microbatches + operation.microbatch
            rows[operation.worker].append(f"{operation.worker.stage}{operation.op}{number}")
    return rows


def action_text(schedule: Schedule) -> str:
    """The rows as torch's compute-only CSV, workers in order pipeline by pipeline."""
    return "\n".join(",".join(row) for row in action_rows(schedule).values()) + "\n"
