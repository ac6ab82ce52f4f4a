"""A routed job in flat lists, as the planners read it.

A *cell* is one micro-batch at one stage: `cell = stage * J * M + pipeline * M + microbatch`. Its operations are
`3 * cell + FORWARD`, `+ INPUT_GRAD` and `+ WEIGHT_GRAD`; a fused backward is an INPUT_GRAD that also contains the
weight gradient. The next stage's cell of the same micro-batch is `cell + J * M`. Plain integers because a job of
1,536 workers has 300,000 operations and they are visited many times.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.reroute.routing import route
from holdfast.reroute.shape import Job

FORWARD, INPUT_GRAD, WEIGHT_GRAD = 0, 1, 2


@dataclass
class Orders:
    """What each worker does, in which order: all a runtime needs. Memory depends on the order alone."""

    sequence: dict[int, list[int]]
    """Worker number to its operations in order; a fused cell has no WEIGHT_GRAD entry."""
    fused: bytearray
    """Per cell: 1 if its backward pass is one operation."""

    def copy(self) -> Orders:
        return Orders({worker: list(ops) for worker, ops in self.sequence.items()}, bytearray(self.fused))


@dataclass
class Workload:
    """Job plus routing. Workers are numbered `pipeline * S + stage`."""

    job: Job
    width: int = field(init=False)
    """Micro-batches of all pipelines, J * M: the distance between a cell and its successor at the next stage."""
    worker_of: list[int] = field(init=False)
    workers: list[int] = field(init=False)

    def __post_init__(self) -> None:
        shape = self.job.shape
        self.width = shape.pipelines * shape.microbatches
        self.worker_of = [
            peer * shape.stages + stage
            for stage in range(shape.stages)
            for row in route(self.job, stage)
            for peer in row
        ]
        self.workers = [worker.pipeline * shape.stages + worker.stage for worker in self.job.live_workers]

    @property
    def num_cells(self) -> int:
        return len(self.worker_of)

    def cells_of(self) -> dict[int, list[int]]:
        """Live worker to the cells it runs, ascending."""
        cells: dict[int, list[int]] = {worker: [] for worker in self.workers}
        for cell, worker in enumerate(self.worker_of):
            cells[worker].append(cell)
        return cells

    def microbatch_of(self, cell: int) -> tuple[int, int]:
        """(pipeline, micro-batch) whose work this cell is."""
        return divmod(cell % self.width, self.job.shape.microbatches)

    def is_rerouted(self, cell: int) -> bool:
        """The cell's own worker is dead."""
        pipeline, _ = self.microbatch_of(cell)
        stages = self.job.shape.stages
        return self.worker_of[cell] // stages != pipeline
