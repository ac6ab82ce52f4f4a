"""Tensors as the native side sees them: an address, a count, a format."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch

from holdfast import _native
from holdfast.errors import UnsupportedGradient
from holdfast.reduce.pending import Memory

FORMATS: dict[torch.dtype, _native.Format] = {
    torch.float32: _native.Format.f32,
    torch.float64: _native.Format.f64,
    torch.bfloat16: _native.Format.bf16,
    torch.float16: _native.Format.f16,
}
_LARGEST_BYTES = 4 << 30


def memory_of(tensor: torch.Tensor) -> Memory:
    """The tensor's memory, and the tensor, which keeps it alive until the operation has ended."""
    if tensor.is_sparse or tensor.layout != torch.strided:
        raise UnsupportedGradient("sparse gradients cannot be averaged block by block", what_to_try="sparse=False")
    if tensor.dtype not in FORMATS:
        raise UnsupportedGradient(
            f"{tensor.dtype} cannot be averaged", what_to_try=f"one of {', '.join(str(dtype) for dtype in FORMATS)}"
        )
    if tensor.device.type != "cpu":
        raise UnsupportedGradient(f"the gradient is on {tensor.device}", what_to_try="copy it to the CPU first")
    if not tensor.is_contiguous():
        raise UnsupportedGradient("the tensor is not contiguous", what_to_try="tensor.contiguous()")
    if tensor.numel() * tensor.element_size() > _LARGEST_BYTES:
        raise UnsupportedGradient(f"{tensor.numel()} elements in one bucket", what_to_try="a smaller bucket_cap_mb")
    return Memory(tensor.data_ptr(), tensor.numel(), FORMATS[tensor.dtype], tensor)


def layout_of(shapes: Sequence[tuple[str, torch.Size]]) -> int:
    """A number that differs between ranks when their buckets hold other parameters, or the same in another order."""
    text = ";".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes)
    return zlib.crc32(text.encode())
