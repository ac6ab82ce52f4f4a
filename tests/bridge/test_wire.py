"""A 16-bit wire under real DDP: the average within its rounding, replicas alike, nothing lost, Inf still found."""

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
from holdfast.codec.cast import Cast, _Feedback
from holdfast.errors import BucketMismatch

AMPLE = {"deadline_ms": 20_000.0, "early_wait_floor_ms": 5_000.0, "join_timeout_s": 20.0}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 31), nn.Tanh(), nn.Linear(31, 31), nn.Tanh(), nn.Linear(31, 3))


def wrapped(model: nn.Module | None = None, **options: Any) -> DistributedDataParallel:
    torch.manual_seed(7)
    return DistributedDataParallel(perceptron() if model is None else model, **options)


def inputs_of(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(977 * step + rank))


def local_gradients(model: DistributedDataParallel, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    names, parameters = zip(*model.module.named_parameters(), strict=True)
    gradients = torch.autograd.grad(model.module(inputs).square().sum(), parameters)
    return dict(zip(names, gradients, strict=True))


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def residuals(handle: holdfast.Handle) -> dict[str, torch.Tensor]:
    assert isinstance(handle.cast, Cast)
    assert isinstance(handle.cast._rounding, _Feedback)
    return {name: kept.clone() for name, kept in handle.cast._rounding._residuals._of_parameter.items()}


# ---------------------------------------------------------------------------------------------------- the average


def compare_with_the_average(member: Member, wire: str, rounding: str, options: dict[str, Any]) -> list[torch.Tensor]:
    model = wrapped(**options)
    handle = holdfast.attach(model, wire=wire, rounding=rounding, **AMPLE)
    eps = torch.finfo(DTYPES[wire]).eps
    arrived_in_all, wanted_in_all, results = 0, 0, []
    for step in range(6):
        locals_ = [flat(local_gradients(model, inputs_of(rank, step)).values()) for rank in range(member.num_ranks)]
        model.zero_grad()
        model(inputs_of(member.rank, step)).square().sum().backward()
        arrived = flat(parameter.grad for parameter in model.parameters())
        wanted = torch.stack(locals_).double().mean(0)
        assert torch.equal(arrived, arrived.to(DTYPES[wire]).float()), "the result came over a 16-bit wire"
        # A step for every contribution and half a step for the result, of the largest of them; and the residual.
        assert (arrived - wanted).abs().max() <= 2.5 * eps * max(each.abs().max() for each in locals_)
        relative = (arrived - wanted).norm() / wanted.norm()
        assert relative < 2 * eps
        arrived_in_all, wanted_in_all = arrived_in_all + arrived.double(), wanted_in_all + wanted
        results.append(arrived)
    assert (arrived_in_all - wanted_in_all).norm() / wanted_in_all.norm() < eps
    for outcome in handle.outcomes():
        assert outcome.num_bytes == 2 * outcome.num_elements
    line = next(line for line in handle.explain().splitlines() if line.startswith("wire: "))
    assert {"bf16": "bfloat16", "fp16": "float16"}[wire] in line
    assert {"stochastic": "at random", "feedback": "added to the next gradient"}[rounding] in line
    assert handle.summary().delivered_ratio == 1.0
    handle.detach()
    return results


@pytest.mark.parametrize(
    ("wire", "rounding", "options"),
    [
        ("bf16", "stochastic", {}),
        ("bf16", "feedback", {"bucket_cap_mb": 0.001}),
        ("fp16", "stochastic", {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}),
        ("fp16", "feedback", {"static_graph": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value) or "plain",
)
def test_gradients_are_the_average_within_sixteen_bits(run_ranks, wire: str, rounding: str, options: Any) -> None:
    first, second = run_ranks(compare_with_the_average, 2, wire, rounding, options, group=True)
    for left, right in zip(first, second, strict=True):
        assert torch.equal(left, right)


def train(member: Member, wire: str, rounding: str) -> tuple[torch.Tensor, int]:
    model = wrapped(bucket_cap_mb=0.002)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = holdfast.attach(
        model,
        optimizer,
        wire=wire,
        rounding=rounding,
        deadline_floor_ms=20_000.0,
        early_wait_floor_ms=5_000.0,
        join_timeout_s=20.0,
    )
    for step in range(20):
        optimizer.zero_grad()
        model(inputs_of(member.rank, step)).square().mean().backward()
        optimizer.step()
    parameters = flat(model.parameters())
    fetched = handle.synchronize().tensors_fetched
    handle.detach()
    return parameters, fetched


@pytest.mark.parametrize(("wire", "rounding"), [("bf16", "stochastic"), ("fp16", "feedback")])
def test_twenty_steps_end_with_bit_identical_replicas(run_ranks, wire: str, rounding: str) -> None:
    """Through the warm-up, whose operations run exactly, and beyond it."""
    results = run_ranks(train, 3, wire, rounding, group=True)
    for parameters, fetched in results:
        assert torch.equal(parameters, results[0][0])
        assert fetched == 0


class MixedDtypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.single = nn.Linear(12, 17)
        self.wide = nn.Linear(17, 5).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.wide(torch.tanh(self.single(inputs)).double())


def mix(member: Member) -> None:
    model = wrapped(MixedDtypes())
    handle = holdfast.attach(model, wire="bf16", **AMPLE)
    locals_ = [local_gradients(model, inputs_of(rank, 0))["wide.weight"] for rank in range(2)]
    model(inputs_of(member.rank, 0)).square().sum().backward()
    torch.testing.assert_close(model.module.wide.weight.grad, (locals_[0] + locals_[1]) / 2, rtol=1e-15, atol=1e-15)
    sizes = {outcome.num_elements: outcome.num_bytes for outcome in handle.outcomes()}
    assert sizes == {12 * 17 + 17: 2 * (12 * 17 + 17), 17 * 5 + 5: 8 * (17 * 5 + 5)}
    handle.detach()


def test_other_dtypes_travel_as_they_are(run_ranks) -> None:
    run_ranks(mix, 2, group=True)


def alone(member: Member) -> None:
    model = wrapped()
    handle = holdfast.attach(model, wire="bf16")
    wanted = flat(local_gradients(model, inputs_of(0, 0)).values())
    model(inputs_of(0, 0)).square().sum().backward()
    assert torch.equal(flat(parameter.grad for parameter in model.parameters()), wanted)
    assert handle.cast is None
    handle.detach()


def test_alone_nothing_is_sent_and_nothing_rounded(run_ranks) -> None:
    run_ranks(alone, 1, group=True)


# ---------------------------------------------------------------------------------------------------- residuals


def follow_residuals(member: Member) -> tuple[int, int]:
    model = wrapped(bucket_cap_mb=0.001)
    handle = holdfast.attach(model, wire="bf16", rounding="feedback", **AMPLE)
    counts = []
    expected = {name: torch.zeros(parameter.numel()) for name, parameter in model.module.named_parameters()}
    for step in range(4):
        inputs = inputs_of(member.rank, step)
        gradients = local_gradients(model, inputs)
        if step == 2:  # accumulated here alone: nothing is sent, nothing rounded, no residual used up
            with model.no_sync():
                model(inputs_of(member.rank, 100)).square().sum().backward()
            assert all(torch.equal(kept, expected[name]) for name, kept in residuals(handle).items())
        model.zero_grad()
        before = len(handle.outcomes())
        model(inputs).square().sum().backward()
        counts.append(len(handle.outcomes()) - before)
        for name, gradient in gradients.items():
            wanted = gradient.reshape(-1) + expected[name]
            expected[name] = wanted - wanted.bfloat16().float()
        for name, kept in residuals(handle).items():
            torch.testing.assert_close(kept, expected[name], rtol=1e-4, atol=1e-6)
    assert any(kept.abs().max() > 0 for kept in expected.values())
    handle.load_state_dict(handle.state_dict())
    assert residuals(handle) == {}
    handle.detach()
    return counts[0], counts[-1]


def test_residuals_follow_their_parameters_into_rebuilt_buckets(run_ranks) -> None:
    for first, last in run_ranks(follow_residuals, 2, group=True):
        assert first != last, "DDP did not rebuild"


# ---------------------------------------------------------------------------------------------------- Inf, loss, mistakes


def scale(member: Member, wire: str) -> tuple[list[float], torch.Tensor]:
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    handle = holdfast.attach(model, optimizer, wire=wire, rounding="feedback", **AMPLE)
    scales = []
    for step in range(4):
        inputs = inputs_of(member.rank, step)
        if step == 1 and member.rank == 1:
            inputs[0, 0] = math.inf
        before = flat(model.parameters()).clone()
        optimizer.zero_grad()
        scaler.scale(model(inputs).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        assert torch.equal(flat(model.parameters()), before) == (step == 1)
    handle.detach()
    return scales, flat(model.parameters())


@pytest.mark.parametrize("wire", ["bf16", "fp16"])
def test_a_gradscaler_finds_the_infinity_of_another_rank(run_ranks, wire: str) -> None:
    (scales, parameters), (other_scales, other_parameters) = run_ranks(scale, 2, wire, group=True)
    assert scales == other_scales == [8.0, 4.0, 4.0, 4.0]
    assert parameters.isfinite().all()
    assert torch.equal(parameters, other_parameters)


def miss_something(member: Member) -> int:
    model = wrapped(nn.Linear(12, 4000, bias=False))
    handle = holdfast.attach(model, deadline_ms=150.0, wire="bf16", join_timeout_s=20.0)
    loss = model(inputs_of(member.rank, 0)).square().sum()
    member.barrier()
    if member.rank == 1:
        time.sleep(1.0)
    loss.backward()
    (outcome,) = handle.outcomes()
    gradient = model.module.weight.grad.reshape(-1)
    for begin, end in outcome.missing:
        assert not gradient[begin:end].any()
    assert outcome.missing_elements < gradient.numel()
    assert gradient.count_nonzero() >= 0.9 * (gradient.numel() - outcome.missing_elements)
    member.barrier()
    handle.detach()
    return outcome.missing_elements


def test_what_did_not_arrive_is_zero_and_marked_in_elements(run_ranks) -> None:
    missing, _ = run_ranks(miss_something, 2, group=True)
    assert missing > 0


def disagree(member: Member) -> None:
    model = wrapped()
    holdfast.attach(model, wire=("bf16", "float32")[member.rank], **AMPLE)
    with pytest.raises(BucketMismatch, match="dtype"):
        model(inputs_of(member.rank, 0)).sum().backward()


def test_ranks_with_different_wires_are_told(run_ranks) -> None:
    run_ranks(disagree, 2, group=True)
