"""The bound of a transpose all-reduce as its first operations measure it."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
from rank_processes import Member
from transpose_oracle import assert_is_the_sum, gradient_of, reduce_once

from holdfast.bridge.tensors import memory_of
from holdfast.errors import BucketMismatch, DeadlineExceeded
from holdfast.reduce.pending import Memory
from holdfast.reduce.transpose import TransposeAllReduce


def warm_up(member: Member, settings: dict[str, Any]) -> tuple[list[bool], list[float], str]:
    reducer = TransposeAllReduce(member.join(**settings))
    exact, bounds = [], []
    assert reducer.adaptation is None
    for seed in range(8):
        tensor = gradient_of(member.rank, 1000, torch.float32, seed)
        outcome = reduce_once(reducer, tensor)
        assert_is_the_sum(tensor, member.num_ranks, seed, average=True)
        exact.append(outcome.exact)
        bounds.append(outcome.deadline_ms)
    assert reducer.adaptation is not None
    member.barrier()
    return exact, bounds, reducer.adaptation.bound.reason


def test_the_bound_is_measured_by_the_first_five_operations_and_is_the_same_everywhere(run_ranks) -> None:
    results = run_ranks(
        warm_up, 3, {"warmup_operations": 5, "deadline_floor_ms": 10_000.0, "early_wait_floor_ms": 2_000.0}
    )
    for exact, bounds, reason in results:
        assert exact == [True] * 5 + [False] * 3
        assert bounds[:5] == [60_000.0] * 5
        assert len(set(bounds[5:])) == 1
        assert (bounds[5], reason) == (results[0][1][5], results[0][2])
        assert "95 % of 30 warm-up stages" in reason


def test_a_measured_bound_has_a_floor(run_ranks) -> None:
    for _, bounds, reason in run_ranks(
        warm_up, 2, {"warmup_operations": 5, "deadline_floor_ms": 15_000.0, "early_wait_floor_ms": 2_000.0}
    ):
        assert bounds[-1] == 15_000.0
        assert "floor" in reason


def limits_after_warm_up(member: Member) -> list[str]:
    reducer = TransposeAllReduce(
        member.join(warmup_operations=10, deadline_floor_ms=10_000.0, early_wait_floor_ms=2_000.0)
    )
    for seed in range(11):
        reduce_once(reducer, gradient_of(member.rank, 1000, torch.float32, seed))
    member.barrier()
    return [line for line in reducer.explain() if line.startswith("limit")]


def test_the_limit_of_operations_is_known_from_the_warm_up(run_ranks) -> None:
    for (line,) in run_ranks(limits_after_warm_up, 2):
        assert "both stages together last 10000.0 ms at most" in line
        assert "until the last rank had the result it usually took" in line


def warm_up_in_flight(member: Member) -> list[bool]:
    """As DDP does it: several buckets start before the first is waited for."""
    reducer = TransposeAllReduce(
        member.join(warmup_operations=3, deadline_floor_ms=10_000.0, early_wait_floor_ms=2_000.0)
    )
    tensors = [gradient_of(member.rank, 501, torch.float32, seed) for seed in range(7)]
    pending = [reducer.start(memory_of(tensor)) for tensor in tensors]
    outcomes = [reducer.finish(entry) for entry in pending]
    for seed, tensor in enumerate(tensors):
        assert_is_the_sum(tensor, member.num_ranks, seed, average=True)
    member.barrier()
    return [outcome.exact for outcome in outcomes]


def test_warm_up_ends_while_operations_are_in_flight(run_ranks) -> None:
    assert run_ranks(warm_up_in_flight, 3) == [[True] * 3 + [False] * 4] * 3


def warm_up_beside_an_absence(member: Member) -> tuple[str, float]:
    reducer = TransposeAllReduce(member.join(exact_deadline_ms=300.0, warmup_operations=1))
    name = ""
    if member.rank == 0:
        try:
            reduce_once(reducer, torch.ones(100))
        except DeadlineExceeded as error:
            name = type(error).__name__
        member.say("failed")
    else:
        member.hear("failed")
        with contextlib.suppress(DeadlineExceeded, BucketMismatch):
            reduce_once(reducer, torch.ones(100))
    member.barrier()
    started = time.monotonic()
    with contextlib.suppress(DeadlineExceeded):
        reduce_once(reducer, torch.ones(100))
    member.barrier()
    return name, time.monotonic() - started


def test_a_failed_warm_up_operation_does_not_hold_up_the_next(run_ranks) -> None:
    results = run_ranks(warm_up_beside_an_absence, 2)
    assert results[0][0] == "DeadlineExceeded"
    assert all(elapsed_s < 3.0 for _, elapsed_s in results)


def numbered(member: Member) -> list[tuple[int, int]]:
    """Through the exchange of what the warm-up took and one about shards: both use up a number."""
    reducer = TransposeAllReduce(
        member.join(warmup_operations=2, deadline_floor_ms=10_000.0, early_wait_floor_ms=2_000.0)
    )
    seen: list[tuple[int, int]] = []
    for _ in range(20):
        tensor, told = torch.empty(100), []

        def prepare(operation: int, tensor: torch.Tensor = tensor, told: list[int] = told) -> Memory:
            told.append(operation)
            return memory_of(tensor.fill_(operation))

        pending = reducer.start_numbered(prepare)
        reducer.finish(pending)
        torch.testing.assert_close(tensor, torch.full((100,), float(pending.operation)))  # the average over ranks
        seen.append((*told, pending.operation))
    member.barrier()
    return seen


def test_the_number_is_told_before_the_operation_begins_and_is_the_same_everywhere(run_ranks) -> None:
    first, *others = run_ranks(numbered, 3)
    assert all(other == first for other in others)
    assert all(told == number for told, number in first)
    assert first[-1][1] == 21
