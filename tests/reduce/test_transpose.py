"""The transpose all-reduce between real processes: exact when nothing is lost, on time when somebody is not there."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import signal
import time
import weakref
from typing import Any

import pytest
import torch
from rank_processes import Member

from holdfast.bridge.tensors import memory_of
from holdfast.errors import BucketMismatch, DeadlineExceeded, PeerDead
from holdfast.outcome import Outcome
from holdfast.reduce.transpose import TransposeAllReduce

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
MEGABYTE = 1 << 20
# Far beyond what a loaded machine needs, so that only a real loss ends an operation incomplete.
AMPLE_MS = 20_000.0
# A scheduler's turn on a loaded machine with two cores; bounds are asserted with this much room.
SLACK_MS = 900.0


# ---------------------------------------------------------------------------------------------------- the oracle


def gradient_of(rank: int, count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """What a rank contributes: every rank can make every rank's."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.empty(count, dtype=torch.float32).normal_(generator=generator).to(dtype)


def assert_is_the_sum(result: torch.Tensor, num_ranks: int, seed: int, *, average: bool) -> None:
    """Compares with a float64 sum, allowing a rounding per addition of the accumulator and one of the result."""
    accumulator = torch.float64 if result.dtype == torch.float64 else torch.float32
    gradients = [gradient_of(rank, result.numel(), result.dtype, seed) for rank in range(num_ranks)]
    for begin in range(0, result.numel(), 1 << 22):
        part = slice(begin, begin + (1 << 22))
        parts = [gradient[part].double() for gradient in gradients]
        reference = sum(parts, torch.zeros_like(parts[0]))
        magnitude = sum((p.abs() for p in parts), torch.zeros_like(parts[0]))
        if average:
            reference, magnitude = reference / num_ranks, magnitude / num_ranks
        finest = torch.finfo(result.dtype).smallest_normal * torch.finfo(result.dtype).eps
        allowed = (
            torch.finfo(result.dtype).eps / 2 * reference.abs()
            + (num_ranks + 4) * torch.finfo(accumulator).eps * magnitude
            + finest
        )
        wrong = (result[part].double() - reference).abs() > allowed
        assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} wrong from {begin}: seed {seed}"


def digest_of(tensor: torch.Tensor) -> str:
    return hashlib.blake2b(tensor.view(torch.uint8).numpy(), digest_size=8).hexdigest()


def reduce_once(reducer: TransposeAllReduce, tensor: torch.Tensor, **options: Any) -> Outcome:
    return reducer.finish(reducer.start(memory_of(tensor), **options))


# ---------------------------------------------------------------------------------------------------- exactness


def reduce_all(
    member: Member, cases: list[tuple[int, torch.dtype]], settings: dict[str, Any], exact: bool, average: bool
) -> list[str]:
    """Every case in one operation; the digests of the results."""
    link = member.join(deadline_ms=AMPLE_MS, early_wait_floor_ms=AMPLE_MS / 4, **settings)
    reducer = TransposeAllReduce(link)
    digests = []
    for seed, (count, dtype) in enumerate(cases):
        tensor = gradient_of(member.rank, count, dtype, seed)
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


# ---------------------------------------------------------------------------------------------------- several at once


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


# ---------------------------------------------------------------------------------------------------- warm-up


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


# ---------------------------------------------------------------------------------------------------- somebody is late


def one_is_late(member: Member, late_rank: int, late_s: float, deadline_ms: float) -> tuple[list[Outcome], float]:
    reducer = TransposeAllReduce(member.join(deadline_ms=deadline_ms))
    member.barrier()
    if member.rank == late_rank:
        time.sleep(late_s)
    outcomes = []
    started = time.monotonic()
    for seed in range(member.num_ranks):  # a full rotation of responsibility
        tensor = gradient_of(member.rank, 10_007, torch.float32, seed)
        outcome = reduce_once(reducer, tensor)
        for begin, end in outcome.missing:
            assert not tensor[begin:end].any()
        outcomes.append(outcome)
    elapsed_ms = (time.monotonic() - started) * 1e3
    member.barrier()
    return outcomes, elapsed_ms


def test_a_rank_one_second_late_holds_nobody_and_loses_nobody_its_shard(run_ranks) -> None:
    late, deadline_ms = 2, 200.0
    results = run_ranks(one_is_late, 4, late, 1.0, deadline_ms)
    for rank, (outcomes, _) in enumerate(results):
        if rank == late:
            continue
        for outcome in outcomes:
            assert outcome.elapsed_ms <= deadline_ms + SLACK_MS
            # Its gradient is missing ...
            assert outcome.peers[late if late < rank else late - 1].rank == late
            assert outcome.peers[late if late < rank else late - 1].contributed_ratio == 0.0
            # ... but its I/O thread has served its duty: nothing of the result is missing.
            assert outcome.missing == (), outcome.describe()
            assert outcome.delivered_ratio == pytest.approx(3 / 4)
            assert late in outcome.late_peers
    # The results wait for the late rank: it finishes at once, far below its deadline for each of four operations.
    outcomes, elapsed_ms = results[late]
    assert elapsed_ms < deadline_ms + SLACK_MS
    for outcome in outcomes:
        assert outcome.missing == ()
        assert outcome.delivered_ratio == pytest.approx(3 / 4)


def one_never_calls(member: Member, absent_rank: int, deadline_ms: float) -> list[Outcome]:
    reducer = TransposeAllReduce(member.join(deadline_ms=deadline_ms))
    outcomes = []
    member.barrier()
    if member.rank != absent_rank:
        for seed in range(4):
            outcomes.append(reduce_once(reducer, gradient_of(member.rank, 5_003, torch.float32, seed)))
    member.barrier()
    return outcomes


def test_a_rank_that_never_calls_holds_nobody(run_ranks) -> None:
    results = run_ranks(one_never_calls, 4, 0, 150.0)
    assert results[0] == []
    for outcomes in results[1:]:
        assert len(outcomes) == 4
        for outcome in outcomes:
            assert outcome.elapsed_ms <= 150.0 + SLACK_MS
            assert outcome.late_peers == (0,)
            assert outcome.missing == ()
            assert outcome.delivered_ratio == pytest.approx(3 / 4)


def test_a_block_that_nobody_else_contributed_to_is_reported_lost(run_ranks) -> None:
    _, outcomes = run_ranks(one_never_calls, 2, 0, 150.0)
    for outcome in outcomes:
        assert outcome.elapsed_ms <= 150.0 + SLACK_MS
        # An average of one rank alone would be biased: the own shard counts as lost. The other shard comes from the
        # absent rank's I/O thread, with the half of the contributions that there is.
        assert outcome.missing_elements in (2_501, 2_502)
        assert outcome.delivered_ratio == pytest.approx(1 / 4, abs=1e-3)


def exact_with_an_absent_rank(member: Member) -> tuple[str, tuple[int, ...], float]:
    reducer = TransposeAllReduce(member.join(exact_deadline_ms=400.0))
    member.barrier()
    answer: tuple[str, tuple[int, ...], float] = ("", (), 0.0)
    if member.rank != 1:
        with pytest.raises(DeadlineExceeded) as caught:
            reduce_once(reducer, gradient_of(member.rank, 5_003, torch.float32, 0), bucket=7)
        assert caught.value.bucket == 7
        assert caught.value.deadline_ms == 400.0
        answer = ("DeadlineExceeded", caught.value.peers, caught.value.elapsed_ms or 0.0)
    member.barrier()
    return answer


def test_an_exact_operation_names_the_absent_rank_at_its_deadline(run_ranks) -> None:
    results = run_ranks(exact_with_an_absent_rank, 3)
    for rank in (0, 2):
        name, peers, elapsed_ms = results[rank]
        assert name == "DeadlineExceeded"
        assert 1 in peers
        assert 400.0 <= elapsed_ms <= 400.0 + SLACK_MS


# ---------------------------------------------------------------------------------------------------- signals


def keep_reducing(member: Member, deadline_ms: float, steps_after: int) -> list[Outcome]:
    """Until the test says stop, and a few steps more, so that all ranks are heard again."""
    reducer = TransposeAllReduce(member.join(deadline_ms=deadline_ms, silence_limit_ms=5_000.0))
    member.barrier()
    outcomes: list[Outcome] = []
    steps_left = steps_after
    while steps_left > 0:
        outcomes.append(reduce_once(reducer, gradient_of(member.rank, 2_003, torch.float32, len(outcomes))))
        if len(outcomes) == 3:
            member.say(f"going/{member.rank}")
        if member.store.check(["said/stop"]):
            steps_left -= 1
    member.say(f"done/{member.rank}")
    for other in range(member.num_ranks):
        member.hear(f"done/{other}")
    return outcomes


def test_a_stopped_rank_holds_nobody_past_the_bound(start_ranks) -> None:
    deadline_ms = 150.0
    with start_ranks(keep_reducing, 3, deadline_ms, 3) as ranks:
        for rank in range(3):
            ranks.hear(f"going/{rank}")
        with ranks.stopped(1):
            time.sleep(0.5)
        ranks.say("stop")
        results = ranks.results()
    for rank in (0, 2):
        outcomes = results[rank]
        assert max(outcome.elapsed_ms for outcome in outcomes) <= deadline_ms + SLACK_MS
        touched = [outcome for outcome in outcomes if 1 in outcome.late_peers]
        assert touched, "the stop was not felt"
        assert all(peer.alive for outcome in outcomes for peer in outcome.peers)  # half a second is not death


def reduce_beside_a_death(member: Member, exact: bool, deadline_ms: float) -> Any:
    link = member.join(deadline_ms=deadline_ms, exact_deadline_ms=20_000.0, silence_limit_ms=600.0, heartbeat_ms=100.0)
    reducer = TransposeAllReduce(link)
    assert reduce_once(reducer, gradient_of(member.rank, 2_003, torch.float32, 0)).complete or not exact
    member.say(f"ready/{member.rank}")
    if member.rank == 1:
        signal.pause()
    member.hear("killed")
    if exact:
        started = time.monotonic()
        with pytest.raises(PeerDead) as caught:
            reduce_once(reducer, gradient_of(member.rank, 2_003, torch.float32, 1), exact=True)
        assert time.monotonic() - started < 10.0  # far below the deadline of 20 s
        member.say(f"done/{member.rank}")
        member.hear(f"done/{2 - member.rank}")  # or the other survivor might hear our goodbye first
        return caught.value.peers
    outcomes = []
    for seed in range(1, 200):
        outcomes.append(reduce_once(reducer, gradient_of(member.rank, 2_003, torch.float32, seed)))
        if not all(peer.alive for peer in outcomes[-1].peers):
            break
    outcomes.append(reduce_once(reducer, gradient_of(member.rank, 2_003, torch.float32, 999)))
    member.say(f"done/{member.rank}")
    member.hear(f"done/{2 - member.rank}")
    return outcomes


def test_survivors_of_a_killed_rank_end_bounded_calls_by_their_deadline(start_ranks) -> None:
    with start_ranks(reduce_beside_a_death, 3, False, 100.0) as ranks:
        for rank in range(3):
            ranks.hear(f"ready/{rank}")
        ranks.kill(1)
        ranks.say("killed")
        results = ranks.results(dead={1})
    for rank in (0, 2):
        outcomes = results[rank]
        assert all(outcome.elapsed_ms <= 100.0 + SLACK_MS for outcome in outcomes)
        assert [peer.rank for peer in outcomes[-1].peers if not peer.alive] == [1]
        # Known to be dead, it is not waited for any more.
        assert outcomes[-1].contributions_end == outcomes[-1].results_end == "complete"
        assert "dead" in outcomes[-1].describe()


def test_an_exact_operation_beside_a_killed_rank_raises_peer_dead(start_ranks) -> None:
    with start_ranks(reduce_beside_a_death, 3, True, 5_000.0) as ranks:
        for rank in range(3):
            ranks.hear(f"ready/{rank}")
        ranks.kill(1)
        ranks.say("killed")
        results = ranks.results(dead={1})
    assert results == [(1,), None, (1,)]


# ---------------------------------------------------------------------------------------------------- disagreement


def call_differently(member: Member, what: str) -> tuple[str, tuple[int, ...], float]:
    reducer = TransposeAllReduce(member.join(deadline_ms=1_000.0, exact_deadline_ms=1_000.0))
    odd_one = member.rank == 1
    count = 1_000 + (odd_one and what == "shape")
    dtype = torch.float64 if odd_one and what == "dtype" else torch.float32
    options = {"layout": 1 + (odd_one and what == "layout"), "average": not (odd_one and what == "average")}
    exact = odd_one and what == "delivery"
    started = time.monotonic()
    try:
        outcome = reduce_once(reducer, torch.ones(count, dtype=dtype), exact=exact, **options)
        ending, peers = "incomplete", outcome.late_peers
    except BucketMismatch as error:
        ending, peers = "mismatch" if error.what_to_try else "no advice", error.peers
    except DeadlineExceeded as error:
        ending, peers = "deadline", error.peers
    elapsed_s = time.monotonic() - started
    member.barrier()
    return ending, peers, elapsed_s


DIFFERENCES = ["shape", "dtype", "layout", "average", "delivery"]


@pytest.mark.parametrize("what", DIFFERENCES)
def test_calls_that_differ_are_a_bucket_mismatch(run_ranks, what: str) -> None:
    results = run_ranks(call_differently, 2, what)
    for rank, (ending, peers, elapsed_s) in enumerate(results):
        assert (ending, peers) == ("mismatch", (1 - rank,))
        assert elapsed_s <= 1.0 + SLACK_MS / 1e3


def test_the_odd_one_of_three_is_named(run_ranks) -> None:
    results = run_ranks(call_differently, 3, "shape")
    assert [ending for ending, _, _ in results] == ["mismatch"] * 3
    for rank in (0, 2):
        assert results[rank][1] == (1,)


# ---------------------------------------------------------------------------------------------------- after a failure


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


def interrupted_wait(member: Member) -> bool:
    reducer = TransposeAllReduce(member.join(deadline_ms=5_000.0))
    gradient = torch.ones(1000)
    alive = weakref.ref(gradient)
    if member.rank == 0:
        pending = reducer.start(memory_of(gradient))
        reducer.abandon(pending)
        del pending, gradient
        gc.collect()
        kept = alive() is not None
        member.say("abandoned")
    else:
        member.hear("abandoned")
        reduce_once(reducer, gradient)
        kept = True
    member.barrier()
    other = torch.ones(10)
    reduce_once(reducer, other)  # the report of the abandoned one is in by now, and its memory is let go
    return kept and (member.rank != 0 or alive() is None)


def test_the_memory_of_an_abandoned_operation_is_kept_until_it_is_over(run_ranks) -> None:
    assert run_ranks(interrupted_wait, 2) == [True, True]


def a_whole_step_early(member: Member) -> float:
    step = [torch.full((1 << 20,), float(member.rank + 1)) for _ in range(20)]  # 80 MiB in 20 buckets
    link = member.join(deadline_ms=4_000.0, step_bytes=sum(part.nbytes for part in step))
    reducer = TransposeAllReduce(link)
    if member.rank == 1:
        member.hear("started")
        time.sleep(1.0)
    pending = [reducer.start(memory_of(part)) for part in step]
    if member.rank == 0:
        member.say("started")
    outcomes = [reducer.finish(each) for each in pending]
    over_cap = link.snapshot().drops["early_over_cap"]
    member.barrier()
    return over_cap + sum(not outcome.complete for outcome in outcomes)


def test_a_rank_that_is_late_holds_a_whole_step_of_more_than_64_megabytes(run_ranks) -> None:
    assert run_ranks(a_whole_step_early, 2) == [0, 0]
