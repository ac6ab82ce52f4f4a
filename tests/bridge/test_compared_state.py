"""The state of a step is cut as if it were found anew each time, whatever was replaced in between."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from holdfast.bridge.compared_state import ComparedState
from holdfast.bridge.state_blocks import StateBlocks


class Trained:
    def __init__(self) -> None:
        torch.manual_seed(3)
        self.module = nn.Sequential(nn.Linear(64, 200), nn.BatchNorm1d(200), nn.ReLU(), nn.Linear(200, 3))
        self.optimizers = [torch.optim.AdamW(self.module.parameters(), lr=0.01)]
        self.state = ComparedState()
        self.step()

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.module(torch.randn(8, 64)).square().mean().backward()
        for optimizer in self.optimizers:
            optimizer.step()

    def blocks(self, state: ComparedState | None = None) -> StateBlocks:
        parameters = self.module.named_parameters
        return (state or self.state).blocks(lambda: list(parameters()), self.module.named_buffers(), self.optimizers)


def load_a_checkpoint(trained: Trained) -> None:
    trained.optimizers[0].load_state_dict(copy.deepcopy(trained.optimizers[0].state_dict()))


def give_a_parameter_other_memory(trained: Trained) -> None:
    trained.module[0].weight.data = trained.module[0].weight.data * 2


def put_another_buffer_in_its_place(trained: Trained) -> None:
    trained.module[1].running_mean = torch.full((200,), 7.0)


def add_a_buffer(trained: Trained) -> None:
    trained.module[0].register_buffer("seen", torch.arange(5))


def forget_what_the_optimizer_kept(trained: Trained) -> None:
    trained.optimizers[0].state.clear()


def step_with_a_second_optimizer(trained: Trained) -> None:
    trained.optimizers.append(torch.optim.SGD(trained.module.parameters(), lr=0.1, momentum=0.5))
    trained.step()


CHANGES = [
    Trained.step,
    load_a_checkpoint,
    give_a_parameter_other_memory,
    put_another_buffer_in_its_place,
    add_a_buffer,
    forget_what_the_optimizer_kept,
    step_with_a_second_optimizer,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_was_found_before_does_not_show(change: Callable[[Trained], None]) -> None:
    trained = Trained()
    trained.blocks()
    change(trained)
    known, anew = trained.blocks(), trained.blocks(ComparedState())
    assert known.layout == anew.layout
    assert known.num_blocks == anew.num_blocks > 1
    everything = range(anew.num_blocks)
    assert known.fingerprints(everything) == anew.fingerprints(everything)
    assert known.names_in(everything) == anew.names_in(everything)
    assert known.is_still(anew)
    assert known.is_untouched()


def test_blocks_of_the_step_before_know_that_it_is_over() -> None:
    trained = Trained()
    before = trained.blocks()
    trained.step()
    after = trained.blocks()
    assert not before.is_untouched()
    assert not before.is_still(after)
    assert after.is_untouched()


def test_buffers_are_as_they_were_after_the_step() -> None:
    trained = Trained()
    trained.blocks()
    blocks = trained.blocks()
    everything = range(blocks.num_blocks)
    before = blocks.fingerprints(everything)
    trained.module(torch.randn(8, 64))
    assert blocks.fingerprints(everything) == before


def test_parameters_are_asked_for_only_when_something_was_replaced() -> None:
    trained, asked = Trained(), []

    def parameters() -> list[tuple[str, nn.Parameter]]:
        asked.append(1)
        return list(trained.module.named_parameters())

    for _ in range(3):
        trained.state.blocks(parameters, trained.module.named_buffers(), trained.optimizers)
        trained.step()
    assert len(asked) == 1
