"""Loss feedback under real DDP: what a late rank could not give comes with its next gradient, into other buckets."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from rank_processes import Member
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast

# A stage lasts a second at most, so nobody but the rank that sleeps for longer is late.
SETTINGS = {"deadline_ms": 2_000.0, "early_wait_floor_ms": 900.0, "join_timeout_s": 20.0, "loss_feedback": True}
LATE_S = 1.4


class TwoKinds(nn.Module):
    """Float32, and a bucket of float64, which is left alone."""

    def __init__(self) -> None:
        super().__init__()
        self.single = nn.Sequential(nn.Linear(12, 140), nn.Tanh(), nn.Linear(140, 40), nn.Linear(40, 7))
        self.wide = nn.Linear(7, 5).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.wide(torch.tanh(self.single(inputs)).double())


def inputs_of(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(977 * step + rank))


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1).double() for tensor in tensors])


def local_gradient(model: DistributedDataParallel, rank: int, step: int) -> torch.Tensor:
    parameters = list(model.module.single.parameters())
    return flat(torch.autograd.grad(model.module(inputs_of(rank, step)).square().sum(), parameters))


def attached(settings: dict[str, Any]) -> tuple[DistributedDataParallel, holdfast.Handle]:
    torch.manual_seed(7)
    model = DistributedDataParallel(TwoKinds(), bucket_cap_mb=0.01)
    return model, holdfast.attach(model, **{**SETTINGS, **settings})


def one_step(member: Member, model: DistributedDataParallel, step: int, late_rank: int | None) -> torch.Tensor:
    """The averaged float32 gradient."""
    model.zero_grad()
    loss = model(inputs_of(member.rank, step)).square().sum()
    member.barrier()
    if member.rank == late_rank:
        time.sleep(LATE_S)
    loss.backward()
    return flat(parameter.grad for parameter in model.module.single.parameters())


def late_once(member: Member, settings: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of what three steps applied and of the means that they should have; rank 2 misses the first step."""
    model, handle = attached(settings)
    applied = sum(one_step(member, model, step, 2 if step == 0 else None) for step in range(3))
    wanted = sum(local_gradient(model, rank, step) for step in range(3) for rank in range(member.num_ranks))
    complete = [outcome.complete for outcome in handle.outcomes()]
    assert not complete[0]
    assert all(complete[-2:])
    assert all(outcome.counted == () for outcome in handle.outcomes()), "what has done its work is not kept"
    assert "is added to the parameter's next gradient" in handle.explain()
    member.barrier()
    handle.detach()
    return applied, wanted / member.num_ranks


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({"estimate": "zero_fill"}, 1e-6),
        ({"hadamard": "on"}, 1e-6),
        ({"wire": "bf16", "rounding": "feedback"}, 2e-2),
    ],
    ids=str,
)
def test_a_late_gradient_counts_a_step_later(run_ranks, settings: dict[str, Any], tolerance: float) -> None:
    for applied, wanted in run_ranks(late_once, 3, settings, group=True):
        assert (applied - wanted).norm() < tolerance * wanted.norm()


def late_and_left_out(member: Member) -> tuple[torch.Tensor, torch.Tensor]:
    """Of two ranks one is late: nobody but the own rank contributed to anything, and the update is left out."""
    model, handle = attached({})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    one_step(member, model, 0, 1)
    optimizer.step()
    gradient = one_step(member, model, 1, None)
    wanted = torch.stack([local_gradient(model, rank, 1) for rank in range(member.num_ranks)]).mean(0)
    member.barrier()
    handle.detach()
    return gradient, wanted


def test_nothing_returns_of_an_update_that_is_left_out(run_ranks) -> None:
    for gradient, wanted in run_ranks(late_and_left_out, 2, group=True):
        assert (gradient - wanted).norm() < 1e-6 * wanted.norm()


def in_groups(member: Member) -> str:
    model, handle = attached({"hierarchy": 2})
    one_step(member, model, 0, None)
    text = handle.explain()
    member.barrier()
    handle.detach()
    return text


def test_in_groups_it_is_off_and_says_so(run_ranks) -> None:
    for text in run_ranks(in_groups, 4, group=True):
        assert "losses: what is lost is not sent again, for in groups nobody knows what it was" in text
