"""A plan as JSON, and back.

`plan_document` holds everything the validator needs (shape, costs, dead workers, operations, period), so that a plan
can be checked, drawn or executed by a program that never saw the planner. Counts are from 0, times in ticks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

from holdfast.errors import InvalidPlan
from holdfast.reroute.normalise import Normalisation
from holdfast.reroute.planner import Plan
from holdfast.reroute.schedule import Operation
from holdfast.reroute.shape import Job, Shape, StageCost, Worker
from holdfast.reroute.validator import Violation, violations

FORMAT = "holdfast-plan"
VERSION = 1


@dataclass(frozen=True)
class ReadPlan:
    """What a plan file says: the job and its staggered schedule."""

    job: Job
    operations: list[Operation]
    period: int
    slots: int


def plan_document(plan: Plan, normalisation: Normalisation | None = None) -> dict[str, Any]:
    """The JSON form of a plan."""
    search = plan.searches["staggered"]
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        **job_document(plan.job),
        "slots": {name: schedule.slots for name, schedule in plan.schedules.items()},
        "period": plan.staggered.period,
        "periods": {name: schedule.period for name, schedule in plan.schedules.items()},
        "lower_bound": plan.limits.work,
        "bounds": asdict(plan.limits),
        "throughput_ratio": {
            "of_fault_free_1f1b": plan.throughput_ratio,
            "of_best_fault_free": plan.best_throughput_ratio,
        },
        "solver": {
            "found_by": search.found_by,
            "status": search.status,
            "seconds": round(search.seconds, 3),
            "searches": {
                name: asdict(report) | {"seconds": round(report.seconds, 3)} for name, report in plan.searches.items()
            },
        },
        "num_split": {name: schedule.num_split for name, schedule in plan.schedules.items()},
        "peak_memory": {str(worker): peak for worker, peak in plan.staggered.peak_memory.items()},
        "ops": operations_document(plan.staggered.operations()),
    }
    if normalisation is not None:
        document["normalisation"] = {
            "failures_per_stage": list(normalisation.failures_per_stage),
            "bound_before": normalisation.bound_before,
            "bound_after": normalisation.bound_after,
            "moves": [
                {
                    "worker": list(move.worker),
                    "takes_place_of": list(move.takes_place_of),
                    "state_to_copy": move.state_to_copy,
                }
                for move in normalisation.moves
            ],
        }
    return document


def job_document(job: Job) -> dict[str, Any]:
    return {
        "shape": asdict(job.shape),
        "failed": [list(worker) for worker in sorted(job.failed)],
        "costs": [asdict(cost) for cost in job.costs],
    }


def operations_document(operations: Iterable[Operation]) -> list[dict[str, Any]]:
    return [
        {
            "worker": list(operation.worker),
            "op": operation.op,
            "pipeline": operation.pipeline,
            "microbatch": operation.microbatch,
            "start": operation.start,
            "duration": operation.duration,
        }
        for operation in operations
    ]


def read_job(document: Any) -> Job:
    """The job of a plan or store document."""
    try:
        shape = Shape(**_only(document["shape"], Shape))
        costs = tuple(StageCost(**_only(cost, StageCost)) for cost in document["costs"])
        failed = frozenset(Worker(*_integers(worker, 2)) for worker in document["failed"])
    except (LookupError, TypeError, ValueError) as error:
        raise _unreadable(error) from error
    return Job(shape, costs, failed)


def read_operations(document: Any) -> list[Operation]:
    """Operations of a plan or store document."""
    try:
        found = []
        for entry in document:
            microbatch = entry["microbatch"]
            pipeline, start, duration = _integers((entry["pipeline"], entry["start"], entry["duration"]), 3)
            if microbatch is not None:
                (microbatch,) = _integers((microbatch,), 1)
            worker = Worker(*_integers(entry["worker"], 2))
            found.append(Operation(worker, str(entry["op"]), pipeline, microbatch, start, duration))
    except (LookupError, TypeError, ValueError) as error:
        raise _unreadable(error) from error
    return found


def read_plan(document: Any) -> ReadPlan:
    """A plan from its JSON form; says nothing about whether it is a good one."""
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise InvalidPlan(
            f"This is not a plan of version {VERSION}.", what_to_try="write one with `holdfast plan --json FILE`."
        )
    job = read_job(document)
    try:
        (period, slots) = _integers((document["period"], document["slots"]["staggered"]), 2)
        operations = read_operations(document["ops"])
    except (LookupError, TypeError, ValueError) as error:
        raise _unreadable(error) from error
    return ReadPlan(job, operations, period, slots)


def check_plan(document: Any) -> list[Violation]:
    """Every rule a plan file breaks, its claim of slots included; empty for a good plan."""
    read = read_plan(document)
    found = violations(read.job, read.operations, read.period, synchronous=False)
    stage_end: dict[int, int] = {}
    for operation in read.operations:
        if operation.op != "O":
            stage = operation.worker.stage
            stage_end[stage] = max(stage_end.get(stage, 0), operation.end)
    needed = max((stage_end.get(op.worker.stage, op.start) - op.start for op in read.operations), default=0)
    if needed != read.slots:
        found.append(Violation("claim", f"slots.staggered is {read.slots}, the operations take {needed}"))
    return found


def _only(values: Any, kind: type[Shape] | type[StageCost]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in dict(values).items() if name in names}


def _integers(values: Any, count: int) -> tuple[int, ...]:
    numbers = tuple(values)
    if len(numbers) != count or any(isinstance(one, bool) or not isinstance(one, int) for one in numbers):
        raise ValueError(f"expected {count} whole numbers, found {values!r}")
    return numbers


def _unreadable(error: Exception) -> InvalidPlan:
    return InvalidPlan(
        f"The plan cannot be read: {type(error).__name__} {error}.",
        what_to_try="write it again with `holdfast plan --json FILE`.",
    )
