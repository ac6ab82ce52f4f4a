"""How fast this machine packs gradients. The packing itself is native, and done datagram by datagram as they leave."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from holdfast import _native

_NUM_ELEMENTS = 1 << 16
_NUM_TRIES = 5
"""The best of them counts: a machine that is busy elsewhere is not slower at packing."""


@dataclass(frozen=True)
class PackingSpeed:
    """Of one core of this machine, on float32 gradients that are spread like a bell."""

    pack_bytes_per_s: float
    unpack_bytes_per_s: float
    saved_ratio: float
    """Of their bytes."""


def measured_speed() -> PackingSpeed:
    """Takes a few milliseconds."""
    sample = torch.randn(_NUM_ELEMENTS, generator=torch.Generator().manual_seed(0))
    num_bytes = sample.numel() * sample.element_size()
    packed = b""
    packing_s, unpacking_s = [], []
    for _ in range(_NUM_TRIES):
        began_s = time.perf_counter()
        packed = _native.pack(_native.Format.f32, sample.data_ptr(), sample.numel())
        packed_s = time.perf_counter()
        _native.unpack(_native.Format.f32, sample.data_ptr(), sample.numel(), packed)
        packing_s.append(packed_s - began_s)
        unpacking_s.append(time.perf_counter() - packed_s)
    return PackingSpeed(num_bytes / min(packing_s), num_bytes / min(unpacking_s), 1 - len(packed) / num_bytes)
