"""Models that differ, ranks that die and Control-C: named errors out of backward, in time."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
import torch
from ddp_models import SLACK_MS, inputs_of, normalised, perceptron, wrapped
from rank_processes import Member, left_behind
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast.errors import BucketMismatch, PeerDead


class Reordered(nn.Module):
    """The same parameters, registered in another order on one rank."""

    def __init__(self, swapped: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        layers = {"first": nn.Linear(12, 12), "second": nn.Linear(12, 12)}
        for name in sorted(layers, reverse=swapped):
            self.add_module(name, layers[name])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(inputs))


class Sized(nn.Module):
    def __init__(self, width: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layer = nn.Linear(12, width, dtype=dtype)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs.to(self.layer.weight.dtype))


def disagreeing_model(rank: int, what: str) -> nn.Module:
    odd = rank == 1
    if what == "shape":
        return Sized(5 if odd else 4)
    if what == "dtype":
        return Sized(4, torch.float64 if odd else torch.float32)
    return Reordered(odd)


def backward_disagreeing(member: Member, what: str) -> tuple[str, float]:
    # DDP itself compares shapes at construction; a model whose ranks differ slips through without that check.
    model = DistributedDataParallel(disagreeing_model(member.rank, what), init_sync=False)
    handle = holdfast.attach(model, deadline_ms=1_000.0, exact_deadline_ms=2_000.0, join_timeout_s=20.0)
    loss = model(inputs_of(member.rank, 0)).sum()
    started = time.monotonic()
    name = ""
    try:
        loss.backward()
    except BucketMismatch as error:
        name = type(error).__name__
        if not error.what_to_try or error.bucket != 0:
            raise
    elapsed_s = time.monotonic() - started
    member.barrier()
    handle.detach()
    return name, elapsed_s


@pytest.mark.parametrize("what", ["shape", "dtype", "bucket order"])
def test_models_that_differ_are_a_bucket_mismatch_out_of_backward(run_ranks, what: str) -> None:
    results = run_ranks(backward_disagreeing, 2, what, group=True)
    assert [name for name, _ in results] == ["BucketMismatch"] * 2
    assert all(elapsed_s < 1.0 + SLACK_MS / 1e3 for _, elapsed_s in results)


def backward_beside_a_death(member: Member, settings: dict[str, Any]) -> tuple[list[str], float]:
    model = wrapped(normalised)
    handle = holdfast.attach(model, join_timeout_s=20.0, silence_limit_ms=600.0, heartbeat_ms=100.0, **settings)
    for step in range(3):  # DDP rebuilds its buckets over the default group in the second one
        model(inputs_of(member.rank, step)).sum().backward()
    member.say(f"ready/{member.rank}")
    if member.rank == member.num_ranks - 1:
        signal.pause()
    member.hear("killed")
    started = time.monotonic()
    names = []
    try:
        for step in range(1, 100):
            model(inputs_of(member.rank, step)).sum().backward()
            if not all(peer.alive for peer in handle.outcomes()[-1].peers):
                names.append("survived")
                break
    except PeerDead as error:
        assert error.peers == (member.num_ranks - 1,), error  # noqa: PT017
        names.append("PeerDead")
    member.say(f"done/{member.rank}")
    for survivor in range(member.num_ranks - 1):
        member.hear(f"done/{survivor}")
    handle.detach()  # cannot synchronize with the dead, and does not wait for it either
    elapsed_s = time.monotonic() - started
    assert left_behind() == []
    return names, elapsed_s


@pytest.mark.parametrize(
    ("num_ranks", "settings", "expected"),
    [
        (3, {"deadline_ms": 100.0}, "survived"),  # bounded: survivors go on
        (2, {"deadline_ms": 100.0}, "PeerDead"),  # nobody is left
        (3, {"warmup_operations": 50}, "PeerDead"),  # exact: nothing else it could do
    ],
    ids=["survivors-go-on", "nobody-left", "exact"],
)
def test_a_killed_rank(start_ranks, num_ranks: int, settings: dict[str, Any], expected: str) -> None:
    with start_ranks(backward_beside_a_death, num_ranks, settings, group=True) as ranks:
        for rank in range(num_ranks):
            ranks.hear(f"ready/{rank}")
        ranks.kill(num_ranks - 1)
        ranks.say("killed")
        results = ranks.results(dead={num_ranks - 1})
    for names, elapsed_s in results[:-1]:
        assert names == [expected]
        assert elapsed_s < 15.0  # not the exact deadline of 60 s


def interrupted_backward(member: Member) -> tuple[str, float]:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model = wrapped(perceptron)
    handle = holdfast.attach(model, exact_deadline_ms=30_000.0, join_timeout_s=20.0)
    if member.rank == 1:  # never calls backward, so the other waits for its exact warm-up operation
        member.hear("interrupted")
        handle._link.close()
        return "", 0.0
    loss = model(inputs_of(0, 0)).sum()
    member.say("waiting")
    try:
        loss.backward()
    except KeyboardInterrupt:
        interrupted_at = time.monotonic()
        name = "KeyboardInterrupt"
    else:
        interrupted_at, name = 0.0, "nothing"
    member.say("interrupted")
    handle.detach()  # as `with` or `finally` would
    assert left_behind() == []
    return name, interrupted_at


def test_control_c_in_backward_is_a_keyboard_interrupt_and_leaves_nothing(start_ranks) -> None:
    with start_ranks(interrupted_backward, 2, group=True) as ranks:
        ranks.hear("waiting")
        time.sleep(0.3)
        sent_at = time.monotonic()  # the same clock in all processes
        ranks.signal(0, signal.SIGINT)
        (name, interrupted_at), _ = ranks.results()
    assert name == "KeyboardInterrupt"
    assert interrupted_at - sent_at < 2.0
