"""The search for one short schedule: bound, list schedules, shuffled ones, exact solver, fusing (spec section 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic

from holdfast.reroute.bound import bounds
from holdfast.reroute.fusing import fuse_where_free
from holdfast.reroute.greedy import Rule, list_schedule
from holdfast.reroute.relabel import in_number_order
from holdfast.reroute.schedule import Schedule
from holdfast.reroute.shape import Job
from holdfast.reroute.solver import MAX_OPERATIONS, Effort, solve
from holdfast.reroute.timing import Clock, Timing
from holdfast.reroute.workload import INPUT_GRAD, Orders, Workload

# In units of 1F1B's own warm-up. Without a window comes first: it is shortest most often, and the paper's choice.
WINDOWS: tuple[float | None, ...] = (None, 1.0, 1.5, 2.0, 3.0)
# Micro-batches are shuffled by up to so many places: one breaks ties between pipelines, more changes their order.
SHUFFLE_PLACES = (2.5, 1.0, 5.0)
# How many operations the plain list schedules of one search may place, and then the shuffled ones: the largest jobs
# get one of each, a second apiece in pure Python; jobs of a few hundred operations get all.
OPERATIONS_TO_PLACE = 100_000
# How many operations the rivals for the fewest splits may have together.
OPERATIONS_TO_FUSE = 6_000
# Fusing and looking for better first starts cost dozens of timings; larger jobs, tried, had nothing to gain by them.
MAX_OPERATIONS_TO_TIGHTEN = 30_000

Notice = Callable[[str, float, int, int], None]
"""Called with the step's name, its seconds so far, the best length yet (0: none) and the bound."""


@dataclass(frozen=True)
class SearchReport:
    """How one schedule was found. Lengths are periods if it is staggered, else without the optimizer step."""

    found_by: str
    """greedy (a plain list schedule), earlier step (of the plan, nothing shorter was found), shuffled (a list schedule
    with shuffled micro-batches) or cp-sat."""
    greedy: int
    """Length of the best plain list schedule."""
    bound: int
    """Length that no plan can beat."""
    status: str
    """bound (it is met), optimal (proven), feasible or unknown (time was up), skipped (the solver was not asked),
    not installed (OR-Tools is missing)."""
    seconds: float

    @property
    def is_shortest(self) -> bool:
        """No shorter schedule of this kind exists."""
        return self.status in ("bound", "optimal")

    @property
    def label(self) -> str:
        """For tables: who found it, with a star if it is proven shortest."""
        return self.found_by + ("*" if self.is_shortest else "")


@dataclass(frozen=True)
class _Listed:
    orders: Orders
    synchronous: int
    staggered: int

    def length(self, staggered: bool) -> int:
        return self.staggered if staggered else self.synchronous


class Search:
    """Looks for short schedules of one job; keeps the lists that all steps share."""

    def __init__(self, job: Job, effort: Effort, notice: Notice | None = None) -> None:
        self.job = job
        self.effort = effort
        self.notice = notice
        self.work = Workload(job)
        self.clock = Clock(self.work)
        self.bounds = bounds(job)
        self._kept: dict[Rule, _Listed] = {}

    def run(
        self, name: str, known: Iterable[Orders] = (), *, split: bool, staggered: bool, executed: bool = True
    ) -> tuple[Schedule, SearchReport]:
        """The shortest schedule found, never longer than any of the `known` orders.

        One that is not `executed`, but only shown for comparison, does not get the solver.
        """
        began = monotonic()
        floor = self.bounds.staggered if staggered else self.bounds.decoupled if split else self.bounds.rerouted
        self._tell(name, began, 0, floor)
        listed = [self._list(rule) for rule in self._plain_rules(split)]
        plain = [one.orders for one in listed]
        candidates = plain + [_split(orders) if split else orders for orders in known]
        lengths = [one.length(staggered) for one in listed]
        lengths += [self._length(orders, staggered) for orders in candidates[len(plain) :]]
        greedy, length = min(lengths[: len(plain)]), min(lengths)
        orders = candidates[lengths.index(length)]
        found_by = "greedy" if lengths.index(length) < len(plain) else "earlier step"
        status = "bound"
        if length > floor:
            shuffled = self._shuffle(length, floor, split, staggered)
            if shuffled is not None:
                orders, length, found_by = *shuffled, "shuffled"
            self._tell(name, began, length, floor)
        if length > floor:
            status = "skipped"
            if executed and self.effort.seconds > 0 and self.job.shape.num_operations <= MAX_OPERATIONS:
                better, status = self._solve(name, began, orders, length, floor, split, staggered)
                if better is not None:
                    orders, length, found_by = better, self._length(better, staggered), "cp-sat"
        rivals = [orders, *(candidate for candidate, ticks in zip(plain, lengths, strict=False) if ticks == length)]
        if split and self.effort.fuse and self.job.shape.num_operations <= MAX_OPERATIONS_TO_TIGHTEN:
            schedule = self._least_split(rivals, length, staggered)
        else:
            schedule = self.schedule(in_number_order(self.work, orders), length, staggered)
        return schedule, SearchReport(found_by, greedy, floor, status, monotonic() - began)

    def schedule(self, orders: Orders, floor: int, staggered: bool) -> Schedule:
        """Orders with their times; staggered ones with the shortest period, down to `floor`."""
        tighten = staggered and self.job.shape.num_operations <= MAX_OPERATIONS_TO_TIGHTEN
        timing = self.clock.tightest(orders, floor)[0] if tighten else self._times(orders)
        return Schedule(self.work, orders, timing, synchronous=not staggered)

    def listed(self, rule: Rule) -> Orders:
        """The list schedule of a rule."""
        return self._list(rule).orders

    def _list(self, rule: Rule) -> _Listed:
        """The list schedule of a rule; kept, because the steps of a plan try the same rules."""
        if rule not in self._kept:
            orders = list_schedule(self.work, rule)
            timing = self._times(orders)
            self._kept[rule] = _Listed(orders, max(timing.stage_end), self.clock.staggered_period(timing))
        return self._kept[rule]

    def _plain_rules(self, split: bool) -> list[Rule]:
        affordable = max(1, OPERATIONS_TO_PLACE // self.job.shape.num_operations)
        rules = [Rule(split=split, window=window) for window in WINDOWS]
        rules += [Rule(split=split, window=window, by_arrival=True) for window in (None, 1.0)]
        return rules[:affordable]

    def _shuffle(self, length: int, floor: int, split: bool, staggered: bool) -> tuple[Orders, int] | None:
        """The shortest of many shuffled list schedules, if shorter than `length`."""
        if self.job.shape.pipelines == 1:
            return None  # all micro-batches are interchangeable
        best = None
        affordable = max(1, OPERATIONS_TO_PLACE // self.job.shape.num_operations)
        for attempt in range(min(self.effort.shuffles, affordable)):
            places = SHUFFLE_PLACES[attempt % len(SHUFFLE_PLACES)]
            # Half of the attempts without a window, the rest with each of the windows in turn.
            window = WINDOWS[attempt // 6 % len(WINDOWS)] if attempt // 3 % 2 else None
            tried = self._list(Rule(split=split, window=window, shuffle_places=places, seed=attempt))
            ticks = tried.length(staggered)
            if ticks < length:
                best, length = (tried.orders, ticks), ticks
                if length <= floor:
                    break
        return best

    def _solve(
        self, name: str, began: float, orders: Orders, length: int, floor: int, split: bool, staggered: bool
    ) -> tuple[Orders | None, str]:
        hint = in_number_order(self.work, orders)
        times = self.clock.tightest(hint, floor)[0] if staggered else self._times(hint)
        solution = solve(
            self.work,
            hint,
            times,
            split=split,
            staggered=staggered,
            floor=floor,
            ceiling=length,
            effort=self.effort,
            progress=lambda seconds, best, bound: self._tell(name, began, best, bound),
        )
        if solution.orders is None or self._length(solution.orders, staggered) >= length:
            return None, solution.status
        return solution.orders, solution.status

    def _least_split(self, rivals: list[Orders], length: int, staggered: bool) -> Schedule:
        """Among orders of the same length: fewest split backwards, then least memory (the objective of 5.4)."""
        affordable = max(1, OPERATIONS_TO_FUSE // self.job.shape.num_operations)
        schedules = []
        for orders in rivals[:affordable]:
            tidy = in_number_order(self.work, orders)
            fused = fuse_where_free(self.work, tidy, lambda tried: self._keeps(tried, length, staggered))
            schedules.append(self.schedule(fused, length, staggered))
        return min(schedules, key=lambda found: (found.num_split, sum(found.peak_memory.values())))

    def _keeps(self, orders: Orders, length: int, staggered: bool) -> bool:
        return self._length(orders, staggered) <= length

    def _length(self, orders: Orders, staggered: bool) -> int:
        timing = self._times(orders)
        return self.clock.staggered_period(timing) if staggered else max(timing.stage_end)

    def _times(self, orders: Orders) -> Timing:
        timing = self.clock.earliest(orders)
        assert timing is not None, "list schedules and solver give orders without circles"
        return timing

    def _tell(self, name: str, began: float, best: int, bound: int) -> None:
        if self.notice is not None:
            self.notice(name, monotonic() - began, best, bound)


def _split(orders: Orders) -> Orders:
    """The same orders with every backward in two operations, one right after the other: never longer."""
    # the number after an input gradient's is its weight gradient's
    sequence = {
        worker: [
            part for op in ops for part in ((op, op + 1) if op % 3 == INPUT_GRAD and orders.fused[op // 3] else (op,))
        ]
        for worker, ops in orders.sequence.items()
    }
    return Orders(sequence, bytearray(len(orders.fused)))
