"""A finished schedule: who runs what when, how long it takes, and what it holds in memory.

Inside, operations are numbers (see `workload`); outside they are `Operation`s, which is what is saved, drawn,
validated and executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from holdfast.reroute.shape import Job, Worker
from holdfast.reroute.timing import NOT_RUN, Timing
from holdfast.reroute.workload import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Orders, Workload

OPTIMIZER = "O"
FUSED_BACKWARD = "B"
_LETTER = {FORWARD: "F", INPUT_GRAD: "I", WEIGHT_GRAD: "W"}


class Operation(NamedTuple):
    """One thing a worker does. `op`: F, I, W, B (fused I and W) or O (the stage's optimizer step)."""

    worker: Worker
    op: str
    pipeline: int
    """Whose micro-batch it is; differs from the worker's own where work was re-routed."""
    microbatch: int | None
    """None for the optimizer step."""
    start: int
    duration: int

    @property
    def end(self) -> int:
        return self.start + self.duration

    @property
    def is_rerouted(self) -> bool:
        return self.pipeline != self.worker.pipeline


@dataclass
class Schedule:
    """Orders with their times. `synchronous`: all stages step together, else each by itself."""

    work: Workload
    orders: Orders
    timing: Timing
    synchronous: bool

    @property
    def job(self) -> Job:
        return self.work.job

    def for_every_pipeline(self, job: Job) -> Schedule:
        """A schedule of one pipeline, run by each of the pipelines of a `job` without failures."""
        work = Workload(job)
        stages, microbatches = job.shape.stages, job.shape.microbatches
        fused = bytearray(work.num_cells)
        start, end = [NOT_RUN] * (3 * work.num_cells), [NOT_RUN] * (3 * work.num_cells)
        sequence: dict[int, list[int]] = {}
        for pipeline in range(job.shape.pipelines):
            for stage in range(stages):
                shift = 3 * (stage * work.width + (pipeline - stage) * microbatches)
                mine = self.orders.sequence[stage]
                sequence[pipeline * stages + stage] = [op + shift for op in mine]
                for op in mine:
                    start[op + shift], end[op + shift] = self.timing.start[op], self.timing.end[op]
                    fused[(op + shift) // 3] = self.orders.fused[op // 3]
        first = {worker: self.timing.first_start[worker % stages] for worker in sequence}
        timing = Timing(start, end, list(self.timing.stage_end), first)
        return Schedule(work, Orders(sequence, fused), timing, self.synchronous)

    @cached_property
    def slots(self) -> int:
        """Ticks of compute without the optimizer's, as the paper counts them.

        Synchronous: until the last stage is done. Staggered: the longest time any worker needs from its first
        operation to the end of its stage.
        """
        if self.synchronous:
            return max(self.timing.stage_end)
        stages = self.job.shape.stages
        return max(self.timing.stage_end[worker % stages] - first for worker, first in self.timing.first_start.items())

    @cached_property
    def period(self) -> int:
        """Ticks from one iteration to the next, the optimizer's included."""
        costs, stages = self.job.costs, self.job.shape.stages
        if self.synchronous:
            return self.slots + max(cost.optimizer for cost in costs)
        return max(
            self.timing.stage_end[worker % stages] + costs[worker % stages].optimizer - first
            for worker, first in self.timing.first_start.items()
        )

    @cached_property
    def num_split(self) -> int:
        """Backward passes that run as two operations."""
        return self.work.num_cells - sum(self.orders.fused)

    @cached_property
    def peak_memory(self) -> dict[Worker, int]:
        """The most each live worker holds beside its state; follows from the order alone."""
        costs, stages = self.job.costs, self.job.shape.stages
        peaks = {}
        for number, ops in self.orders.sequence.items():
            pipeline, stage = divmod(number, stages)
            cost = costs[stage]
            held = peak = 0
            for op in ops:
                cell, kind = divmod(op, 3)
                if kind == FORWARD:
                    held += cost.activation
                elif kind == WEIGHT_GRAD:
                    held -= cost.weight_stash
                elif self.orders.fused[cell]:
                    held -= cost.activation
                else:
                    held += cost.weight_stash - cost.activation
                peak = max(peak, held)
            peaks[Worker(pipeline, stage)] = peak
        return peaks

    @cached_property
    def idle_ratio(self) -> float:
        """Share of the live workers' time without work, the optimizer step counted as work."""
        costs, stages = self.job.costs, self.job.shape.stages
        busy = sum(costs[cell // self.work.width].total for cell in range(self.work.num_cells))
        busy += sum(costs[worker % stages].optimizer for worker in self.work.workers)
        return 1 - busy / (self.period * len(self.work.workers))

    def operations(self) -> Iterator[Operation]:
        """Worker by worker, in order of time; the stage's optimizer step comes last."""
        costs, stages = self.job.costs, self.job.shape.stages
        start, end = self.timing.start, self.timing.end
        for number in self.work.workers:
            worker = Worker(*divmod(number, stages))
            for op in self.orders.sequence[number]:
                cell, kind = divmod(op, 3)
                pipeline, microbatch = self.work.microbatch_of(cell)
                letter = FUSED_BACKWARD if kind == INPUT_GRAD and self.orders.fused[cell] else _LETTER[kind]
                yield Operation(worker, letter, pipeline, microbatch, start[op], end[op] - start[op])
            step = max(self.timing.stage_end) if self.synchronous else self.timing.stage_end[worker.stage]
            yield Operation(worker, OPTIMIZER, worker.pipeline, None, step, costs[worker.stage].optimizer)
