"""A transpose all-reduce beside ranks that are late, absent, stopped or killed: it ends on time and names them."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
import torch
from rank_processes import Member
from transpose_oracle import SLACK_MS, gradient_of, reduce_once

from holdfast.bridge.tensors import memory_of
from holdfast.errors import DeadlineExceeded, PeerDead
from holdfast.outcome import Outcome
from holdfast.reduce.transpose import TransposeAllReduce


def one_is_late(member: Member, late_rank: int, late_s: float, deadline_ms: float) -> tuple[list[Outcome], float]:
    # Results of a rank that has said nothing are waited for no longer than x t_C: its I/O thread may need that much for
    # its core while other tests run.
    reducer = TransposeAllReduce(member.join(deadline_ms=deadline_ms, early_wait_least_ratio=0.5))
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
            assert outcome.rank == rank
            assert outcome.early_wait_ms is not None
            assert abs(outcome.shard_elements - outcome.num_elements / 4) < 1
    # The results wait for the late rank: it finishes at once, far below its deadline for each of four operations.
    outcomes, elapsed_ms = results[late]
    assert elapsed_ms < deadline_ms + SLACK_MS
    assert outcomes[0].called_ms > outcomes[0].contributions_ms, "its first stage was over before it called"
    assert f"held up by rank {late} itself" in outcomes[0].trace()
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
