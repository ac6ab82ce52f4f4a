from __future__ import annotations

import pytest
from hypothesis import given, settings
from pipeline_jobs import jobs

from holdfast.reroute import Job, uniform_job
from holdfast.reroute.greedy import Rule, list_schedule
from holdfast.reroute.one_forward_one_backward import one_forward_one_backward
from holdfast.reroute.timing import Clock
from holdfast.reroute.workload import INPUT_GRAD, Orders, Workload


def relaxed_starts(work: Workload, orders: Orders) -> dict[int, int]:
    """The slow way: raise every start until order and data are satisfied."""
    costs, width, last = work.job.costs, work.width, work.job.shape.stages - 1
    start = {op: 0 for ops in orders.sequence.values() for op in ops}

    def ticks(op: int) -> int:
        cost = costs[op // 3 // width]
        fused = op % 3 == INPUT_GRAD and orders.fused[op // 3]
        return cost.backward if fused else (cost.forward, cost.input_grad, cost.weight_grad)[op % 3]

    changed = True
    while changed:
        changed = False
        for ops in orders.sequence.values():
            for place, op in enumerate(ops):
                cell, kind = divmod(op, 3)
                stage = cell // width
                least = start[ops[place - 1]] + ticks(ops[place - 1]) if place else 0
                if kind == 0 and stage:
                    before = op - 3 * width
                    least = max(least, start[before] + ticks(before) + costs[stage - 1].transfer)
                if kind == INPUT_GRAD:
                    before = op - 1 if stage == last else op + 3 * width
                    crossing = 0 if stage == last else costs[stage].transfer
                    least = max(least, start[before] + ticks(before) + crossing)
                if least > start[op]:
                    start[op], changed = least, True
    return start


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_earliest_times_agree_with_relaxation(job: Job) -> None:
    work = Workload(job)
    for rule in (Rule(split=True), Rule(split=False, window=1.0)):
        orders = list_schedule(work, rule)
        timing = Clock(work).earliest(orders)
        assert timing is not None
        assert {op: timing.start[op] for op in relaxed_starts(work, orders)} == relaxed_starts(work, orders)


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_the_tightest_period_is_possible_and_one_less_is_not(job: Job) -> None:
    work = Workload(job)
    clock = Clock(work)
    orders = list_schedule(work, Rule(split=True))
    timing, period = clock.tightest(orders, floor=0)
    assert clock.staggered_period(timing) == period
    first = clock.earliest(orders)
    assert first is not None
    assert period <= clock.staggered_period(first)
    assert clock.settle(orders, period) is not None
    assert clock.settle(orders, period - 1) is None


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (4, 6), (4, 8), (8, 3), (16, 64)])
def test_one_forward_one_backward_has_its_textbook_length(stages: int, microbatches: int) -> None:
    work = Workload(uniform_job(stages, 2, microbatches))
    timing = Clock(work).earliest(one_forward_one_backward(work))
    assert timing is not None
    assert max(timing.stage_end) == 3 * (microbatches + stages - 1)


def test_orders_that_wait_for_each_other_are_noticed() -> None:
    work = Workload(uniform_job(2, 1, 1))
    orders = one_forward_one_backward(work)
    orders.sequence[0].reverse()
    assert Clock(work).earliest(orders) is None
