"""A barrier waits for all, names those that do not come, and does not care how many operations each has done."""

from __future__ import annotations

import time

import pytest
import torch

from holdfast.bridge.tensors import memory_of
from holdfast.errors import DeadlineExceeded, PeerDead
from holdfast.link.barrier import Barrier
from holdfast.reduce.transpose import TransposeAllReduce
from tests.rank_processes import Member


def arrive(member: Member, late_s: float) -> list[float]:
    link = member.join()
    barrier = Barrier(link)
    times = []
    for turn in range(3):
        if member.rank == turn:
            time.sleep(late_s)
        barrier.wait(10_000.0)
        times.append(time.monotonic())
    link.close()
    return times


def test_nobody_passes_before_the_last_has_come(run_ranks) -> None:
    results = run_ranks(arrive, 3, 0.3)
    for turn in range(3):
        # Whoever is late in this turn began to be so after it had passed the one before.
        last_began = results[turn][turn - 1] if turn else 0.0
        for times in results:
            assert times[turn] >= last_began + 0.3


def one_stays_away(member: Member) -> str:
    link = member.join()
    if member.rank == 1:
        member.barrier()
        link.close()
        return ""
    with pytest.raises(DeadlineExceeded) as caught:
        Barrier(link).wait(200.0)
    member.barrier()
    link.close()
    return str(caught.value.peers)


def test_who_does_not_come_is_named(run_ranks) -> None:
    assert run_ranks(one_stays_away, 2) == ["(1,)", ""]


def one_leaves(member: Member) -> str:
    link = member.join()
    if member.rank == 1:
        link.close()
        return ""
    started = time.monotonic()
    with pytest.raises(PeerDead) as caught:
        Barrier(link).wait(20_000.0)
    assert time.monotonic() - started < 10
    link.close()
    return str(caught.value.peers)


def test_who_has_left_is_not_waited_for(run_ranks) -> None:
    assert run_ranks(one_leaves, 2) == ["(1,)", ""]


def behind(member: Member) -> int:
    link = member.join(deadline_ms=50.0)
    reducer = TransposeAllReduce(link)
    for _ in range(1 + 3 * member.rank):
        reducer.finish(reducer.start(memory_of(torch.ones(100))))
    Barrier(link).wait(10_000.0)
    operations = reducer.position.next_operation
    link.close()
    return operations


def test_ranks_may_have_done_different_numbers_of_operations(run_ranks) -> None:
    assert run_ranks(behind, 2) == [1, 4]
