"""The validator rejects broken plans, each for its own reason, and accepts good ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.errors import InvalidPlan
from holdfast.reroute import Effort, Job, Operation, StageCost, Worker, plan, require_valid, uniform_job, violations

Operations = list[Operation]
JOB = uniform_job(4, 3, 6, [(1, 2)], memory_limit=9)


@pytest.fixture(scope="module")
def good() -> Operations:
    return list(plan(JOB, Effort(seconds=0)).staggered.operations())


def find(operations: Operations, **wanted: object) -> int:
    return next(
        index
        for index, operation in enumerate(operations)
        if all(getattr(operation, name) == value for name, value in wanted.items())
    )


def change(operations: Operations, index: int, **new: object) -> Operations:
    return [*operations[:index], operations[index]._replace(**new), *operations[index + 1 :]]


def without(operations: Operations, index: int) -> Operations:
    return operations[:index] + operations[index + 1 :]


def missing_forward(ops: Operations) -> Operations:
    return without(ops, find(ops, op="F", pipeline=0, microbatch=3))


def missing_weight_gradient(ops: Operations) -> Operations:
    return without(ops, find(ops, op="W"))


def missing_optimizer(ops: Operations) -> Operations:
    return without(ops, find(ops, op="O", worker=Worker(2, 1)))


def done_twice(ops: Operations) -> Operations:
    again = ops[find(ops, op="F", pipeline=0, microbatch=0)]
    return [*ops, again._replace(start=1000)]


def fused_and_split(ops: Operations) -> Operations:
    gradient = ops[find(ops, op="I")]
    return [*ops, gradient._replace(op="B", start=1000, duration=2)]


def on_a_dead_worker(ops: Operations) -> Operations:
    return [
        op._replace(worker=Worker(1, 2)) if op.worker.stage == 2 and (op.pipeline, op.microbatch) == (1, 0) else op
        for op in ops
    ]


def on_an_unknown_worker(ops: Operations) -> Operations:
    return change(ops, find(ops, op="F", pipeline=0, microbatch=0), worker=Worker(7, 0))


def forward_before_its_input(ops: Operations) -> Operations:
    index = find(ops, op="F", worker=Worker(0, 3), microbatch=0)
    return change(ops, index, start=ops[index].start - 1)


def gradient_before_the_next_stage(ops: Operations) -> Operations:
    return change(ops, find(ops, op="B", worker=Worker(0, 0), pipeline=0, microbatch=0), start=5)


def weight_before_input_gradient(ops: Operations) -> Operations:
    index = find(ops, op="W")
    gradient = find(ops, op="I", pipeline=ops[index].pipeline, microbatch=ops[index].microbatch)
    return change(ops, index, start=ops[gradient].start - 1)


def two_at_once(ops: Operations) -> Operations:
    one = find(ops, op="W", worker=Worker(0, 2))
    return change(ops, one, start=ops[one].start + 1)


def microbatch_torn_apart(ops: Operations) -> Operations:
    index = find(ops, op="W", worker=Worker(0, 2))
    return change(ops, index, worker=Worker(2, 2))


def optimizer_too_early(ops: Operations) -> Operations:
    index = find(ops, op="O", worker=Worker(0, 2))
    return change(ops, index, start=ops[index].start - 2)


def too_short(ops: Operations) -> Operations:
    return change(ops, find(ops, op="F", worker=Worker(0, 2)), duration=0)


def before_the_start(ops: Operations) -> Operations:
    return change(ops, find(ops, op="F", worker=Worker(0, 0), microbatch=0), start=-1)


def an_unknown_microbatch(ops: Operations) -> Operations:
    return change(ops, find(ops, op="F", pipeline=0, microbatch=5), microbatch=6)


def an_unknown_operation(ops: Operations) -> Operations:
    return change(ops, find(ops, op="W"), op="X")


BROKEN: dict[Callable[[Operations], Operations], str] = {
    missing_forward: "missing operation",
    missing_weight_gradient: "missing operation",
    missing_optimizer: "missing operation",
    done_twice: "more than once",
    fused_and_split: "more than once",
    on_a_dead_worker: "dead worker",
    on_an_unknown_worker: "unknown worker",
    forward_before_its_input: "dependency",
    gradient_before_the_next_stage: "dependency",
    weight_before_input_gradient: "dependency",
    two_at_once: "overlap",
    microbatch_torn_apart: "split over workers",
    optimizer_too_early: "early optimizer",
    too_short: "wrong duration",
    before_the_start: "before the iteration",
    an_unknown_microbatch: "unknown micro-batch",
    an_unknown_operation: "unknown operation",
}


def test_the_plan_to_be_broken_is_good(good: Operations) -> None:
    assert violations(JOB, good, 30, synchronous=False) == []


@pytest.mark.parametrize(("break_it", "rule"), BROKEN.items(), ids=[break_it.__name__ for break_it in BROKEN])
def test_broken_plans_are_rejected_for_the_right_reason(
    good: Operations, break_it: Callable[[Operations], Operations], rule: str
) -> None:
    assert rule in {violation.rule for violation in violations(JOB, break_it(good), 30, synchronous=False)}


def test_a_period_that_is_too_short_is_rejected(good: Operations) -> None:
    assert {violation.rule for violation in violations(JOB, good, 29, synchronous=False)} == {"period"}


def test_a_staggered_plan_is_not_a_synchronous_one(good: Operations) -> None:
    assert "early optimizer" in {violation.rule for violation in violations(JOB, good, 30, synchronous=True)}


def test_memory_above_the_limit_is_rejected(good: Operations) -> None:
    tight = uniform_job(4, 3, 6, [(1, 2)], memory_limit=4)
    assert {violation.rule for violation in violations(tight, good, 30, synchronous=False)} == {"memory"}


def test_the_stash_of_a_postponed_weight_gradient_counts() -> None:
    """One micro-batch: forward holds 1, waiting for its weight gradient 3, and the limit is 2."""
    job = uniform_job(1, 1, 1, cost=StageCost(activation=1, weight_stash=3))
    worker = Worker(0, 0)
    ops = [Operation(worker, kind, 0, 0, start, 1) for kind, start in (("F", 0), ("I", 1), ("W", 5))]
    ops.append(Operation(worker, "O", 0, None, 6, 3))
    assert violations(job, ops, 9, synchronous=False) == []
    tight = Job(job.shape, (StageCost(activation=1, weight_stash=3, memory_limit=3),))
    assert violations(tight, ops, 9, synchronous=False) == []
    over = object.__new__(Job)  # Job itself refuses a limit below one micro-batch, the validator must not rely on it
    for name, value in (("shape", job.shape), ("failed", frozenset())):
        object.__setattr__(over, name, value)
    object.__setattr__(over, "costs", (StageCost(activation=1, weight_stash=3, memory_limit=2),))
    assert [violation.rule for violation in violations(over, ops, 9, synchronous=False)] == ["memory"]


def test_a_fused_backward_hands_its_gradient_on_only_at_its_end() -> None:
    job = uniform_job(2, 1, 1)
    first, last = Worker(0, 0), Worker(0, 1)
    ops = [
        Operation(first, "F", 0, 0, 0, 1),
        Operation(last, "F", 0, 0, 1, 1),
        Operation(last, "B", 0, 0, 2, 2),
        Operation(first, "B", 0, 0, 3, 2),
        Operation(first, "O", 0, None, 5, 3),
        Operation(last, "O", 0, None, 4, 3),
    ]
    assert [violation.rule for violation in violations(job, ops, 8, synchronous=False)] == ["dependency"]
    split = [*ops[:2], Operation(last, "I", 0, 0, 2, 1), Operation(last, "W", 0, 0, 3, 1), *ops[3:]]
    assert violations(job, split, 8, synchronous=False) == []


def test_a_transfer_takes_its_time() -> None:
    job = uniform_job(2, 1, 1, cost=StageCost(transfer=2))
    made = list(plan(job).staggered.operations())
    faster = [op._replace(start=op.start - 1) if op.worker.stage == 1 else op for op in made]
    assert "dependency" in {violation.rule for violation in violations(job, faster, 99, synchronous=False)}


def test_require_valid_lists_what_is_broken(good: Operations) -> None:
    with pytest.raises(InvalidPlan, match="Try:") as caught:
        require_valid(JOB, missing_forward(good), 30, synchronous=False)
    assert caught.value.violations


def test_a_worker_waits_for_the_slowest_step_of_its_stage() -> None:
    """Pipeline 1 steps one tick later; each worker fits into the period alone, but not before its peer's all-reduce."""
    job = uniform_job(1, 2, 1)
    ops = [Operation(Worker(k, 0), kind, k, 0, k + at, 1) for k in (0, 1) for at, kind in enumerate("FIW")]
    ops += [Operation(Worker(0, 0), "O", 0, None, 4, 3), Operation(Worker(1, 0), "O", 1, None, 5, 3)]
    assert violations(job, ops, 8, synchronous=False) == []
    assert [violation.rule for violation in violations(job, ops, 7, synchronous=False)] == ["period"]
