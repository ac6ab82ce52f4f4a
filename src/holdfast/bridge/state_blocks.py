"""All that must be equal on all ranks, cut into blocks that can be compared, read and written one by one.

The bytes of all tensors, one after the other, are one long string; a block is a fixed stretch of it, so that many small
tensors share one and a large one has many. The cut follows from names and shapes alone and is the same on every rank.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from holdfast import _native

LEAST_BLOCK_BYTES = 64 << 10
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


class StateBlocks:
    def __init__(self, tensors: Sequence[NamedTensor]) -> None:
        self._tensors = [named for named in tensors if named.tensor.numel() > 0]
        self._starts: list[int] = []
        total = 0
        for named in self._tensors:
            self._starts.append(total)
            total += named.tensor.numel() * named.tensor.element_size()
        self.num_bytes = total
        self.block_bytes = max(LEAST_BLOCK_BYTES, -(-total // MOST_BLOCKS))
        self.num_blocks = -(-total // self.block_bytes)
        text = ";".join(f"{named.name}:{named.tensor.dtype}:{tuple(named.tensor.shape)}" for named in self._tensors)
        self.layout = zlib.crc32(text.encode())
        """A number that differs between ranks whose state has other names, shapes or dtypes."""

    def fingerprints(self, blocks: Sequence[int]) -> list[int]:
        flat = {}
        pieces = []
        for place, block in enumerate(blocks):
            for index, begin, end in self._pieces(block):
                if index not in flat:
                    flat[index] = _bytes_of(self._tensors[index].tensor)
                pieces.append((place, flat[index].data_ptr() + begin, end - begin))
        return _native.fingerprints(len(blocks), pieces)

    def size_of(self, block: int) -> int:
        return min(self.block_bytes, self.num_bytes - block * self.block_bytes)

    def read(self, block: int) -> bytes:
        parts = [_bytes_of(self._tensors[index].tensor)[begin:end] for index, begin, end in self._pieces(block)]
        return b"".join(part.numpy().tobytes() for part in parts)

    @torch.no_grad()
    def write(self, block: int, content: bytes) -> float:
        """Installs what `read` gave elsewhere. Returns by how much it differed: |new - old| / |new|, of floats."""
        if len(content) != self.size_of(block):
            raise ValueError(f"block {block} has {self.size_of(block)} bytes, not {len(content)}")
        at = 0
        difference = norm = 0.0
        for index, begin, end in self._pieces(block):
            named = self._tensors[index]
            new = torch.frombuffer(bytearray(content[at : at + end - begin]), dtype=torch.uint8)
            at += end - begin
            if named.read_only:
                continue
            if named.counter is not None:
                _count_on(named.counter, named.tensor, begin, new)
                continue
            flat = _bytes_of(named.tensor)
            if named.tensor.is_floating_point():
                # A block boundary may cut an element in two; what is left of it is only not measured.
                step = named.tensor.element_size()
                inner = slice(-begin % step, (end - begin) - (end % step))
                old_values = flat[begin:end][inner].clone().view(named.tensor.dtype).double()
                new_values = new[inner].clone().view(named.tensor.dtype).double()
                difference += float(((new_values - old_values) ** 2).sum())
                norm += float((new_values**2).sum())
            flat[begin:end] = new
            if flat.data_ptr() != named.tensor.data_ptr():  # the bytes were a copy
                named.tensor.copy_(flat.view(named.tensor.dtype).view(named.tensor.shape))
        return (difference / norm) ** 0.5 if norm else 0.0

    def names_in(self, blocks: Iterable[int]) -> list[str]:
        """Whose bytes these are, in order, each once."""
        indices = dict.fromkeys(index for block in blocks for index, _, _ in self._pieces(block))
        return [self._tensors[index].name for index in indices]

    def _pieces(self, block: int) -> list[tuple[int, int, int]]:
        """(tensor, from byte, to byte) of a block."""
        begin = block * self.block_bytes
        end = min(begin + self.block_bytes, self.num_bytes)
        pieces = []
        index = self._tensor_at(begin)
        while index < len(self._tensors) and self._starts[index] < end:
            start = self._starts[index]
            tensor = self._tensors[index].tensor
            size = tensor.numel() * tensor.element_size()
            pieces.append((index, max(begin - start, 0), min(end - start, size)))
            index += 1
        return pieces

    def _tensor_at(self, byte: int) -> int:
        low, high = 0, len(self._starts)
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if self._starts[middle] <= byte else (low, middle)
        return low


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's memory as bytes, in the order in which it lies there; a copy only where it has gaps."""
    tensor = tensor.detach()
    if not tensor.is_contiguous():
        dense = torch.empty_like(tensor).stride() == tensor.stride()  # channels last, a transposed weight
        tensor = tensor.as_strided((tensor.numel(),), (1,)) if dense else tensor.contiguous()
    return tensor.reshape(-1).view(torch.uint8)


def _count_on(counter: torch.Tensor, copied: torch.Tensor, begin: int, new: torch.Tensor) -> None:
    if begin != 0 or new.numel() != copied.numel() * copied.element_size():
        return  # cut by a block boundary: it will be whole in `synchronize()`
    counter.add_(new.view(copied.dtype).view(copied.shape) - copied)
