"""The transpose all-reduce between real processes: exact when nothing is lost, whatever the settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rank_processes import Member
from transpose_oracle import AMPLE_MS, DTYPES, MEGABYTE, assert_is_the_sum, digest_of, gradient_of, reduce_once

from holdfast.bridge.tensors import memory_of
from holdfast.reduce.transpose import TransposeAllReduce


def reduce_all(
    member: Member, cases: list[tuple[int, torch.dtype]], settings: dict[str, Any], exact: bool, average: bool
) -> list[str]:
    """Every case in one operation; the digests of the results."""
    link = member.join(deadline_ms=AMPLE_MS, early_wait_floor_ms=AMPLE_MS / 4, **settings)
    reducer = TransposeAllReduce(link)
    digests = []
    for seed, (count, dtype) in enumerate(cases):
        tensor = gradient_of(member.rank, count, dtype, seed)
        member.barrier(timeout_s=90)  # rank 0 compares meanwhile, on a loaded machine for longer than a stage may take
        outcome = reduce_once(reducer, tensor, exact=exact, average=average)
        assert outcome.complete, outcome.describe()
        assert outcome.missing == ()
        assert (outcome.num_elements, outcome.num_bytes) == (count, count * tensor.element_size())
        assert outcome.exact == exact
        assert [peer.rank for peer in outcome.peers] == [r for r in range(member.num_ranks) if r != member.rank]
        if member.rank == 0:  # the others' results are compared with this one, bit for bit
            assert_is_the_sum(tensor, member.num_ranks, seed, average=average)
        digests.append(digest_of(tensor))
    member.barrier()
    return digests


def assert_replicas_equal(digests_by_rank: list[list[str]]) -> None:
    assert all(digests == digests_by_rank[0] for digests in digests_by_rank)


# 1 element; fewer than ranks; primes; around a datagram and a block; a small bucket.
ODD_SIZES = [1, 2, 3, 5, 7, 8, 13, 127, 1009, 4071, 65_537]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 5, 8])
def test_every_dtype_and_odd_size_is_summed_exactly(run_ranks, num_ranks: int) -> None:
    cases = [(count, dtype) for dtype in DTYPES for count in ODD_SIZES]
    assert_replicas_equal(run_ranks(reduce_all, num_ranks, cases, {}, False, True))


@pytest.mark.parametrize("num_ranks", [6, 7])
def test_remaining_numbers_of_ranks(run_ranks, num_ranks: int) -> None:
    cases = [(count, dtype) for count, dtype in zip([1, 5, 7, 10_007], DTYPES, strict=True)]
    assert_replicas_equal(run_ranks(reduce_all, num_ranks, cases, {}, False, True))


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_four_megabytes_of_every_dtype(run_ranks, num_ranks: int) -> None:
    cases = [(4 * MEGABYTE // dtype.itemsize, dtype) for dtype in DTYPES]
    cases += [(4 * MEGABYTE // dtype.itemsize - 3, dtype) for dtype in DTYPES]
    assert_replicas_equal(run_ranks(reduce_all, num_ranks, cases, {}, False, True))


def test_a_hundred_megabytes_of_float32_at_two_ranks(run_ranks) -> None:
    cases = [(100 * MEGABYTE // 4 + 1, torch.float32)]
    assert_replicas_equal(run_ranks(reduce_all, 2, cases, {}, False, True, timeout_s=100))


SMALL_CASES = [(1, torch.float32), (100_003, torch.float32), (9_001, torch.float64), (50_021, torch.bfloat16)]
SMALL_CASES += [(777, torch.float16)]


@pytest.mark.parametrize(
    "settings",
    [
        {"protection": "authenticated"},
        {"protection": "insecure"},
        {"interface": "::1"},
        {"interface": "lo"},
        {"segmentation": False},
        {"datagram_bytes": 1472},
        {"datagram_bytes": 576, "segmentation": False},
        {"credit": 1},
        {"deterministic": True},
        {"receive_buffer_bytes": 1 << 16},
    ],
    ids=lambda settings: ",".join(f"{name}={value}" for name, value in settings.items()),
)
def test_every_setting_gives_the_same_sum(run_ranks, settings: dict[str, Any]) -> None:
    assert_replicas_equal(run_ranks(reduce_all, 3, SMALL_CASES, settings, False, True))


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "bounded"])
def test_sums_instead_of_means(run_ranks, exact: bool) -> None:
    assert_replicas_equal(run_ranks(reduce_all, 3, SMALL_CASES, {}, exact, False))


def test_exact_delivery_over_small_datagrams_and_buffers(run_ranks) -> None:
    settings = {"datagram_bytes": 1472, "receive_buffer_bytes": 1 << 15}
    assert_replicas_equal(run_ranks(reduce_all, 4, [(300_007, torch.float32)], settings, True, True))


def test_deterministic_runs_repeat_bit_for_bit(run_ranks) -> None:
    cases = [(30_011, dtype) for dtype in DTYPES]
    first, second = (run_ranks(reduce_all, 5, cases, {"deterministic": True}, False, True) for _ in range(2))
    assert_replicas_equal([*first, *second])


def reduce_special(member: Member) -> list[list[float]]:
    reducer = TransposeAllReduce(member.join(deadline_ms=AMPLE_MS, early_wait_floor_ms=AMPLE_MS / 4))
    results = []
    for dtype in DTYPES:
        tensor = torch.zeros(3 * 257, dtype=dtype)
        if member.rank == 1:
            tensor[0], tensor[300], tensor[600] = float("nan"), float("inf"), -float("inf")
        reduce_once(reducer, tensor)
        results.append([tensor[index].item() for index in (0, 300, 600, 1, 301, 601)])
    member.barrier()
    return results


def test_nan_and_infinity_travel_and_stay_where_they_are(run_ranks) -> None:
    for results in run_ranks(reduce_special, 3):
        for nan, positive, negative, *others in results:
            assert nan != nan
            assert (positive, negative) == (float("inf"), -float("inf"))
            assert others == [0.0, 0.0, 0.0]


def many_in_flight(member: Member, num_operations: int) -> list[str]:
    reducer = TransposeAllReduce(member.join(deadline_ms=AMPLE_MS, early_wait_floor_ms=AMPLE_MS / 4))
    tensors = [gradient_of(member.rank, 1000 + 37 * n, DTYPES[n % 4], n) for n in range(num_operations)]
    pending = [reducer.start(memory_of(tensor), layout=n, bucket=n) for n, tensor in enumerate(tensors)]
    for n in reversed(range(num_operations)):  # waiting in another order than starting
        outcome = reducer.finish(pending[n])
        assert outcome.complete, outcome.describe()
        assert outcome.bucket == n
        assert_is_the_sum(tensors[n], member.num_ranks, n, average=True)
    numbers = [entry.operation for entry in pending]
    assert numbers == sorted(set(numbers))  # an agreement on shards in between takes a number too
    member.barrier()
    return [digest_of(tensor) for tensor in tensors]


def test_many_operations_in_flight(run_ranks) -> None:
    assert_replicas_equal(run_ranks(many_in_flight, 4, 40))


def keys_change_in_flight(member: Member) -> tuple[list[int], list[int]]:
    link = member.join(deadline_ms=AMPLE_MS, early_wait_floor_ms=AMPLE_MS / 4, packets_per_key=64, datagram_bytes=1472)
    reducer = TransposeAllReduce(link)
    for seed in range(6):
        tensor = gradient_of(member.rank, 50_021, torch.float32, seed)
        assert reduce_once(reducer, tensor).complete
        assert_is_the_sum(tensor, member.num_ranks, seed, average=True)
    member.barrier()
    peers = link.snapshot().peers
    assert not any(peer.failed_authentications for peer in peers)
    return [peer.sealing_phase for peer in peers], [peer.opening_phase for peer in peers]


def test_keys_change_in_flight(run_ranks) -> None:
    for sealing, opening in run_ranks(keys_change_in_flight, 3):
        # 6 operations x 2 stages x 66,700 bytes of at most 1,472 each: over 500 datagrams a peer
        assert min(sealing) >= 8
        assert min(opening) >= 8
