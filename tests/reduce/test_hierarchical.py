"""Hierarchical operations between real processes: the same sums, whether or not a rank is there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rank_processes import Member
from transpose_oracle import AMPLE_MS, assert_is_the_sum, digest_of, gradient_of, reduce_once

from holdfast.reduce.transpose import TransposeAllReduce

# Fewer elements than ranks, than blocks, and than a datagram; a prime; more than a datagram.
SIZES = [1, 3, 7, 100, 10_007, 200_003]
# A 16-bit sum is rounded twice: within the group and between the groups.
WIDE = [torch.float32, torch.float64]
NARROW = [torch.bfloat16, torch.float16]


def reduce_in_groups(
    member: Member, num_groups: int, exact: bool, average: bool, settings: dict[str, Any]
) -> list[str]:
    link = member.join(deadline_ms=AMPLE_MS, early_wait_floor_ms=AMPLE_MS / 8, hierarchy=num_groups, **settings)
    assert link.agreement.num_groups == num_groups
    reducer = TransposeAllReduce(link)
    digests = []
    for seed, (count, dtype) in enumerate((count, dtype) for dtype in WIDE + NARROW for count in SIZES):
        tensor = gradient_of(member.rank, count, dtype, seed)
        member.barrier(timeout_s=90)
        outcome = reduce_once(reducer, tensor, exact=exact, average=average)
        assert outcome.complete, outcome.describe()
        assert [peer.rank for peer in outcome.peers] == [r for r in range(member.num_ranks) if r != member.rank]
        if member.rank == 0 and dtype in WIDE:
            assert_is_the_sum(tensor, member.num_ranks, seed, average=average)
        elif member.rank == 0:
            assert_is_nearly_the_sum(tensor, member.num_ranks, seed, average=average)
        digests.append(digest_of(tensor))
    member.barrier()
    return digests


def assert_is_nearly_the_sum(result: torch.Tensor, num_ranks: int, seed: int, *, average: bool) -> None:
    gradients = [gradient_of(rank, result.numel(), result.dtype, seed).double() for rank in range(num_ranks)]
    whole = torch.stack(gradients)
    scale = num_ranks if average else 1
    error = (result.double() - whole.sum(0) / scale).abs()
    assert (error <= torch.finfo(result.dtype).eps * whole.abs().sum(0) / scale).all()


@pytest.mark.parametrize(("num_ranks", "num_groups"), [(4, 2), (6, 3), (8, 2)])
def test_groups_give_the_sum_of_all_and_replicas_are_equal(run_ranks, num_ranks: int, num_groups: int) -> None:
    digests = run_ranks(reduce_in_groups, num_ranks, num_groups, False, True, {})
    assert all(of_rank == digests[0] for of_rank in digests)


def test_exact_sums_in_groups(run_ranks) -> None:
    digests = run_ranks(reduce_in_groups, 4, 2, True, False, {"deterministic": True, "credit": 1})
    assert all(of_rank == digests[0] for of_rank in digests)


def measured_bound(member: Member) -> list[str]:
    """Without a given deadline: the warm-up, the exchange of what it took, and bounded operations after it."""
    link = member.join(warmup_operations=4, hierarchy=2)
    reducer = TransposeAllReduce(link)
    for seed in range(10):
        tensor = gradient_of(member.rank, 50_000, torch.float32, seed)
        outcome = reduce_once(reducer, tensor)
        assert outcome.exact == (seed < 4)
        if outcome.complete and member.rank == 0:
            assert_is_the_sum(tensor, member.num_ranks, seed, average=True)
    member.barrier()
    return reducer.explain()


def test_the_bound_is_measured_in_groups_too(run_ranks) -> None:
    for lines in run_ranks(measured_bound, 4):
        assert any(line.startswith("groups: 2 groups of 2") for line in lines)
        assert not any(line.startswith("shards:") for line in lines)
