"""When everything happens if each worker keeps its order: the earliest times, and the shortest period they allow.

Staggered (spec 4 and 5.4): the optimizer step of stage s starts when the stage's last weight gradient is done on all
its live workers, takes t_O, and only then may the stage's workers start the next iteration. No other stage waits.
So a period T is possible if, with every iteration like the one before, for each worker w of each stage s

    first start on w  >=  end of stage s  +  t_O  -  T

which are difference constraints: the least solution is found by raising first starts until nothing changes, and T is
possible if that ends. Synchronous: everybody waits for the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.reroute.workload import FORWARD, INPUT_GRAD, Orders, Workload

NOT_RUN = -1


@dataclass
class Timing:
    """Start and end of every operation; NOT_RUN where a weight gradient is part of a fused backward."""

    start: list[int]
    end: list[int]
    stage_end: list[int]
    """Per stage: when its last operation ends, which is when its optimizer step may start."""
    first_start: dict[int, int]
    """Per worker: when its first operation starts."""


class Clock:
    """Times orders of one workload; keeps the dependency lists, which do not change between orders."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        shape, costs, width = work.job.shape, work.job.costs, work.width
        last = shape.stages - 1
        self._needs: list[int] = []
        self._lag: list[int] = []
        self._feeds: list[int] = []
        for cell in range(work.num_cells):
            stage = cell // width
            above, below = costs[stage - 1].transfer, costs[stage].transfer
            # forward needs the previous stage's forward; input gradient the next stage's, or the forward at the end
            self._needs += (
                3 * (cell - width) + FORWARD if stage else NOT_RUN,
                3 * (cell + width) + INPUT_GRAD if stage < last else 3 * cell + FORWARD,
                3 * cell + INPUT_GRAD,
            )
            self._lag += (above if stage else 0, below if stage < last else 0, 0)
            self._feeds += (
                3 * (cell + width) + FORWARD if stage < last else NOT_RUN,
                3 * (cell - width) + INPUT_GRAD if stage else NOT_RUN,
                NOT_RUN,
            )

    def earliest(self, orders: Orders, releases: dict[int, int] | None = None) -> Timing | None:
        """Start everything as soon as order and data allow; None if the orders wait for each other in a circle."""
        work, costs, stages = self.work, self.work.job.costs, self.work.job.shape.stages
        needs, lag, feeds, worker_of = self._needs, self._lag, self._feeds, work.worker_of
        sequence, fused = orders.sequence, orders.fused
        start = [NOT_RUN] * (3 * work.num_cells)
        end = [NOT_RUN] * (3 * work.num_cells)
        position = dict.fromkeys(sequence, 0)
        free = {worker: releases.get(worker, 0) if releases else 0 for worker in sequence}
        durations = [(cost.forward, cost.input_grad, cost.weight_grad, cost.backward) for cost in costs]
        to_visit = list(sequence)
        while to_visit:
            worker = to_visit.pop()
            ops, at, now = sequence[worker], position[worker], free[worker]
            ticks = durations[worker % stages]
            while at < len(ops):
                op = ops[at]
                need = needs[op]
                ready = 0
                if need >= 0:
                    ready = end[need]
                    if ready < 0:
                        break
                    ready += lag[op]
                if ready > now:
                    now = ready
                start[op] = now
                cell, kind = divmod(op, 3)
                now += ticks[3 if kind == INPUT_GRAD and fused[cell] else kind]
                end[op] = now
                at += 1
                fed = feeds[op]
                if fed >= 0:
                    other = worker_of[fed // 3]
                    waiting = sequence[other]
                    place = position[other]
                    if place < len(waiting) and waiting[place] == fed:
                        to_visit.append(other)
            position[worker], free[worker] = at, now
        if any(position[worker] < len(ops) for worker, ops in sequence.items()):
            return None
        return self._summary(orders, start, end)

    def _summary(self, orders: Orders, start: list[int], end: list[int]) -> Timing:
        stages = self.work.job.shape.stages
        stage_end = [0] * stages
        first_start = {}
        for worker, ops in orders.sequence.items():
            if ops:
                stage = worker % stages
                stage_end[stage] = max(stage_end[stage], end[ops[-1]])
                first_start[worker] = start[ops[0]]
        return Timing(start, end, stage_end, first_start)

    def staggered_period(self, timing: Timing) -> int:
        """The period of exactly these times, each stage stepping by itself."""
        costs, stages = self.work.job.costs, self.work.job.shape.stages
        return max(
            timing.stage_end[worker % stages] + costs[worker % stages].optimizer - first
            for worker, first in timing.first_start.items()
        )

    def synchronous_period(self, timing: Timing) -> int:
        """The period if all stages step together, after the last of them."""
        return max(timing.stage_end) + max(cost.optimizer for cost in self.work.job.costs)

    def tightest(self, orders: Orders, floor: int) -> tuple[Timing, int]:
        """The times with the shortest staggered period of these orders; `floor` is a period known to be a bound."""
        best = self.earliest(orders)
        if best is None:
            raise ValueError("orders wait for each other in a circle")
        best_period = self.staggered_period(best)
        low = floor
        while low < best_period:
            tried = (low + best_period) // 2
            timing = self.settle(orders, tried)
            if timing is None:
                low = tried + 1
            else:
                best, best_period = timing, self.staggered_period(timing)
        return best, best_period

    def settle(self, orders: Orders, period: int) -> Timing | None:
        """Raise first starts until every stage is done a period later; None if they would rise for ever."""
        costs, stages = self.work.job.costs, self.work.job.shape.stages
        releases: dict[int, int] = {}
        # A feasible system settles after at most one round per constraint of a cycle, and a cycle visits a stage once.
        for _ in range(stages + 2):
            timing = self.earliest(orders, releases)
            if timing is None:
                return None
            raised = {
                worker: timing.stage_end[worker % stages] + costs[worker % stages].optimizer - period
                for worker in timing.first_start
            }
            if all(timing.first_start[worker] >= release for worker, release in raised.items()):
                return timing
            releases = {worker: max(timing.first_start[worker], release) for worker, release in raised.items()}
        return None
