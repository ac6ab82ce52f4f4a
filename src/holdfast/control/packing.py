"""Where packing gradients pays: on networks on which the bytes that it saves would take longer than it does."""

from __future__ import annotations

import math

from holdfast.config import PackingName


def pays_below_bytes_per_s(
    packing: PackingName, *, pack_bytes_per_s: float, unpack_bytes_per_s: float, saved_ratio: float
) -> float:
    """On networks slower than this; 0: on none.

    The sum assumes that each byte waits for both ends, and they for it. In truth packing overlaps with sending, so it
    pays on somewhat faster networks, too; but the core that packs could train meanwhile.
    """
    if packing == "off":
        return 0.0
    if packing == "on":
        return math.inf
    return saved_ratio / (1 / pack_bytes_per_s + 1 / unpack_bytes_per_s)
