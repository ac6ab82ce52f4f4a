"""BatchNorm's statistics: averaged by Holdfast, alike on all ranks, and never a reason to wait."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
import torch
from rank_processes import Member
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast.bridge.buffers import BufferAverager
from holdfast.bridge.tensors import memory_of
from holdfast.control.hard_bound import HardBound
from holdfast.reduce.transpose import TransposeAllReduce

AMPLE = {"deadline_ms": 20_000.0, "early_wait_floor_ms": 5_000.0}


def inputs_of(rank: int, step: int) -> torch.Tensor:
    return torch.randn(16, 6, generator=torch.Generator().manual_seed(31 * step + rank)) + rank


class Reassigning(nn.Module):
    """Puts a new tensor in its buffer's place in every forward, as running averages often do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("unused", torch.empty(0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.mean = 0.5 * self.mean + 0.5 * inputs.detach().mean(0)
        return self.layer(inputs - self.mean)


def make(kind: str) -> nn.Module:
    torch.manual_seed(5)
    if kind == "reassigning":
        return Reassigning()
    if kind == "mixed":
        return nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 6), nn.BatchNorm1d(6).double(), nn.Linear(6, 2).double())
    return nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))


class Doubling(nn.Module):
    def __init__(self, inner: nn.Sequential) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        first, second, third, fourth = self.inner
        return fourth(third(second(first(inputs)).double()))


def buffers_after_steps(member: Member, kind: str, steps: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Floating-point buffers after some steps, and what an oracle that saw every rank's inputs says they are."""
    module = make(kind)
    if kind == "mixed":
        assert isinstance(module, nn.Sequential)
        module = Doubling(module)
    oracles = [copy.deepcopy(module) for _ in range(member.num_ranks)]
    model = DistributedDataParallel(module)
    handle = holdfast.attach(model, **AMPLE)
    for step in range(steps):
        model(inputs_of(member.rank, step)).sum().backward()
        for rank, oracle in enumerate(oracles):
            oracle(inputs_of(rank, step))
        by_rank = [[b for b in oracle.buffers() if b.is_floating_point()] for oracle in oracles]
        means = [torch.stack(values).mean(0) for values in zip(*by_rank, strict=True)]
        for oracle in oracles:
            for buffer, mean in zip((b for b in oracle.buffers() if b.is_floating_point()), means, strict=True):
                buffer.copy_(mean)
    handle._before_forward()
    buffers = [buffer.clone() for buffer in model.buffers() if buffer.is_floating_point()]
    assert handle.summary().delivered_ratio == 1.0
    handle.detach()
    return buffers, means


@pytest.mark.parametrize("kind", ["batchnorm", "mixed", "reassigning"])
def test_buffers_are_the_mean_over_ranks_after_every_step(run_ranks, kind: str) -> None:
    results = run_ranks(buffers_after_steps, 3, kind, 4, group=True)
    for buffers, expected in results:
        assert len(buffers) == len(expected)
        for buffer, first, reference in zip(buffers, results[0][0], expected, strict=True):
            assert torch.equal(buffer, first)  # bit for bit
            torch.testing.assert_close(buffer, reference, rtol=1e-5, atol=1e-6)


def left_alone(member: Member) -> tuple[list[float], bool, int]:
    model = DistributedDataParallel(make("batchnorm"), broadcast_buffers=False)
    handle = holdfast.attach(model, **AMPLE)
    model(inputs_of(member.rank, 0)).sum().backward()
    handle._before_forward()
    mean = model.module[1].running_mean.tolist()
    operations = handle.summary().operations
    handle.detach()
    return mean, model.broadcast_buffers, operations


def test_buffers_are_left_alone_where_ddp_would_leave_them(run_ranks) -> None:
    (first, first_setting, operations), (second, second_setting, _) = run_ranks(left_alone, 2, group=True)
    assert first != second
    assert not first_setting
    assert not second_setting
    assert operations == 1


def setting_restored(_member: Member) -> list[bool]:
    model = DistributedDataParallel(make("batchnorm"))
    settings = [model.broadcast_buffers]
    handle = holdfast.attach(model, **AMPLE)
    settings.append(model.broadcast_buffers)
    handle.detach()
    return [*settings, model.broadcast_buffers]


def test_ddp_broadcasts_again_after_detach(run_ranks) -> None:
    assert run_ranks(setting_restored, 2, group=True) == [[True, False, True]] * 2


def one_is_absent(member: Member) -> tuple[list[float], list[float], float]:
    """What does not arrive keeps this rank's value. The oracle is the buffer before."""
    reducer = TransposeAllReduce(member.join(deadline_ms=150.0))
    buffer = torch.arange(1000, dtype=torch.float32) + 1000 * member.rank
    averager = BufferAverager(reducer, lambda: [buffer, torch.tensor([3])])
    member.barrier()
    before = buffer.clone()
    started = time.monotonic()
    if member.rank != 1:
        averager.start()
        (outcome,) = averager.finish()
        for begin, end in outcome.missing:
            assert torch.equal(buffer[begin:end], before[begin:end])
        assert averager.finish() == []
    elapsed_s = time.monotonic() - started
    member.barrier()
    return before.tolist(), buffer.tolist(), elapsed_s


def test_what_does_not_arrive_keeps_the_own_value(run_ranks) -> None:
    (before, after, elapsed_s), _ = run_ranks(one_is_absent, 2)
    assert elapsed_s < 2.0
    # Half of it is this rank's shard, to which nobody contributed; the other half came back from the absent rank's
    # I/O thread with this rank's own contribution. Nothing was zeroed.
    assert after == pytest.approx(before)


def deadlines(member: Member) -> tuple[float, float]:
    reducer = TransposeAllReduce(member.join())
    reducer.adopt(HardBound.loaded(300.0, 4_000_000, 10.0))
    buffer = torch.ones(1000)
    averager = BufferAverager(reducer, lambda: [buffer])
    found = []
    gradients = torch.ones(1_000_000)
    for with_gradients in (False, True):
        pending = reducer.start(memory_of(gradients)) if with_gradients else None
        if pending is not None:
            assert reducer.finish(pending).num_bytes == 4_000_000  # also where these are done already
        averager.start(beside=pending)
        (outcome,) = averager.finish()
        found.append(outcome.deadline_ms)
    member.barrier()
    return found[0], found[1]


def test_buffers_may_take_as_long_as_the_gradients_beside_them(run_ranks) -> None:
    """The step waits for both. Else a pause of the floor's 10 ms leaves replicas unequal, although nobody was in a hurry."""
    for alone_ms, beside_ms in run_ranks(deadlines, 2):
        assert alone_ms == pytest.approx(20.0)
        assert beside_ms == pytest.approx(2 * 300.0 * 4_004_000 / 4_000_000)


def test_a_model_without_floating_buffers_starts_nothing() -> None:
    class Refusing:
        def start(self, *_args: Any, **_options: Any) -> None:
            raise AssertionError

    averager = BufferAverager(Refusing(), lambda: [torch.tensor([1]), torch.empty(0)])  # type: ignore[arg-type]
    averager.start()
    assert averager.finish() == []


def load_before_evaluating(member: Member) -> float:
    model = DistributedDataParallel(nn.Sequential(nn.Linear(inputs_of(0, 0).shape[1], 4), nn.BatchNorm1d(4)))
    handle = holdfast.attach(model, join_timeout_s=20.0)
    best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    best["module.1.running_mean"].fill_(42.0)
    model(inputs_of(member.rank, 0)).sum().backward()
    model.load_state_dict(best)
    model.eval()
    model(inputs_of(member.rank, 1))
    mean = float(model.module[1].running_mean[0])
    handle.detach()
    return mean


def test_a_loaded_checkpoint_is_not_overwritten_by_the_last_steps_average(run_ranks) -> None:
    assert run_ranks(load_before_evaluating, 2, group=True) == [42.0, 42.0]
