"""How late the switch was, added up over the spans of time that belong to one peer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

# Above this, at p99.9, the machine and not the network was measured.
TRUSTED_P999_MS = 2.0


class Lateness:
    """Counts of packets by how late they were."""

    def __init__(self) -> None:
        self._packets: Counter[float] = Counter()

    def add(self, counts: Iterable[tuple[float, int]]) -> None:
        """Of one span: (at most so many microseconds late, so many packets)."""
        for at_most_us, packets in counts:
            self._packets[at_most_us] += packets

    def quantile_ms(self, share: float) -> float:
        """So late was a share of all packets at most; 0 when there were none."""
        rank = math.ceil(share * self._packets.total())
        seen = 0
        for at_most_us, packets in sorted(self._packets.items()):
            seen += packets
            if seen >= rank:
                return at_most_us / 1e3
        return 0.0

    @property
    def trusted(self) -> bool:
        return self.quantile_ms(0.999) <= TRUSTED_P999_MS
