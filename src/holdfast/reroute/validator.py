"""Is this schedule one that a pipeline can run? Shares no code with the planners.

It knows a job, a list of operations, whether stages step together, and the period claimed. It looks at nothing else,
so it judges a plan read from a file exactly like one just made. The rules (spec sections 1-5):

- every forward, input gradient and weight gradient (or one fused backward instead of the two) exactly once;
- on a live worker of the right stage, all of one micro-batch at one stage on the same worker;
- each for as long as the stage's times say, none before tick 0;
- forward after the previous stage's forward, backward after the next stage's backward and the own forward, weight
  gradient after input gradient, transfers included; a fused backward hands its gradient on only at its end;
- one operation at a time on a worker, also across the boundary to the next iteration;
- one optimizer step per live worker, after all gradients of its stage (synchronous: of all stages);
- memory never above the limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.errors import InvalidPlan
from holdfast.reroute.schedule import Operation
from holdfast.reroute.shape import Job, Worker

MAX_REPORTED = 100

Cell = tuple[int, int, int]
"""(pipeline, micro-batch, stage)"""


@dataclass(frozen=True)
class Violation:
    """One broken rule: its name, and where it is broken."""

    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


def violations(job: Job, operations: Iterable[Operation], period: int, *, synchronous: bool) -> list[Violation]:
    """Every broken rule, the first MAX_REPORTED of them; empty for a good plan."""
    check = _Check(job, list(operations), period, synchronous)
    check.run()
    return check.found[:MAX_REPORTED]


def require_valid(job: Job, operations: Iterable[Operation], period: int, *, synchronous: bool) -> None:
    """Raise InvalidPlan with all violations."""
    found = violations(job, operations, period, synchronous=synchronous)
    if found:
        raise InvalidPlan(
            f"The plan breaks {len(found)} rules; first: {found[0]}",
            what_to_try="plan again for this job, and check that the file belongs to it.",
            violations=[str(violation) for violation in found],
        )


class _Check:
    def __init__(self, job: Job, operations: list[Operation], period: int, synchronous: bool) -> None:
        self.job = job
        self.operations = operations
        self.period = period
        self.synchronous = synchronous
        self.found: list[Violation] = []
        self.by_cell: dict[Cell, dict[str, Operation]] = defaultdict(dict)
        self.steps: dict[Worker, Operation] = {}
        self.by_worker: dict[Worker, list[Operation]] = defaultdict(list)

    def _break(self, rule: str, detail: str) -> None:
        self.found.append(Violation(rule, detail))

    def run(self) -> None:
        for operation in self.operations:
            self._admit(operation)
        self._each_once()
        self._dependencies()
        self._no_overlap()
        self._optimizer_steps()
        self._memory()

    def _admit(self, operation: Operation) -> None:
        """What can be said of one operation alone; only sensible ones are looked at further."""
        shape, (worker, kind, pipeline, microbatch, start, duration) = self.job.shape, operation
        if not (0 <= worker.pipeline < shape.pipelines and 0 <= worker.stage < shape.stages):
            return self._break("unknown worker", f"{_name(operation)} on {worker}")
        if worker in self.job.failed:
            self._break("dead worker", f"{_name(operation)} on {worker}")
        if start < 0:
            self._break("before the iteration", f"{_name(operation)} starts at {start}")
        cost = self.job.costs[worker.stage]
        expected = {
            "F": cost.forward,
            "I": cost.input_grad,
            "W": cost.weight_grad,
            "B": cost.input_grad + cost.weight_grad,
            "O": cost.optimizer,
        }
        if kind not in expected:
            return self._break("unknown operation", f"{kind!r} on {worker}")
        if duration != expected[kind]:
            self._break("wrong duration", f"{_name(operation)} on {worker} takes {duration}, not {expected[kind]}")
        self.by_worker[worker].append(operation)
        if kind == "O":
            if worker in self.steps:
                self._break("more than once", f"optimizer step of {worker}")
            self.steps[worker] = operation
            return None
        if microbatch is None or not (0 <= pipeline < shape.pipelines and 0 <= microbatch < shape.microbatches):
            return self._break("unknown micro-batch", f"{_name(operation)} on {worker}")
        cell = self.by_cell[pipeline, microbatch, worker.stage]
        if kind in cell:
            self._break("more than once", f"{_name(operation)} at stage {worker.stage}")
        cell[kind] = operation
        return None

    def _each_once(self) -> None:
        shape = self.job.shape
        for pipeline in range(shape.pipelines):
            for microbatch in range(shape.microbatches):
                for stage in range(shape.stages):
                    cell = self.by_cell.get((pipeline, microbatch, stage), {})
                    where = f"micro-batch {pipeline}.{microbatch} at stage {stage}"
                    if "F" not in cell:
                        self._break("missing operation", f"forward of {where}")
                    if "B" in cell and ("I" in cell or "W" in cell):
                        self._break("more than once", f"backward of {where} both fused and split")
                    elif "B" not in cell:
                        for kind, name in (("I", "input gradient"), ("W", "weight gradient")):
                            if kind not in cell:
                                self._break("missing operation", f"{name} of {where}")
                    if len({operation.worker for operation in cell.values()}) > 1:
                        workers = ", ".join(f"{kind} on {cell[kind].worker}" for kind in sorted(cell))
                        self._break("split over workers", f"{where}: {workers}")

    def _dependencies(self) -> None:
        last = self.job.shape.stages - 1
        for (pipeline, microbatch, stage), cell in self.by_cell.items():
            above = self.by_cell.get((pipeline, microbatch, stage - 1), {})
            below = self.by_cell.get((pipeline, microbatch, stage + 1), {})
            if stage > 0:
                self._after(cell.get("F"), above.get("F"), self.job.costs[stage - 1].transfer)
            backward = cell.get("B") or cell.get("I")
            self._after(backward, cell.get("F"), 0)
            if stage < last:
                self._after(backward, below.get("B") or below.get("I"), self.job.costs[stage].transfer)
            self._after(cell.get("W"), cell.get("I"), 0)

    def _after(self, later: Operation | None, earlier: Operation | None, transfer: int) -> None:
        if later is not None and earlier is not None and later.start < earlier.start + earlier.duration + transfer:
            self._break(
                "dependency",
                f"{_name(later)} on {later.worker} starts at {later.start}, but {_name(earlier)} on {earlier.worker} "
                f"ends at {earlier.start + earlier.duration} and takes {transfer} to cross",
            )

    def _no_overlap(self) -> None:
        for worker, mine in self.by_worker.items():
            mine.sort(key=lambda operation: operation.start)
            for one, other in pairwise(mine):
                if other.start < one.start + one.duration:
                    self._break("overlap", f"{_name(one)} and {_name(other)} on {worker} at {other.start}")
            if mine and max(one.start + one.duration for one in mine) - mine[0].start > self.period:
                self._break("period", f"{worker} needs more than {self.period} from its first to its last operation")

    def _optimizer_steps(self) -> None:
        compute_end = [0] * self.job.shape.stages
        for worker, mine in self.by_worker.items():
            ends = [one.start + one.duration for one in mine if one.op != "O"]
            compute_end[worker.stage] = max([compute_end[worker.stage], *ends])
        for worker in self.job.live_workers:
            step = self.steps.get(worker)
            if step is None:
                self._break("missing operation", f"optimizer step of {worker}")
                continue
            needed = max(compute_end) if self.synchronous else compute_end[worker.stage]
            if step.start < needed:
                whose = "all stages" if self.synchronous else f"stage {worker.stage}"
                self._break("early optimizer", f"{worker} steps at {step.start}, gradients of {whose} end at {needed}")
        self._steps_end_before_next_iteration()

    def _steps_end_before_next_iteration(self) -> None:
        """A stage's all-reduce ends when its last worker's step does; if synchronous, all stages wait for that."""
        ends = [0] * self.job.shape.stages
        for worker, step in self.steps.items():
            ends[worker.stage] = max(ends[worker.stage], step.start + step.duration)
        if self.synchronous:
            ends = [max(ends)] * self.job.shape.stages
        for worker, mine in self.by_worker.items():
            first = min(one.start for one in mine)
            if first + self.period < ends[worker.stage]:
                self._break(
                    "period",
                    f"{worker} starts its next iteration at {first + self.period}, "
                    f"before the optimizer step that ends at {ends[worker.stage]}",
                )

    def _memory(self) -> None:
        held: dict[Worker, list[tuple[int, int]]] = defaultdict(list)
        for (_, _, stage), cell in self.by_cell.items():
            cost = self.job.costs[stage]
            if cost.memory_limit is None:
                continue
            # A weight gradient keeps its stash from the end of the input gradient; everything else the activation.
            gradient, weight = cell.get("I"), cell.get("W")
            backward = cell.get("B") or gradient
            if "F" in cell and backward is not None:
                held[cell["F"].worker] += _occupied(cell["F"].start, backward.end, cost.activation)
            if gradient is not None and weight is not None:
                held[weight.worker] += _occupied(gradient.end, weight.end, cost.weight_stash)
        for worker, changes in held.items():
            cost = self.job.costs[worker.stage]
            now = cost.state
            # At equal times memory is freed before it is taken: negative changes sort first.
            for time, change in sorted(changes):
                now += change
                if cost.memory_limit is not None and now > cost.memory_limit:
                    self._break("memory", f"{worker} holds {now} at {time}, limit {cost.memory_limit}")
                    break


def _occupied(begin: int, end: int, amount: int) -> Sequence[tuple[int, int]]:
    return ((begin, amount), (end, -amount))


def _name(operation: Operation) -> str:
    if operation.op == "O":
        return "optimizer step"
    return f"{operation.op} of micro-batch {operation.pipeline}.{operation.microbatch}"
