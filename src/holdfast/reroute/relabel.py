"""Put interchangeable micro-batches back into number order.

Micro-batches of one pipeline that take the same route are interchangeable: if their starts of one kind at one stage
are handed out again in ascending order, every dependency still holds (sorting two lists that are ordered pair by pair
keeps them so) and memory does not change. The exact solver assumes this order (the symmetry line of spec 5.4), and
plans are easier to read with it.
"""

from __future__ import annotations

from collections import defaultdict

from holdfast.reroute.workload import Orders, Workload


def route_groups(work: Workload) -> list[list[int]]:
    """Micro-batches (numbers within J * M, ascending) of one pipeline that meet the same workers at every stage."""
    stages, width = work.job.shape.stages, work.width
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number in range(width):
        pipeline, _ = work.microbatch_of(number)
        met = tuple(work.worker_of[stage * width + number] for stage in range(stages))
        groups[(pipeline, *met)].append(number)
    return list(groups.values())


def in_number_order(work: Workload, orders: Orders) -> Orders:
    """The same orders with interchangeable micro-batches renumbered; all backwards must be split, or none."""
    width = work.width
    group_of = {number: index for index, group in enumerate(route_groups(work)) for number in group}
    sequence = {}
    for worker, ops in orders.sequence.items():
        waiting: dict[tuple[int, int], list[int]] = defaultdict(list)
        for op in ops:
            waiting[group_of[op // 3 % width], op % 3].append(op)
        turn = {key: iter(sorted(members)) for key, members in waiting.items()}
        sequence[worker] = [next(turn[group_of[op // 3 % width], op % 3]) for op in ops]
    return Orders(sequence, bytearray(orders.fused))
