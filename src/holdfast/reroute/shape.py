"""What is planned: the shape of the job, what each stage costs, and who is dead.

Words follow the paper (spec section 1): J pipelines of S stages, M micro-batches per pipeline and iteration; a worker
is the whole holder of one stage replica. Times are whole ticks of any unit, so that every planner works without
rounding and the exact solver can be used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from holdfast.errors import ImpossibleShape, MemoryTooSmall, StageLost, TimesNotPositive, UnknownWorker

# A plan is a few hundred bytes per operation; beyond this the planner would need tens of gigabytes.
MAX_OPERATIONS = 6_000_000


class Worker(NamedTuple):
    """One stage replica; written `pipeline:stage`, both from 0."""

    pipeline: int
    stage: int

    def __str__(self) -> str:
        return f"{self.pipeline}:{self.stage}"


@dataclass(frozen=True)
class Shape:
    """How many stages, pipelines (the data-parallel degree) and micro-batches per pipeline."""

    stages: int
    pipelines: int
    microbatches: int

    def __post_init__(self) -> None:
        for name, value in (
            ("stages", self.stages),
            ("pipelines", self.pipelines),
            ("microbatches", self.microbatches),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ImpossibleShape(
                    f"A job needs at least one of each, but {name} is {value!r}.",
                    what_to_try=f"give {name} as a whole number of 1 or more.",
                )
        if self.num_operations > MAX_OPERATIONS:
            raise ImpossibleShape(
                f"{self.stages} stages x {self.pipelines} pipelines x {self.microbatches} micro-batches are "
                f"{self.num_operations:,} operations; the planner stops at {MAX_OPERATIONS:,}.",
                what_to_try="plan for fewer micro-batches: the plan repeats, so half of them shows the same effect.",
            )

    @property
    def num_workers(self) -> int:
        return self.stages * self.pipelines

    @property
    def num_operations(self) -> int:
        """Forward, input gradient and weight gradient of every micro-batch at every stage."""
        return 3 * self.stages * self.pipelines * self.microbatches

    def workers(self) -> list[Worker]:
        return [Worker(pipeline, stage) for pipeline in range(self.pipelines) for stage in range(self.stages)]


@dataclass(frozen=True)
class StageCost:
    """What one stage costs: times in ticks, memory in any unit as long as it is the same everywhere (spec 5.2)."""

    forward: int = 1
    """Ticks of a forward pass, t_F."""
    input_grad: int = 1
    """Ticks of the backward pass with respect to the input, t_I: on the critical path."""
    weight_grad: int = 1
    """Ticks of the backward pass with respect to the weights, t_W: any time before the optimizer."""
    optimizer: int = 3
    """Ticks of the gradient all-reduce and the optimizer step, t_O."""
    transfer: int = 0
    """Ticks until the next stage has the activation, or this one the next stage's gradient, c."""
    activation: int = 1
    """Memory of one micro-batch from the start of its forward to the end of its input gradient, a_s."""
    weight_stash: int = 1
    """Memory of one micro-batch from the end of its input gradient to the end of its weight gradient, w_s."""
    state: int = 0
    """Memory of parameters and optimizer state: always there, and what a moved worker has to copy."""
    memory_limit: int | None = None
    """Memory of the device; None plans without a limit."""

    def __post_init__(self) -> None:
        for name in ("forward", "input_grad", "weight_grad", "optimizer"):
            _check_ticks(name, getattr(self, name), least=1)
        for name in ("transfer", "activation", "weight_stash", "state"):
            _check_ticks(name, getattr(self, name), least=0)
        if self.memory_limit is not None:
            _check_ticks("memory_limit", self.memory_limit, least=0)

    @property
    def backward(self) -> int:
        return self.input_grad + self.weight_grad

    @property
    def total(self) -> int:
        """Ticks of compute one micro-batch needs at this stage."""
        return self.forward + self.input_grad + self.weight_grad

    @property
    def held(self) -> int:
        """What the planners reserve from forward to input gradient: enough for either phase of the backward pass."""
        return max(self.activation, self.weight_stash)

    @property
    def room(self) -> int | None:
        """Memory left for micro-batches, None if there is no limit."""
        return None if self.memory_limit is None else self.memory_limit - self.state


def _check_ticks(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TimesNotPositive(
            f"{name} is {value!r}, but the planner counts in whole ticks.",
            what_to_try="use a finer unit, for instance microseconds instead of milliseconds, and round.",
        )
    if value < least:
        raise TimesNotPositive(
            f"{name} is {value}, but must be {least} or more.",
            what_to_try="measure the stage again over at least ten warm iterations, or leave the default.",
        )


@dataclass(frozen=True)
class Job:
    """Everything a planner has to know: shape, cost of each stage, dead workers."""

    shape: Shape
    costs: tuple[StageCost, ...]
    failed: frozenset[Worker] = frozenset()

    def __post_init__(self) -> None:
        if len(self.costs) != self.shape.stages:
            raise ImpossibleShape(
                f"The profile describes {len(self.costs)} stages, the job has {self.shape.stages}.",
                what_to_try=f"give --stages {len(self.costs)}, or a profile with {self.shape.stages} stages.",
            )
        for worker in sorted(self.failed):
            if not (0 <= worker.pipeline < self.shape.pipelines and 0 <= worker.stage < self.shape.stages):
                raise UnknownWorker(
                    f"There is no worker {worker}: pipelines are 0..{self.shape.pipelines - 1}, "
                    f"stages 0..{self.shape.stages - 1}.",
                    what_to_try="name dead workers as pipeline:stage, counted from 0.",
                )
        for stage, lost in enumerate(self.failures_per_stage):
            if lost == self.shape.pipelines:
                raise StageLost(
                    f"Stage {stage} has no live worker: all {lost} of its replicas are dead.",
                    what_to_try="bring one of them back; else its weights are gone from memory, so restart from a "
                    "checkpoint with fewer pipelines.",
                )
        for stage, cost in enumerate(self.costs):
            if cost.room is not None and cost.room < max(cost.held, 1):
                raise MemoryTooSmall(
                    f"Stage {stage} has room for {max(cost.room, 0)} beside its state of {cost.state}, "
                    f"but one micro-batch needs {max(cost.held, 1)}: no plan can meet this.",
                    what_to_try=f"raise the memory limit to {cost.state + max(cost.held, 1)} or more, "
                    "or make micro-batches smaller.",
                )

    @property
    def failures_per_stage(self) -> tuple[int, ...]:
        lost = [0] * self.shape.stages
        for worker in self.failed:
            lost[worker.stage] += 1
        return tuple(lost)

    @property
    def live_workers(self) -> list[Worker]:
        return [worker for worker in self.shape.workers() if worker not in self.failed]

    def without_failures(self) -> Job:
        return replace(self, failed=frozenset())

    def with_failed(self, failed: Iterable[Worker]) -> Job:
        return replace(self, failed=frozenset(failed))


def uniform_job(
    stages: int,
    pipelines: int,
    microbatches: int,
    failed: Iterable[tuple[int, int]] = (),
    cost: StageCost | None = None,
    memory_limit: int | None = None,
) -> Job:
    """A job whose stages all cost the same; by default the paper's F = I = W = 1, optimizer 3."""
    base = cost if cost is not None else StageCost()
    if memory_limit is not None:
        base = replace(base, memory_limit=memory_limit)
    shape = Shape(stages, pipelines, microbatches)
    return Job(shape, (base,) * shape.stages, frozenset(Worker(*worker) for worker in failed))
