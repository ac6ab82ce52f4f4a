"""Buffers are found as torch finds them, whatever was changed in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from holdfast.bridge.buffer_places import BufferPlaces


def model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3, affine=False))
    )


def put_another_in_its_place(module: nn.Module) -> None:
    module[1].running_mean = torch.ones(3)


def register_one(module: nn.Module) -> None:
    module[0].register_buffer("seen", torch.zeros(2))


def take_one_away(module: nn.Module) -> None:
    module[1]._buffers.pop("running_var", None)


def set_one_to_none(module: nn.Module) -> None:
    module[1].running_var = None


def add_a_module(module: nn.Module) -> None:
    module[2].append(nn.BatchNorm1d(3))


def put_another_module_in_its_place(module: nn.Module) -> None:
    module[1] = nn.BatchNorm1d(3, track_running_stats=False)
    module[1].register_buffer("other", torch.zeros(1))


def share_one(module: nn.Module) -> None:
    module[2][1].running_mean = module[1].running_mean


def move_one(module: nn.Module) -> None:
    module[1].register_buffer("moved", torch.zeros(3))
    module[0].register_buffer("moved", module[1]._buffers.pop("moved"))


def leave_it(module: nn.Module) -> None:
    pass


CHANGES = [
    leave_it,
    put_another_in_its_place,
    register_one,
    take_one_away,
    set_one_to_none,
    add_a_module,
    put_another_module_in_its_place,
    share_one,
    move_one,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_they_are_what_torch_finds(change: Callable[[nn.Module], None]) -> None:
    module = model()
    places = BufferPlaces(module)
    for _ in range(2):
        expected = list(module.named_buffers())
        found = places.named_buffers()
        assert [name for name, _ in found] == [name for name, _ in expected]
        assert all(buffer is other for (_, buffer), (_, other) in zip(found, expected, strict=True))
        change(module)
    assert [name for name, _ in places.named_buffers()] == [name for name, _ in module.named_buffers()]
