"""The rival with half the bytes: what it hands to the collective has two bytes an element."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from holdfast.lab.race.half_width import half_width_hook


def test_gradients_go_out_in_two_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[torch.dtype] = []
    all_reduce = dist.all_reduce

    def watched(tensor: torch.Tensor, *arguments: object, **options: object) -> object:
        sent.append(tensor.dtype)
        return all_reduce(tensor, *arguments, **options)

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        model = DistributedDataParallel(torch.nn.Linear(4, 2))
        model.register_comm_hook(None, half_width_hook)
        monkeypatch.setattr(dist, "all_reduce", watched)
        model(torch.ones(3, 4)).sum().backward()
        assert sent == [torch.bfloat16]
        assert all(
            parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in model.parameters()
        )
    finally:
        dist.destroy_process_group()
