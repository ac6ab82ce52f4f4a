"""Hearing of an optimizer's steps without being given the optimizer."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

from holdfast.bridge import step_hooks
from holdfast.bridge.step_hooks import StepHooks


class Listener:
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        self.heard: list[str] = []
        self.hooks = StepHooks(model.parameters(), optimizer, self.before, self.after)

    def before(self) -> None:
        self.heard.append("before")

    def after(self) -> None:
        self.heard.append("after")


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def test_an_optimizer_of_the_model_is_found_and_others_are_not() -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer, stranger = torch.optim.Adam(model.parameters()), torch.optim.SGD(other.parameters(), lr=0.1)
    listener = Listener(model)
    step(other, stranger)
    assert listener.heard == []
    step(model, optimizer)
    step(model, optimizer)
    assert listener.heard == ["before", "after"] * 2
    assert listener.hooks.optimizers == [optimizer]
    listener.hooks.remove()
    listener.hooks.remove()
    step(model, optimizer)
    assert len(listener.heard) == 4


def test_one_that_is_given_is_the_only_one() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    first, second = (torch.optim.SGD(layer.parameters(), lr=0.1) for layer in model)
    listener = Listener(model, second)
    assert listener.hooks.optimizers == [second]
    step(model, first)
    assert listener.heard == []
    step(model, second)
    assert listener.heard == ["before", "after"]
    listener.hooks.remove()


def test_several_are_kept_in_the_order_of_their_first_steps() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    first, second = (torch.optim.SGD(layer.parameters(), lr=0.1) for layer in model)
    listener = Listener(model)
    step(model, second)
    step(model, first)
    assert listener.hooks.optimizers == [second, first]
    listener.hooks.remove()


def test_hooks_keep_nobody_alive() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    listener = Listener(model)
    gone = weakref.ref(listener)
    del listener
    gc.collect()
    assert gone() is None
    step(model, optimizer)  # torch still has them, and nobody is called
    other = Listener(model)
    assert step_hooks._registered == [other.hooks]
    other.hooks.remove()
    assert step_hooks._registered == []
