"""Which models can be attached, how often, and what is said of those that cannot."""

from __future__ import annotations

import itertools
import logging
import os

import pytest
import torch
import torch.distributed as dist
from ddp_models import AMPLE, gradients_of, inputs_of, normalised, perceptron, wrapped
from rank_processes import Member, left_behind
from torch import nn

import holdfast
from holdfast.errors import AttachError, HandleClosed, HoldfastError, JoinError, UnsupportedGradient


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, dtype=torch.complex64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs[:, :3] * self.weight).abs().sum()


def sparse() -> nn.Module:
    return nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 3))


def refused_models(_member: Member) -> None:
    cases: list[tuple[nn.Module, type[HoldfastError], str]] = [
        (perceptron(), AttachError, "not Sequential.*DistributedDataParallel"),
        (wrapped(perceptron, find_unused_parameters=True), AttachError, "find_unused_parameters"),
        (wrapped(sparse), UnsupportedGradient, "sparse=False"),
        (wrapped(Complex), UnsupportedGradient, "weight is torch.complex64.*float32"),
    ]
    hooked = wrapped(perceptron)
    hooked.register_comm_hook(None, dist.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook)
    cases.append((hooked, AttachError, "hook already"))
    for model, kind, text in cases:
        with pytest.raises(kind, match=text) as caught:
            holdfast.attach(model)
        assert caught.value.what_to_try
        assert left_behind() == []
    with pytest.raises(holdfast.HoldfastError, match="dead_line"):
        holdfast.attach(wrapped(perceptron), dead_line=3)


def test_models_that_cannot_be_attached_are_refused_at_once(run_ranks) -> None:
    run_ranks(refused_models, 1, group=True)


def static_graph_with_unused(member: Member) -> None:
    model = wrapped(perceptron, find_unused_parameters=True, static_graph=True)
    handle = holdfast.attach(model, **AMPLE)
    for step in range(3):
        model(inputs_of(member.rank, step)).sum().backward()
    handle.detach()


def test_unused_parameters_are_allowed_in_a_static_graph(run_ranks) -> None:
    run_ranks(static_graph_with_unused, 2, group=True)


def attach_twice_and_again(member: Member) -> None:
    model = wrapped(perceptron)
    handle = holdfast.attach(model, **AMPLE)
    with pytest.raises(AttachError, match=r"attached already.*detach"):
        holdfast.attach(model, **AMPLE)
    model(inputs_of(member.rank, 0)).sum().backward()
    handle.detach()
    handle.detach()
    assert handle.closed
    assert left_behind() == []
    for use in (handle.summary, handle.explain, handle.synchronize, handle.state_dict):
        with pytest.raises(HandleClosed, match="attach again"):
            use()
    with pytest.raises(HandleClosed):
        handle.load_state_dict({"version": 1, "deadline_ms": 5.0})
    # DDP's own all-reduce is back ...
    model.zero_grad()
    model(inputs_of(member.rank, 1)).sum().backward()
    by_ddp = gradients_of(model)
    assert len(handle.outcomes()) == 1
    # ... and Holdfast again, over another link.
    again = holdfast.attach(model, **AMPLE)
    model.zero_grad()
    model(inputs_of(member.rank, 1)).sum().backward()
    for gradient, reference in zip(gradients_of(model), by_ddp, strict=True):
        torch.testing.assert_close(gradient, reference)
    assert len(again.outcomes()) == 1
    again.detach()


def test_a_second_attach_is_refused_and_one_after_detach_works(run_ranks) -> None:
    run_ranks(attach_twice_and_again, 2, group=True)


def two_models(member: Member) -> None:
    first, second = wrapped(perceptron), wrapped(normalised)
    handles = [holdfast.attach(model, **AMPLE) for model in (first, second)]
    for step in range(2):
        (first(inputs_of(member.rank, step)).sum() + second(inputs_of(member.rank, step)).sum()).backward()
    assert [len(handle.outcomes()) for handle in handles] == [2, 3]
    for handle in handles:
        handle.detach()


def test_two_models_can_be_attached_side_by_side(run_ranks) -> None:
    run_ranks(two_models, 2, group=True)


def failing_store(member: Member) -> str:
    """Rank 1 refuses its model; rank 0 must hear of it by the join deadline."""
    model = wrapped(perceptron)
    if member.rank == 1:
        member.hear("over")
        return ""
    with pytest.raises(JoinError) as caught:
        holdfast.attach(model, join_timeout_s=0.5)
    member.say("over")
    assert left_behind() == []
    return f"{type(caught.value).__name__} {caught.value.peers}"


def test_a_rank_that_does_not_attach_is_named(run_ranks) -> None:
    assert run_ranks(failing_store, 2, group=True)[0] == "PeerNeverJoined (1,)"


def attach_and_detach_often(member: Member, times: int) -> list[str]:
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("holdfast.bridge").addHandler(handler)
    model = wrapped(normalised)
    for step in range(times):
        handle = holdfast.attach(model, **AMPLE)
        model(inputs_of(member.rank, step)).sum().backward()
        handle.detach()
        assert left_behind() == []
    return warnings


def test_detaching_together_never_loses_the_last_synchronize(run_ranks) -> None:
    assert run_ranks(attach_and_detach_often, 3, 15, group=True) == [[], [], []]


def descriptors_after(member: Member) -> list[int]:
    model = wrapped(perceptron)
    counts = []
    for step in range(4):
        handle = holdfast.attach(model, **AMPLE)
        model(inputs_of(member.rank, step)).sum().backward()
        handle.detach()
        counts.append(len(os.listdir("/proc/self/fd")))
    return counts


def test_descriptors_do_not_pile_up(run_ranks) -> None:
    for counts in run_ranks(descriptors_after, 2, group=True):
        assert all(later <= earlier for earlier, later in itertools.pairwise(counts[1:]))
