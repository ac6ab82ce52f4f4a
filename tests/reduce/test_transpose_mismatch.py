"""Calls of an all-reduce that differ are a mismatch; and what an abandoned one leaves is kept as long as it must."""

from __future__ import annotations

import gc
import time
import weakref

import pytest
import torch
from rank_processes import Member
from transpose_oracle import SLACK_MS, reduce_once

from holdfast.bridge.tensors import memory_of
from holdfast.errors import BucketMismatch, DeadlineExceeded
from holdfast.reduce.transpose import TransposeAllReduce


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
