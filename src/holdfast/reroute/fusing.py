"""Undo splits that do not pay.

A split backward costs memory until its weight gradient runs, and about 5 % of time on real hardware (spec section 9),
so the paper splits selectively, per micro-batch. Here every backward starts out split; each is fused again if the
period survives it. Fusing takes the weight gradient to its input gradient's place, so memory can only fall.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.reroute.workload import INPUT_GRAD, WEIGHT_GRAD, Orders, Workload

# A trial times all operations once, a microsecond each: this much keeps fusing below a second.
OPERATIONS_TO_SPEND = 400_000
FEWEST_TRIALS = 8


def fuse_where_free(work: Workload, orders: Orders, keeps_period: Callable[[Orders], bool]) -> Orders:
    """Fuse as many backwards as `keeps_period` allows; tries whole groups first and halves those that fail."""
    trials = max(FEWEST_TRIALS, OPERATIONS_TO_SPEND // max(1, 3 * work.num_cells))
    kept = orders
    groups = _groups(work, orders)
    while groups and trials > 0:
        group = [cell for cell in groups.pop() if not kept.fused[cell]]
        if not group:
            continue
        trials -= 1
        tried = _fused(work, kept, group)
        if keeps_period(tried):
            kept = tried
        elif len(group) > 1:
            middle = len(group) // 2
            groups += [group[middle:], group[:middle]]
    return kept


def _groups(work: Workload, orders: Orders) -> list[list[int]]:
    """Cells from the least to the most promising, as a stack: those that run I and W back to back come off first.

    Groups are per stage, stage 0 first, because nobody waits for its gradients; and within a stage by the distance
    between I and W, because a weight gradient that was postponed far was postponed for a reason.
    """
    stages, width = work.job.shape.stages, work.width
    distance = {}
    for ops in orders.sequence.values():
        place = {op: index for index, op in enumerate(ops)}
        for op in ops:
            if op % 3 == WEIGHT_GRAD:
                distance[op // 3] = place[op] - place[op - WEIGHT_GRAD + INPUT_GRAD]
    groups = []
    for stage in range(stages):
        mine = [cell for cell in range(stage * width, (stage + 1) * width) if cell in distance]
        near = [cell for cell in mine if distance[cell] == 1]
        far = sorted((cell for cell in mine if distance[cell] > 1), key=lambda cell: distance[cell])
        groups += [(1, -stage, near), (0, -stage, far)]
    return [cells for _, _, cells in sorted(groups)]


def _fused(work: Workload, orders: Orders, cells: list[int]) -> Orders:
    tried = orders.copy()
    for cell in cells:
        tried.fused[cell] = 1
    for worker in {work.worker_of[cell] for cell in cells}:
        tried.sequence[worker] = [
            op for op in tried.sequence[worker] if op % 3 != WEIGHT_GRAD or not tried.fused[op // 3]
        ]
    return tried
