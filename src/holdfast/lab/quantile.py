"""One meaning of p50 and p99 for all tables of the lab: a value that was measured (nearest rank)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed; not a number where there is none."""
    if not values:
        return math.nan
    ascending = sorted(values)
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]
