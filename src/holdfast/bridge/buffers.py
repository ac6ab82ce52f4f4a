"""Module buffers (BatchNorm's running statistics) kept alike without a barrier.

DDP broadcasts rank 0's buffers over the default group before every forward: a TCP barrier that waits for the slowest
rank. While attached, floating-point buffers are averaged instead, by a bounded all-reduce that starts with the last
bucket of the backward pass and is waited for before the optimizer's step, within its deadline. What does not arrive is
what it was before the forward: the same on all ranks, where this rank's own value is not. Integer buffers (counters)
advance alike on all ranks and are compared by `synchronize()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from holdfast.bridge.tensors import FORMATS, layout_of, memory_of
from holdfast.errors import OperationError
from holdfast.outcome import Outcome
from holdfast.reduce.pending import Pending
from holdfast.reduce.reducer import Reducer


class BufferAverager:
    def __init__(self, reducer: Reducer, buffers: Callable[[], Iterable[torch.Tensor]]) -> None:
        self._reducer = reducer
        self._buffers = buffers
        self._pending: list[tuple[_Group, Pending]] = []
        self._before_forward: dict[int, torch.Tensor] = {}  # by buffer
        self._averaged = True

    def remember(self) -> None:
        """Called before a forward, which changes them on every rank in its own way."""
        if self._averaged:  # else another forward has changed them already
            self._before_forward = {id(buffer): buffer.detach().clone() for buffer in self._buffers()}
            self._averaged = False

    @torch.no_grad()
    def undo_forward(self) -> None:
        """That forward was one that nobody else makes: its statistics are not to be averaged with theirs."""
        for buffer in self._buffers():
            if buffer.dtype in FORMATS and id(buffer) in self._before_forward:
                buffer.copy_(self._before_forward[id(buffer)])

    def start(self, beside: Pending | None = None) -> None:
        """Called by every rank at the same place in the order of operations: after the last bucket.

        `beside`: that bucket. The step waits for it, too, and buffers that a short bound of their own cuts off are
        unequal for nothing.
        """
        beside_bytes = 0 if beside is None else beside.memory.num_bytes + beside.bytes_ahead
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for buffer in self._buffers():  # asked for each time: a module may put another tensor in a buffer's place
            if buffer.dtype in FORMATS and buffer.numel() > 0:
                by_dtype.setdefault(buffer.dtype, []).append(buffer)
        for buffers in by_dtype.values():
            group = _Group(buffers, [self._before_forward.get(id(buffer), buffer) for buffer in buffers])
            pending = self._reducer.start(memory_of(group.flat), layout=group.layout, beside_bytes=beside_bytes)
            self._pending.append((group, pending))

    def finish(self) -> list[Outcome]:
        """Waits, at most until the deadline, and installs what arrived."""
        outcomes = []
        while self._pending:
            group, pending = self._pending[0]
            try:
                outcome = self._reducer.finish(pending)
            except OperationError:
                del self._pending[0]  # it has ended; an interrupted one has not, and still writes into its memory
                raise
            del self._pending[0]
            group.scatter(outcome.missing)
            self._averaged = True
            outcomes.append(outcome)
        return outcomes


class _Group:
    """Buffers of one dtype, flattened into one operation."""

    @torch.no_grad()
    def __init__(self, buffers: list[torch.Tensor], before_forward: list[torch.Tensor]) -> None:
        self.buffers = buffers
        self._before_forward = before_forward
        self.versions = [buffer._version for buffer in buffers]
        self.flat = torch.cat([buffer.reshape(-1) for buffer in buffers])
        self.layout = layout_of([(f"buffer {index}", buffer.shape) for index, buffer in enumerate(buffers)])

    @torch.no_grad()
    def scatter(self, missing: Sequence[tuple[int, int]]) -> None:
        if missing:
            before = torch.cat([buffer.reshape(-1) for buffer in self._before_forward])
            for begin, end in missing:
                self.flat[begin:end] = before[begin:end]
        offset = 0
        for buffer, version in zip(self.buffers, self.versions, strict=True):
            # Whoever wrote to a buffer since, a loaded checkpoint above all, knows better than the last step.
            if buffer._version == version:
                buffer.copy_(self.flat[offset : offset + buffer.numel()].view_as(buffer))
            offset += buffer.numel()
