"""The Hadamard transform under real DDP: the plain average, replicas alike, losses made up for, Inf found."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch
from rank_processes import Member
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast.codec.hadamard import Hadamard

AMPLE = {"deadline_ms": 20_000.0, "early_wait_floor_ms": 5_000.0, "join_timeout_s": 20.0, "hadamard": "on"}
_FIFTH = torch.tensor([5])


class TwoKinds(nn.Module):
    """22,547 float32 elements, which are a tile and a tail, and a bucket of float64, which is left alone."""

    def __init__(self) -> None:
        super().__init__()
        self.single = nn.Sequential(nn.Linear(12, 140), nn.Tanh(), nn.Linear(140, 140), nn.Linear(140, 7))
        self.wide = nn.Linear(7, 5).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.wide(torch.tanh(self.single(inputs)).double())


def wrapped(model: nn.Module | None = None, **options: Any) -> DistributedDataParallel:
    torch.manual_seed(7)
    return DistributedDataParallel(TwoKinds() if model is None else model, **options)


def inputs_of(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(977 * step + rank))


def local_gradients(model: DistributedDataParallel, inputs: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(model.module(inputs).square().sum(), list(model.module.parameters())))


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1).double() for tensor in tensors])


def compare_with_the_average(member: Member, options: dict[str, Any], settings: dict[str, Any]) -> list[torch.Tensor]:
    # With a static graph DDP's first step is another path; one bucket is enough to see that it is encoded.
    model = wrapped(TwoKinds().single if "static_graph" in options else None, **options)
    handle = holdfast.attach(model, **AMPLE, **settings)
    tolerance, results = 2e-2 if "wire" in settings else 2e-6, []
    for step in range(4):
        locals_ = [flat(local_gradients(model, inputs_of(rank, step))) for rank in range(member.num_ranks)]
        model.zero_grad()
        model(inputs_of(member.rank, step)).square().sum().backward()
        wanted = torch.stack(locals_).mean(0)
        gradient = flat(parameter.grad for parameter in model.parameters())
        assert (gradient - wanted).norm() < tolerance * wanted.norm()
        results.append(gradient)
    for outcome in handle.outcomes():
        assert outcome.missing == outcome.missing_coefficients == ()
    assert "hadamard: on, float32 gradients travel as coefficients" in handle.explain()
    handle.detach()
    return results


@pytest.mark.parametrize(
    ("num_ranks", "options", "settings"),
    [
        (2, {}, {}),
        (3, {"bucket_cap_mb": 0.01}, {"deterministic": True}),
        (2, {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.01}, {}),
        (2, {"static_graph": True}, {}),
        (2, {}, {"wire": "bf16"}),
    ],
    ids=str,
)
def test_gradients_are_the_plain_average(
    run_ranks, num_ranks: int, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    results = run_ranks(compare_with_the_average, num_ranks, options, settings, group=True)
    for other in results[1:]:
        for left, right in zip(results[0], other, strict=True):
            assert torch.equal(left, right)


def train(member: Member) -> tuple[torch.Tensor, int]:
    """Through the warm-up, whose operations run exactly, and through agreements on shards, which use up numbers."""
    model = wrapped()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    handle = holdfast.attach(
        model,
        optimizer,
        hadamard="on",
        warmup_operations=3,
        deadline_floor_ms=20_000.0,
        early_wait_floor_ms=5_000.0,
        join_timeout_s=20.0,
    )
    for step in range(20):
        locals_ = [flat(local_gradients(model, inputs_of(rank, step))) for rank in range(member.num_ranks)]
        optimizer.zero_grad()
        model(inputs_of(member.rank, step)).square().sum().backward()
        wanted = torch.stack(locals_).mean(0)
        gradient = flat(parameter.grad for parameter in model.parameters())
        assert (gradient - wanted).norm() < 1e-5 * wanted.norm()
        optimizer.step()
    numbers = [outcome.operation for outcome in handle.outcomes()]
    assert numbers != list(range(numbers[0], numbers[0] + len(numbers))), "no other operation came between"
    fetched = handle.synchronize().tensors_fetched
    handle.detach()
    return flat(model.parameters()), fetched


def test_twenty_steps_end_with_bit_identical_replicas(run_ranks) -> None:
    results = run_ranks(train, 3, group=True)
    for parameters, fetched in results:
        assert torch.equal(parameters, results[0][0])
        assert fetched == 0


# ---------------------------------------------------------------------------------------------------- loss


def miss_something(member: Member) -> int:
    """Rank 1 comes when all is over: the shard that rank 0 sums has no other contributor, and is a hole."""
    model = wrapped(nn.Linear(12, 16 * 1024, bias=False))  # twelve tiles
    handle = holdfast.attach(model, deadline_ms=150.0, hadamard="on", join_timeout_s=20.0)
    (local,) = local_gradients(model, inputs_of(member.rank, 0))
    loss = model(inputs_of(member.rank, 0)).square().sum()
    member.barrier()
    if member.rank == 1:
        time.sleep(1.0)
    loss.backward()
    (outcome,) = handle.outcomes()
    gradient = model.module.weight.grad.reshape(-1)
    num_missing = sum(end - begin for begin, end in outcome.missing_coefficients)
    if member.rank == 0:
        assert 0.4 < num_missing / gradient.numel() < 0.6
        assert outcome.missing == (), "something of every block arrived"
        assert gradient.count_nonzero() >= 0.999 * gradient.numel()
        # Of the other shard rank 0 was the only contributor.
        expected = local.reshape(-1).clone()
        Hadamard().encode(expected, outcome.operation)
        for begin, end in outcome.missing_coefficients:
            expected[begin:end] = 0
        assert Hadamard().decode(expected, outcome.missing_coefficients, outcome.operation) == outcome.missing
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
        cosine = torch.nn.functional.cosine_similarity(gradient, local.reshape(-1), dim=0)
        assert 0.6 < cosine < 0.8, "half of the coefficients keep the direction but for an angle of 45 degrees"
        assert "1 of 1 results had some missing" in handle.explain()
    member.barrier()
    handle.detach()
    return num_missing


def test_what_did_not_arrive_is_made_up_for_by_the_rest(run_ranks) -> None:
    missing, _ = run_ranks(miss_something, 2, group=True)
    assert missing > 0


# ---------------------------------------------------------------------------------------------------- Inf, one rank


def scale(member: Member, settings: dict[str, Any]) -> tuple[list[float], torch.Tensor]:
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    handle = holdfast.attach(model, optimizer, **AMPLE, **settings)
    scales = []
    for step in range(4):
        before = flat(model.parameters()).clone()
        optimizer.zero_grad()
        loss = scaler.scale(model(inputs_of(member.rank, step)).mean())
        bad = (math.inf, math.nan)[step % 2]
        spoil = (lambda gradient, bad=bad: gradient.index_fill(0, _FIFTH, bad)) if step in (1, 2) else torch.clone
        spoiling = model.module.single[2].bias.register_hook(spoil if member.rank == 1 else torch.clone)
        loss.backward()
        spoiling.remove()
        found = [not parameter.grad.isfinite().all() for parameter in model.parameters()]
        assert any(found) == (step in (1, 2))
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        assert torch.equal(flat(model.parameters()), before) == (step in (1, 2))
    handle.detach()
    return scales, flat(model.parameters())


@pytest.mark.parametrize("settings", [{}, {"wire": "fp16"}], ids=str)
def test_a_gradscaler_finds_the_infinity_of_another_rank(run_ranks, settings: dict[str, Any]) -> None:
    (scales, parameters), (other_scales, other_parameters) = run_ranks(scale, 2, settings, group=True)
    assert scales == other_scales == [8.0, 4.0, 2.0, 2.0]
    assert parameters.isfinite().all()
    assert torch.equal(parameters, other_parameters)


def alone(member: Member) -> None:
    model = wrapped()
    handle = holdfast.attach(model, hadamard="on")
    wanted = flat(local_gradients(model, inputs_of(0, 0)))
    model(inputs_of(0, 0)).square().sum().backward()
    assert torch.equal(flat(parameter.grad for parameter in model.parameters()), wanted)
    assert handle.hadamard is None
    handle.detach()


def test_alone_nothing_is_sent_and_nothing_encoded(run_ranks) -> None:
    run_ranks(alone, 1, group=True)
