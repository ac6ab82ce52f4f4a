"""Knowing when the optimizer of a model is about to change its parameters, and when it has.

torch calls global hooks around every optimizer's `step()`. Those of optimizers that hold a parameter of this model are
passed on, so nobody has to name an optimizer; one that is named is the only one listened to.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

# Those whose listener was forgotten stay with torch until somebody else begins to listen: torch goes through its hooks
# while it calls them, and none may be taken away then.
_registered: list[StepHooks] = []


class StepHooks:
    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        optimizer: torch.optim.Optimizer | None,
        before_step: Callable[[], None],
        after_step: Callable[[], None],
    ) -> None:
        self._parameters = {id(parameter) for parameter in parameters}
        self._given = optimizer is not None
        self._optimizers = [] if optimizer is None else [weakref.ref(optimizer)]
        # Weak: torch keeps global hooks for ever, and nobody should be kept alive by them.
        self._before_step = weakref.WeakMethod(before_step)
        self._after_step = weakref.WeakMethod(after_step)
        for forgotten in [hooks for hooks in _registered if hooks._before_step() is None]:
            forgotten.remove()
        _registered.append(self)
        self._hooks = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """In the order in which they were seen, which is that of the program and so the same on all ranks."""
        return [optimizer for reference in self._optimizers if (optimizer := reference()) is not None]

    def remove(self) -> None:
        """Harmless when repeated."""
        for hook in self._hooks:
            hook.remove()
        if self in _registered:
            _registered.remove(self)

    def _before(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._pass_on(self._before_step, optimizer)

    def _after(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._pass_on(self._after_step, optimizer)

    def _pass_on(self, method: weakref.WeakMethod[Callable[[], None]], optimizer: torch.optim.Optimizer) -> None:
        call = method()
        if call is not None and self._is_ours(optimizer):
            call()

    def _is_ours(self, optimizer: torch.optim.Optimizer) -> bool:
        if any(reference() is optimizer for reference in self._optimizers):
            return True
        if self._given or not self._holds_ours(optimizer):
            return False
        self._optimizers.append(weakref.ref(optimizer))
        return True

    def _holds_ours(self, optimizer: torch.optim.Optimizer) -> bool:
        return any(
            id(parameter) in self._parameters for group in optimizer.param_groups for parameter in group["params"]
        )
