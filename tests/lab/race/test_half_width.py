"""The rival with half the bytes: what it hands to the collective has two bytes an element."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from rank_processes import Member
from torch.nn.parallel import DistributedDataParallel

from holdfast.lab.race.half_width import half_width_hook

# Whoever lets go of the last model joins Gloo's thread, with the interpreter's lock, and that thread may be waiting for
# the lock to let go of the hook: that hung whole runs of the tests. So models go with their process.
KEPT: list[DistributedDataParallel] = []


def train_a_step(member: Member) -> tuple[list[torch.dtype], list[torch.dtype]]:
    sent: list[torch.dtype] = []
    all_reduce = dist.all_reduce

    def watched(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        sent.append(tensor.dtype)
        return all_reduce(tensor, *arguments, **options)

    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    KEPT.append(model)
    model.register_comm_hook(None, half_width_hook)
    with mock.patch.object(dist, "all_reduce", watched):
        model(torch.ones(3, 4)).sum().backward()
    return sent, [parameter.grad.dtype for parameter in model.parameters() if parameter.grad is not None]


def test_gradients_go_out_in_two_bytes(run_ranks) -> None:
    ((sent, kept),) = run_ranks(train_a_step, 1, group=True)
    assert sent == [torch.bfloat16]
    assert kept == [torch.float32] * 2
