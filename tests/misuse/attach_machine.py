"""`holdfast.attach` and its handle, misused by one rank alone."""

from __future__ import annotations

import gc
from typing import Any

import arguments as odd
import torch
from caller import Caller
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast

_VERBS = ["summary", "explain", "outcomes", "synchronize", "state_dict", "detach"]


def small_model() -> DistributedDataParallel:
    return DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))


class AttachAlone(RuleBasedStateMachine):
    """`holdfast.attach` and its handle, through the whole of DDP, in a job of one."""

    def __init__(self) -> None:
        super().__init__()
        self.caller = Caller()
        self.model = small_model()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.handles: list[holdfast.Handle] = []

    @rule(settings=st.one_of(st.just({}), odd.settings), optimizer=st.booleans())
    def attach(self, settings: dict[str, Any], optimizer: bool) -> None:
        settings = {**settings, "join_timeout_s": 1.0}
        handle = self.caller.call(
            f"attach {settings}",
            lambda: holdfast.attach(self.model, self.optimizer if optimizer else None, **settings),
        )
        if handle is not None:
            self.handles.append(handle)

    @rule(what=st.sampled_from(["nothing", "number", "plain", "sparse", "complex", "unused"]))
    def attach_what_cannot_be(self, what: str) -> None:
        made: Any = {
            "nothing": lambda: None,
            "number": lambda: 7,
            "plain": lambda: nn.Linear(2, 2),
            "sparse": lambda: DistributedDataParallel(nn.Embedding(4, 2, sparse=True)),
            "complex": lambda: DistributedDataParallel(nn.Linear(2, 2, dtype=torch.complex64)),
            "unused": lambda: DistributedDataParallel(nn.Linear(2, 2), find_unused_parameters=True),
        }[what]()
        assert self.caller.call(f"attach {what}", lambda: holdfast.attach(made)) is None

    @rule(which=st.integers(0, 5), verb=st.sampled_from(_VERBS))
    def use(self, which: int, verb: str) -> None:
        if self.handles:
            handle = self.handles[which % len(self.handles)]
            self.caller.call(f"handle {which}: {verb}", getattr(handle, verb))

    @rule(which=st.integers(0, 5), state=odd.states)
    def load_state(self, which: int, state: Any) -> None:
        if self.handles:
            handle = self.handles[which % len(self.handles)]
            self.caller.call(f"handle {which}: load_state_dict {state!r}", lambda: handle.load_state_dict(state))

    @rule(backward=st.booleans(), step=st.booleans())
    def train(self, backward: bool, step: bool) -> None:
        def one_step() -> None:
            loss = self.model(torch.ones(2, 3)).sum()
            if backward:
                loss.backward()
            if step:
                self.optimizer.step()

        self.caller.call(f"train {backward=} {step=}", one_step)

    @rule(which=st.integers(0, 5))
    def detach_twice_at_once(self, which: int) -> None:
        if self.handles:
            handle = self.handles[which % len(self.handles)]
            for _ in range(2):
                self.caller.spawn(f"handle {which}: detach", handle.detach)
            self.caller.join()

    @rule()
    def forget(self) -> None:
        """The handles; the model keeps the one that is attached."""
        self.handles.clear()
        self.caller.call("collect", gc.collect)

    def teardown(self) -> None:
        for handle in self.handles:
            self.caller.call("detach", handle.detach)
