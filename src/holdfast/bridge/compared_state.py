"""What of a model and its optimizers must be equal on all ranks, as blocks, after every step.

Found once, and again when something was replaced: a loaded checkpoint, an optimizer's first step. Else a step costs a
look at every tensor, and a copy of each buffer, which the next forward changes while it is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from holdfast.bridge.equality import optimizer_state
from holdfast.bridge.state_blocks import NamedTensor, StateBlocks
from holdfast.bridge.tensors import FORMATS

_COUNTERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

Named = Iterable[tuple[str, torch.Tensor]]


class ComparedState:
    def __init__(self) -> None:
        self._views: list[tuple[torch.Tensor, torch.Tensor]] = []  # what lies in the model, and how it is compared
        self._found: list[object] = []
        self._blocks: StateBlocks | None = None

    def blocks(
        self,
        parameters: Callable[[], Named],
        buffers: Named,
        optimizers: Sequence[torch.optim.Optimizer],
    ) -> StateBlocks:
        """As it is now. `parameters` are only asked for where something was replaced: DDP has them for good."""
        kept = [
            (parameter, f"{name} of optimizer {number}", tensor)
            for number, optimizer in enumerate(optimizers)
            for parameter, name, tensor in optimizer_state(optimizer)
        ]
        compared = [(name, buffer) for name, buffer in buffers if _is_compared_buffer(buffer)]
        copies = [_copy_of(name, buffer) for name, buffer in compared]
        found = [*(id(tensor) for _, _, tensor in kept), *((name, each.dtype, each.shape) for name, each in compared)]
        if self._blocks is not None and found == self._found and all(map(_is_where_it_was, self._views)):
            self._blocks = self._blocks.renewed(copies)
        else:
            self._found = found
            self._blocks = StateBlocks([*self._find(parameters(), kept), *([copied] for copied in copies)])
        return self._blocks

    def _find(
        self, parameters: Named, kept: Sequence[tuple[torch.Tensor, str, torch.Tensor]]
    ) -> list[list[NamedTensor]]:
        """Each parameter with what its optimizers keep of it."""
        self._views = []
        groups = {
            id(parameter): [NamedTensor(name, self._view_of(parameter))]
            for name, parameter in parameters
            if _is_compared(parameter)
        }
        for parameter, name, tensor in kept:
            if id(parameter) in groups and _is_compared(tensor):
                groups[id(parameter)].append(NamedTensor(name, self._view_of(tensor)))
        return list(groups.values())

    def _view_of(self, tensor: torch.Tensor) -> torch.Tensor:
        view = tensor.detach()
        self._views.append((tensor, view))
        return view


def _is_compared(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.numel() > 0


def _is_compared_buffer(buffer: torch.Tensor) -> bool:
    return _is_compared(buffer) and (buffer.dtype in FORMATS or buffer.dtype in _COUNTERS)


def _is_where_it_was(found: tuple[torch.Tensor, torch.Tensor]) -> bool:
    tensor, view = found
    return tensor.data_ptr() == view.data_ptr() and tensor.shape == view.shape


def _copy_of(name: str, buffer: torch.Tensor) -> NamedTensor:
    """The next forward goes on with it while it is compared. An average makes it equal by itself, a counter not."""
    copied = buffer.detach().clone()
    return NamedTensor(name, copied, buffer if buffer.dtype in _COUNTERS else None, read_only=buffer.dtype in FORMATS)
