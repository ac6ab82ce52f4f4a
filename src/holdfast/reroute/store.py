"""Plans prepared ahead, so that a failure is answered by looking one up (spec 5.1 and 5.3).

Plans are keyed by the number of failures. Where several distributions over the stages give the same period, a plan is
kept for each of them (up to a limit), because the one that fits the real failures saves moving workers. At run time
the real dead workers are mapped onto the plan's dead places: peers of a stage hold the same weights, so each stage
has its own permutation, and one always exists after the moves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import InvalidPlan, NoPlanStored
from holdfast.reroute.document import job_document, read_job, read_operations
from holdfast.reroute.normalise import Move, best_spreads, moves_between
from holdfast.reroute.planner import plan_staggered
from holdfast.reroute.schedule import Operation
from holdfast.reroute.shape import Job, Worker
from holdfast.reroute.solver import Effort
from holdfast.reroute.validator import require_valid

FORMAT = "holdfast-plan-store"
VERSION = 1
DEFAULT_VARIANTS = 16


@dataclass(frozen=True)
class StoredPlan:
    """One staggered plan; `job.failed` are the plan's dead places."""

    job: Job
    operations: tuple[Operation, ...]
    period: int


@dataclass(frozen=True)
class Placement:
    """A stored plan, and which real worker sits in which of its places."""

    plan: StoredPlan
    moves: tuple[Move, ...]
    """Healthy workers that first have to change their stage."""
    permutation: tuple[tuple[int, ...], ...]
    """`permutation[s][k]`: the real pipeline whose place at stage s plays the plan's pipeline k."""
    seats: dict[Worker, Worker]
    """Live place of the plan to the worker that fills it, moved ones under their old name."""

    def operations(self) -> list[Operation]:
        """The plan's operations at real places. Micro-batches keep their numbers: those belong to the data."""
        return [
            operation._replace(worker=Worker(self.permutation[stage][pipeline], stage))
            for operation in self.plan.operations
            for pipeline, stage in (operation.worker,)
        ]


class PlanStore:
    """Plans for 1..f failures of one job."""

    def __init__(self, job: Job, plans: dict[int, list[StoredPlan]]) -> None:
        self.job = job.without_failures()
        self.plans = plans

    @classmethod
    def prepare(
        cls,
        job: Job,
        max_failures: int,
        effort: Effort | None = None,
        variants: int = DEFAULT_VARIANTS,
        notice: Callable[[int, int], None] | None = None,
    ) -> PlanStore:
        """Plan for every number of failures up to `max_failures`; `notice` hears (failures, plans so far)."""
        bare = job.without_failures()
        quick = effort if effort is not None else Effort(seconds=0)
        plans: dict[int, list[StoredPlan]] = {}
        for count in range(1, max_failures + 1):
            plans[count] = []
            for spread in best_spreads(bare, count, limit=variants):
                broken = bare.with_failed(dead_places(bare, spread))
                schedule, _ = plan_staggered(broken, quick)
                plans[count].append(StoredPlan(broken, tuple(schedule.operations()), schedule.period))
                if notice is not None:
                    notice(count, len(plans[count]))
        return cls(bare, plans)

    @property
    def max_failures(self) -> int:
        return max(self.plans, default=0)

    def place(self, dead: Iterable[Worker]) -> Placement:
        """The plan for these dead workers: fewest moves, then shortest."""
        gone = frozenset(dead)
        self.job.with_failed(gone)  # names unknown workers and lost stages
        if len(gone) not in self.plans or not self.plans[len(gone)]:
            raise NoPlanStored(
                f"The store holds plans for 1 to {self.max_failures} failures, not for {len(gone)}.",
                what_to_try=f"prepare it with --prepare {len(gone)}, or plan for these workers directly.",
            )
        options = [(moves_between(self.job, gone, plan.job.failures_per_stage), plan) for plan in self.plans[len(gone)]]
        moves, plan = min(options, key=lambda option: (len(option[0]), option[1].period))
        return _seat(plan, gone, moves)

    def save(self, path: Path) -> None:
        """Write all plans to one JSON file."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            **job_document(self.job),
            "plans": [
                {
                    "failed": [list(worker) for worker in sorted(plan.job.failed)],
                    "period": plan.period,
                    "ops": [
                        [*worker, kind, pipeline, microbatch, start, duration]
                        for worker, kind, pipeline, microbatch, start, duration in plan.operations
                    ],
                }
                for plans in self.plans.values()
                for plan in plans
            ],
        }
        partial = path.with_name(path.name + ".part")
        partial.write_text(json.dumps(document, separators=(",", ":")))
        partial.replace(path)  # a reader never sees half a store

    @classmethod
    def load(cls, path: Path) -> PlanStore:
        """Read a store and check every plan in it."""
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidPlan(
                f"Cannot read the plan store {path}: {error}.", what_to_try="write it with --prepare and --store."
            ) from error
        if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
            raise InvalidPlan(
                f"{path} is not a plan store of version {VERSION}.", what_to_try="write it with --prepare and --store."
            )
        job = read_job(document)
        plans: dict[int, list[StoredPlan]] = {}
        for entry in document.get("plans", ()):
            plan = _read_stored(job, entry)
            plans.setdefault(len(plan.job.failed), []).append(plan)
        return cls(job, plans)


def dead_places(job: Job, spread: tuple[int, ...]) -> frozenset[Worker]:
    """Dead places for a number of failures per stage, over as many different pipelines as possible."""
    places = set()
    turn = 0
    for stage, lost in enumerate(spread):
        for _ in range(lost):
            places.add(Worker(turn % job.shape.pipelines, stage))
            turn += 1
    return frozenset(places)


def _read_stored(job: Job, entry: Any) -> StoredPlan:
    names = ("pipeline", "microbatch", "start", "duration")
    try:
        rows = [{"worker": row[:2], "op": row[2], **dict(zip(names, row[3:], strict=True))} for row in entry["ops"]]
        broken = read_job(job_document(job) | {"failed": entry["failed"]})
        period = int(entry["period"])
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidPlan(
            f"A stored plan cannot be read: {error}.", what_to_try="write the store again with --prepare."
        ) from error
    operations = read_operations(rows)
    require_valid(broken, operations, period, synchronous=False)
    return StoredPlan(broken, tuple(operations), period)


def _seat(plan: StoredPlan, gone: frozenset[Worker], moves: tuple[Move, ...]) -> Placement:
    shape = plan.job.shape
    movers = {move.takes_place_of: move.worker for move in moves}
    vacant = gone - set(movers) | set(movers.values())
    permutation = []
    seats = {}
    for stage in range(shape.stages):
        alive = [k for k in range(shape.pipelines) if Worker(k, stage) not in vacant]
        planned = [k for k in range(shape.pipelines) if Worker(k, stage) not in plan.job.failed]
        # Keep every worker that can keep its pipeline, so that as few links as possible change.
        row = {k: k for k in planned if k in alive}
        spare = [k for k in alive if k not in row]
        row.update(zip([k for k in planned if k not in row], spare, strict=True))
        dead_here = [k for k in range(shape.pipelines) if k not in alive]
        row.update(zip([k for k in range(shape.pipelines) if k not in row], dead_here, strict=True))
        permutation.append(tuple(row[k] for k in range(shape.pipelines)))
        for k in planned:
            place = Worker(row[k], stage)
            seats[Worker(k, stage)] = movers.get(place, place)
    return Placement(plan, moves, tuple(permutation), seats)
