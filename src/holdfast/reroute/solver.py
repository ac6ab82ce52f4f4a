"""The exact planner: OR-Tools CP-SAT, started from a list schedule.

The model is spec 5.4 with intervals instead of big-M order variables (a literal MILP does not get anywhere on two
cores, spec section 10). Probing and symmetry detection are off because presolve would otherwise eat the time limit
without ever looking at the hint. Only orders come back: `timing` finds the times, so the solver cannot be wrong about
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING

from holdfast.reroute.relabel import route_groups
from holdfast.reroute.timing import Timing
from holdfast.reroute.workload import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Orders, Workload

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

# Beyond this CP-SAT does not improve a list schedule within a minute on two cores.
MAX_OPERATIONS = 5_000
SEED = 20240514

Progress = Callable[[float, int, int], None]
"""Called on each better plan with seconds so far, its length, and the best bound proven."""


@dataclass(frozen=True)
class Effort:
    """How hard to look for a shorter schedule once the plain list schedules miss the bound."""

    seconds: float = 10.0
    """Wall-clock limit per schedule; 0 leaves the list schedule as it is."""
    num_threads: int = 2
    """CP-SAT search threads."""
    shuffles: int = 240
    """Most list schedules with shuffled micro-batches to try before the solver; milliseconds each for small jobs."""
    fuse: bool = True
    """Undo splits that do not pay; costs as much as the list schedules, and never changes the period."""


@dataclass(frozen=True)
class Solution:
    """Better orders, if any, and how the search ended."""

    orders: Orders | None
    status: str
    """optimal, feasible (time was up), unknown (time was up before the first plan), infeasible or not installed."""
    seconds: float


def solve(
    work: Workload,
    hint: Orders,
    times: Timing,
    *,
    split: bool,
    staggered: bool,
    floor: int,
    ceiling: int,
    effort: Effort,
    progress: Progress | None = None,
) -> Solution:
    """Look for orders shorter than `ceiling`, the hint's length, down to `floor`, a proven bound.

    Lengths are periods if `staggered`, else ticks until the last stage is done. `hint` and `times` must have
    interchangeable micro-batches in number order (see `relabel`), as the model assumes.
    """
    began = monotonic()
    try:
        from ortools.sat.python import cp_model
    except ImportError:  # an optional dependency; list schedules are good plans, so go on without
        return Solution(None, "not installed", 0.0)
    model = _Model(work, cp_model.CpModel(), split=split, staggered=staggered, floor=floor, ceiling=ceiling)
    model.build(hint, times)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = effort.seconds
    solver.parameters.num_workers = effort.num_threads
    solver.parameters.random_seed = SEED
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0

    class _Report(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if progress is not None:
                progress(monotonic() - began, int(self.objective_value), int(self.best_objective_bound))

    status = solver.solve(model.model, _Report())
    names = {cp_model.OPTIMAL: "optimal", cp_model.FEASIBLE: "feasible", cp_model.INFEASIBLE: "infeasible"}
    name = names.get(status, "unknown")
    orders = model.orders(solver) if name in ("optimal", "feasible") else None
    return Solution(orders, name, monotonic() - began)


class _Model:
    def __init__(
        self, work: Workload, model: cp_model.CpModel, *, split: bool, staggered: bool, floor: int, ceiling: int
    ) -> None:
        self.work = work
        self.model = model
        self.split = split
        self.staggered = staggered
        self.floor = floor
        self.ceiling = ceiling
        self.start: dict[int, cp_model.IntVar] = {}
        self.ticks: dict[int, int] = {}

    def build(self, hint: Orders, times: Timing) -> None:
        horizon = max(times.stage_end) + max(cost.optimizer for cost in self.work.job.costs)
        for cell in range(self.work.num_cells):
            cost = self.work.job.costs[cell // self.work.width]
            self._add(3 * cell + FORWARD, cost.forward, horizon)
            self._add(3 * cell + INPUT_GRAD, cost.input_grad if self.split else cost.backward, horizon)
            if self.split:
                self._add(3 * cell + WEIGHT_GRAD, cost.weight_grad, horizon)
        self._dependencies()
        self._one_at_a_time(horizon)
        self._memory(horizon)
        self._number_order()
        self._objective(horizon, times)
        for ops in hint.sequence.values():
            for op in ops:
                self.model.add_hint(self.start[op], times.start[op])

    def _add(self, op: int, ticks: int, horizon: int) -> None:
        self.start[op] = self.model.new_int_var(0, horizon - ticks, f"t{op}")
        self.ticks[op] = ticks

    def _after(self, op: int, earlier: int, lag: int = 0) -> None:
        self.model.add(self.start[op] >= self.start[earlier] + self.ticks[earlier] + lag)

    def _dependencies(self) -> None:
        width, costs, last = self.work.width, self.work.job.costs, self.work.job.shape.stages - 1
        for cell in range(self.work.num_cells):
            stage = cell // width
            if stage:
                self._after(3 * cell + FORWARD, 3 * (cell - width) + FORWARD, costs[stage - 1].transfer)
            if stage == last:
                self._after(3 * cell + INPUT_GRAD, 3 * cell + FORWARD)
            else:
                self._after(3 * cell + INPUT_GRAD, 3 * (cell + width) + INPUT_GRAD, costs[stage].transfer)
            if self.split:
                self._after(3 * cell + WEIGHT_GRAD, 3 * cell + INPUT_GRAD)

    def _one_at_a_time(self, horizon: int) -> None:
        intervals = defaultdict(list)
        for op, start in self.start.items():
            intervals[self.work.worker_of[op // 3]].append(
                self.model.new_fixed_size_interval_var(start, self.ticks[op], f"x{op}")
            )
        for mine in intervals.values():
            self.model.add_no_overlap(mine)

    def _memory(self, horizon: int) -> None:
        stages = self.work.job.shape.stages
        for worker, cells in self.work.cells_of().items():
            cost = self.work.job.costs[worker % stages]
            if cost.room is None or cost.room >= len(cells) * cost.held:
                continue
            intervals, demands = [], []
            for cell in cells:
                forward, gradient = 3 * cell + FORWARD, 3 * cell + INPUT_GRAD
                # One interval where both phases hold the same, because CP-SAT reasons better about fewer.
                whole = self.split and cost.weight_stash == cost.held
                until = 3 * cell + WEIGHT_GRAD if whole else gradient
                intervals.append(self._occupation(forward, until, horizon, f"a{cell}"))
                demands.append(cost.held)
                if self.split and not whole and cost.weight_stash:
                    intervals.append(self._stash(cell, horizon))
                    demands.append(cost.weight_stash)
            self.model.add_cumulative(intervals, demands, cost.room)

    def _occupation(self, first: int, until: int, horizon: int, name: str) -> cp_model.IntervalVar:
        size = self.model.new_int_var(0, horizon, f"{name}_ticks")
        return self.model.new_interval_var(self.start[first], size, self.start[until] + self.ticks[until], name)

    def _stash(self, cell: int, horizon: int) -> cp_model.IntervalVar:
        gradient, weight = 3 * cell + INPUT_GRAD, 3 * cell + WEIGHT_GRAD
        size = self.model.new_int_var(0, horizon, f"w{cell}_ticks")
        begin = self.start[gradient] + self.ticks[gradient]
        return self.model.new_interval_var(begin, size, self.start[weight] + self.ticks[weight], f"w{cell}")

    def _number_order(self) -> None:
        width, stages = self.work.width, self.work.job.shape.stages
        kinds = (FORWARD, INPUT_GRAD, WEIGHT_GRAD) if self.split else (FORWARD, INPUT_GRAD)
        for group in route_groups(self.work):
            for one, next_one in pairwise(group):
                for stage in range(stages):
                    for kind in kinds:
                        self._after(3 * (stage * width + next_one) + kind, 3 * (stage * width + one) + kind)

    def _objective(self, horizon: int, times: Timing) -> None:
        stages, costs = self.work.job.shape.stages, self.work.job.costs
        length = self.model.new_int_var(self.floor, self.ceiling, "length")
        self.model.add_hint(length, self.ceiling)
        final = WEIGHT_GRAD if self.split else INPUT_GRAD
        stage_end = [self.model.new_int_var(0, horizon, f"e{stage}") for stage in range(stages)]
        for stage, end in enumerate(stage_end):
            self.model.add_hint(end, times.stage_end[stage])
        for op, start in self.start.items():
            if op % 3 == final:
                self.model.add(stage_end[op // 3 // self.work.width] >= start + self.ticks[op])
        if not self.staggered:
            for end in stage_end:
                self.model.add(length >= end)
        else:
            for worker, cells in self.work.cells_of().items():
                stage = worker % stages
                first = self.model.new_int_var(0, horizon, f"b{worker}")
                self.model.add_hint(first, times.first_start[worker])
                for cell in cells:
                    self.model.add(first <= self.start[3 * cell + FORWARD])
                self.model.add(length >= stage_end[stage] + costs[stage].optimizer - first)
        self.model.minimize(length)

    def orders(self, solver: cp_model.CpSolver) -> Orders:
        sequence: dict[int, list[int]] = {worker: [] for worker in self.work.workers}
        for op in sorted(self.start, key=lambda op: solver.value(self.start[op])):
            sequence[self.work.worker_of[op // 3]].append(op)
        return Orders(sequence, bytearray((0 if self.split else 1,)) * self.work.num_cells)
