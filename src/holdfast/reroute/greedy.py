"""List schedules: every worker, whenever it is free, takes the best operation that is ready.

An input gradient comes first, because other stages wait for it; then a forward, if memory and the warm-up window
allow; then a postponed weight gradient (spec section 10). Nothing waits for a better operation to appear. Memory is
taken stage by stage in pipeline order, so workers can never wait for each other in a circle.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from holdfast.reroute.workload import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Orders, Workload


@dataclass(frozen=True)
class Rule:
    """One way to choose among what is ready."""

    split: bool
    """Backward in two operations (decoupled), or in one."""
    window: float | None = None
    """Most micro-batches between forward and input gradient on a worker of stage s: window x (S - s), where 1 is
    1F1B's own warm-up; None for no limit. A helper's window grows with its work."""
    weights_before_forwards: bool = False
    """Prefer a postponed weight gradient to a forward once the first input gradient has come."""
    by_arrival: bool = False
    """Take micro-batches as they arrive instead of by number."""
    shuffle_places: float = 0.0
    """Shuffle micro-batches by up to so many places."""
    seed: int = 0

    def windows(self, work: Workload) -> dict[int, int]:
        shape = work.job.shape
        cells = work.cells_of()
        if self.window is None:
            return {worker: len(mine) + 1 for worker, mine in cells.items()}
        windows = {}
        for worker, mine in cells.items():
            extra = -(-len(mine) // shape.microbatches)
            windows[worker] = max(1, round(self.window * (shape.stages - worker % shape.stages))) * max(1, extra)
        return windows


def list_schedule(work: Workload, rule: Rule) -> Orders:
    """Run the rule over one iteration and return who did what in which order."""
    return _Run(work, rule).orders()


class _Run:
    def __init__(self, work: Workload, rule: Rule) -> None:
        self.work = work
        self.rule = rule
        self.window = rule.windows(work)
        self.rank = _ranks(work, rule)
        self.sequence: dict[int, list[int]] = {worker: [] for worker in work.workers}
        self.backwards: dict[int, list[tuple[float, int]]] = {worker: [] for worker in work.workers}
        self.forwards: dict[int, list[tuple[float, int]]] = {worker: [] for worker in work.workers}
        self.weights: dict[int, deque[int]] = {worker: deque() for worker in work.workers}
        self.in_flight = dict.fromkeys(work.workers, 0)
        stages = work.job.shape.stages
        endless = 1 << 62
        rooms = [endless if cost.room is None else cost.room for cost in work.job.costs]
        self.room = {worker: rooms[worker % stages] for worker in work.workers}
        self.busy = dict.fromkeys(work.workers, False)
        self.held = {worker: work.job.costs[worker % stages].held for worker in work.workers}
        self.stash = {worker: work.job.costs[worker % stages].weight_stash for worker in work.workers}

    def orders(self) -> Orders:
        work, stages, width = self.work, self.work.job.shape.stages, self.work.width
        costs = work.job.costs
        last = stages - 1
        split = self.rule.split
        ticks_of = [(cost.forward, cost.input_grad if split else cost.backward, cost.weight_grad) for cost in costs]
        worker_of, rank, forwards, backwards = work.worker_of, self.rank, self.forwards, self.backwards
        # (time, number, operation or ~operation): an operation ends, or ~: its result has crossed to the next stage
        events: list[tuple[int, int, int]] = []
        number = 0
        touched: set[int] = set()
        for cell in range(width):
            heappush(forwards[worker_of[cell]], (rank(cell, 0), cell))
            touched.add(worker_of[cell])
        now = 0
        while True:
            for worker in sorted(touched):
                op = self._choose(worker)
                if op is not None:
                    number += 1
                    heappush(events, (now + ticks_of[worker % stages][op % 3], number, op))
            if not events:
                break
            touched.clear()
            now = events[0][0]
            while events and events[0][0] == now:
                _, _, op = heappop(events)
                if op < 0:
                    op = ~op
                else:
                    worker = worker_of[op // 3]
                    self._finish(worker, op)
                    touched.add(worker)
                    cell, kind = divmod(op, 3)
                    stage = cell // width
                    if kind == WEIGHT_GRAD or (kind == INPUT_GRAD and stage == 0):
                        continue
                    crossing = 0
                    if kind == FORWARD and stage < last:
                        crossing = costs[stage].transfer
                    elif kind == INPUT_GRAD:
                        crossing = costs[stage - 1].transfer
                    if crossing:
                        number += 1
                        heappush(events, (now + crossing, number, ~op))
                        continue
                cell, kind = divmod(op, 3)
                if kind == FORWARD:
                    if cell // width == last:
                        heappush(backwards[worker_of[cell]], (rank(cell, now), cell))
                        continue
                    cell += width
                    heappush(forwards[worker_of[cell]], (rank(cell, now), cell))
                else:
                    cell -= width
                    heappush(backwards[worker_of[cell]], (rank(cell, now), cell))
                touched.add(worker_of[cell])
        fused = bytearray(0 if split else 1 for _ in range(work.num_cells))
        return Orders(self.sequence, fused)

    def _choose(self, worker: int) -> int | None:
        if self.busy[worker]:
            return None
        op = None
        if self.backwards[worker]:
            _, cell = heappop(self.backwards[worker])
            op = 3 * cell + INPUT_GRAD
        else:
            may_forward = (
                self.forwards[worker]
                and self.in_flight[worker] < self.window[worker]
                and self.room[worker] >= self.held[worker]
            )
            weights = self.weights[worker]
            if may_forward and not (weights and self.rule.weights_before_forwards):
                _, cell = heappop(self.forwards[worker])
                self.in_flight[worker] += 1
                self.room[worker] -= self.held[worker]
                op = 3 * cell + FORWARD
            elif weights:
                op = 3 * weights.popleft() + WEIGHT_GRAD
        if op is not None:
            self.busy[worker] = True
            self.sequence[worker].append(op)
        return op

    def _finish(self, worker: int, op: int) -> None:
        cell, kind = divmod(op, 3)
        self.busy[worker] = False
        if kind == WEIGHT_GRAD:
            self.room[worker] += self.stash[worker]
        elif kind == INPUT_GRAD:
            self.in_flight[worker] -= 1
            if self.rule.split:
                self.weights[worker].append(cell)
                self.room[worker] += self.held[worker] - self.stash[worker]
            else:
                self.room[worker] += self.held[worker]


def _ranks(work: Workload, rule: Rule) -> Callable[[int, int], float]:
    """Smaller runs first. By number: micro-batch 0 of all pipelines, then 1, as they would arrive without failures."""
    if rule.by_arrival:
        return lambda cell, now: now
    microbatches, pipelines, width = work.job.shape.microbatches, work.job.shape.pipelines, work.width
    places: list[float] = [(u % microbatches) + (u // microbatches) / pipelines for u in range(width)]
    if rule.shuffle_places:
        shuffle = random.Random(rule.seed)
        places = [place + shuffle.uniform(0, rule.shuffle_places) for place in places]
    return lambda cell, now: places[cell % width]
