"""All that must be equal on all ranks, cut into blocks that can be compared, read and written one by one.

A block holds a stretch of a parameter and, of the same elements, all that its optimizer keeps. Optimizers that work
element by element make the next state of a block from that block and the gradient alone: once it is equal it stays so,
even while others still differ. Small parameters share a block. The cut follows from names and shapes and is the same on
every rank.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from holdfast import _native

LEAST_BLOCK_BYTES = 15 << 10
"""With its heading a small note, which goes before gradients: behind them it comes too late for the step that it is for,
and a rank that was away is unequal for forty steps instead of six."""
MOST_BLOCKS = 4096


@dataclass(frozen=True)
class NamedTensor:
    name: str
    tensor: torch.Tensor
    """What is compared and handed out: the tensor itself, or a copy of it as it was after the step."""
    counter: torch.Tensor | None = None
    """An integer buffer that has gone on counting since `tensor` was copied: a difference is added to it."""
    read_only: bool = False
    """Compared, and not written: what makes it equal again is something else."""


@dataclass(frozen=True)
class _Piece:
    """Bytes of one tensor."""

    index: int
    begin: int
    end: int

    @property
    def num_bytes(self) -> int:
        return self.end - self.begin


class StateBlocks:
    def __init__(self, groups: Sequence[Sequence[NamedTensor]]) -> None:
        """Each group is a parameter with what belongs to it, or anything else that stands for itself."""
        kept = [[named for named in group if named.tensor.numel() > 0] for group in groups]
        self._tensors = [named for group in kept for named in group]
        self.num_bytes = sum(named.tensor.numel() * named.tensor.element_size() for named in self._tensors)
        self.block_bytes = max(LEAST_BLOCK_BYTES, -(-self.num_bytes // MOST_BLOCKS))
        """About so much; what must be together is."""
        self._blocks: list[list[_Piece]] = []
        room, first = 0, 0
        for group in kept:
            for stretch in self._stretches(first, group):
                size = sum(piece.num_bytes for piece in stretch)
                if size > room:
                    self._blocks.append([])
                    room = self.block_bytes
                self._blocks[-1] += stretch
                room -= size
            first += len(group)
        text = ";".join(
            f"{named.name}:{named.tensor.dtype}:{tuple(named.tensor.shape)}:{named.tensor.stride()}"
            for named in self._tensors
        )
        self._marks = _marks_of(self._tensors)
        self.layout = zlib.crc32(text.encode())
        """A number that differs between ranks whose state has other names, shapes or dtypes."""

    def renewed(self, copies: Sequence[NamedTensor]) -> StateBlocks:
        """The same state after another step: the last tensors are new copies, the others are what and where they were."""
        now = copy.copy(self)
        now._tensors = [*self._tensors[: len(self._tensors) - len(copies)], *copies]
        now._marks = _marks_of(now._tensors)
        return now

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    def _stretches(self, first: int, group: Sequence[NamedTensor]) -> list[list[_Piece]]:
        """Of a group whose tensors begin with number `first`: the same elements of all that have as many."""
        if not group:
            return []
        count = max(named.tensor.numel() for named in group)
        together = [index for index, named in enumerate(group) if named.tensor.numel() == count]
        width = sum(group[index].tensor.element_size() for index in together)
        length = max(1, self.block_bytes // width)
        stretches = [
            [
                _Piece(first + index, begin * size, min(begin + length, count) * size)
                for index in together
                for size in [group[index].tensor.element_size()]
            ]
            for begin in range(0, count, length)
        ]
        for index, named in enumerate(group):
            if index not in together:
                stretches[0].append(_Piece(first + index, 0, named.tensor.numel() * named.tensor.element_size()))
        return stretches

    def is_untouched(self) -> bool:
        """Nobody has written to these tensors since, or given them other memory."""
        return self._marks == _marks_of(self._tensors)

    def is_still(self, now: StateBlocks) -> bool:
        """`now` is the same state, of which only copies were made anew."""
        copied = [named.counter is not None or named.read_only for named in self._tensors]
        return self.layout == now.layout and all(
            is_copy or before == after for is_copy, before, after in zip(copied, self._marks, now._marks, strict=True)
        )

    def fingerprints(self, blocks: Sequence[int]) -> list[int]:
        flat: dict[int, torch.Tensor] = {}
        pieces = []
        for place, block in enumerate(blocks):
            for piece in self._blocks[block]:
                if piece.index not in flat:
                    flat[piece.index] = _bytes_of(self._tensors[piece.index].tensor)
                pieces.append((place, flat[piece.index].data_ptr() + piece.begin, piece.num_bytes))
        return _native.fingerprints(len(blocks), pieces)

    def size_of(self, block: int) -> int:
        return sum(piece.num_bytes for piece in self._blocks[block])

    def read(self, block: int) -> bytes:
        parts = [_bytes_of(self._tensors[piece.index].tensor)[piece.begin : piece.end] for piece in self._blocks[block]]
        return b"".join(part.numpy().tobytes() for part in parts)

    @torch.no_grad()
    def write(self, block: int, content: bytes) -> float:
        """Installs what `read` gave elsewhere. Returns by how much it differed: |new - old| / |new|, of floats."""
        if len(content) != self.size_of(block):
            raise ValueError(f"block {block} has {self.size_of(block)} bytes, not {len(content)}")
        at = 0
        difference = norm = 0.0
        for piece in self._blocks[block]:
            named = self._tensors[piece.index]
            new = torch.frombuffer(bytearray(content[at : at + piece.num_bytes]), dtype=torch.uint8)
            at += piece.num_bytes
            if named.counter is not None:
                _count_on(named.counter, named.tensor, piece, new)
            elif not named.read_only:
                flat = _bytes_of(named.tensor)
                if named.tensor.is_floating_point():
                    old_values = flat[piece.begin : piece.end].clone().view(named.tensor.dtype).double()
                    new_values = new.view(named.tensor.dtype).double()
                    difference += float(((new_values - old_values) ** 2).sum())
                    norm += float((new_values**2).sum())
                flat[piece.begin : piece.end] = new
                if flat.data_ptr() != named.tensor.data_ptr():  # the bytes were a copy
                    named.tensor.copy_(flat.view(named.tensor.dtype).view(named.tensor.shape))
        return (difference / norm) ** 0.5 if norm else 0.0

    def names_in(self, blocks: Iterable[int]) -> list[str]:
        """Whose bytes these are, in order, each once."""
        indices = dict.fromkeys(piece.index for block in blocks for piece in self._blocks[block])
        return [self._tensors[index].name for index in indices]


def _marks_of(tensors: Iterable[NamedTensor]) -> list[tuple[int, int]]:
    return [(named.tensor.data_ptr(), named.tensor._version) for named in tensors]


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's memory as bytes, in the order in which it lies there; a copy only where it has gaps."""
    tensor = tensor.detach()
    if not tensor.is_contiguous():
        dense = torch.empty_like(tensor).stride() == tensor.stride()  # channels last, a transposed weight
        tensor = tensor.as_strided((tensor.numel(),), (1,)) if dense else tensor.contiguous()
    return tensor.reshape(-1).view(torch.uint8)


def _count_on(counter: torch.Tensor, copied: torch.Tensor, piece: _Piece, new: torch.Tensor) -> None:
    """The forward in between has gone on from what was copied."""
    elements = slice(piece.begin // copied.element_size(), piece.end // copied.element_size())
    difference = torch.zeros_like(copied).reshape(-1)
    difference[elements] = new.view(copied.dtype) - copied.reshape(-1)[elements]
    counter += difference.view(counter.shape)
