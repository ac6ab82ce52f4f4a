"""Many step times as few points: what report and picture draw of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.lab.quantile import quantile

RARITIES = {1: "all", 2: "1 in 2\np50", 10: "1 in 10\np90", 100: "1 in 100\np99", 1000: "1 in 1000\np99.9"}
"""One step in so many: what to write at the axis."""
LOG_FROM_RATIO = 8.0
"""Greatest by least, from which on a linear axis squeezes the small values into a corner."""


def tail_curve(step_ms: Sequence[float], num_points: int = 160) -> list[tuple[float, float]]:
    """(rarity, milliseconds): one step in `rarity` is slower. Ends with the slowest step."""
    num_steps = len(step_ms)
    grid = {num_steps ** (index / num_points) for index in range(num_points)}
    grid |= {float(rarity) for rarity in RARITIES if rarity <= num_steps}
    ascending = sorted(step_ms)
    points = [(rarity, quantile(ascending, 1 - 1 / rarity)) for rarity in sorted(grid)]
    return [*points, (float(num_steps), ascending[-1])]


def thinned(values: Sequence[float], limit: int) -> list[tuple[int, float]]:
    """(index, value): all, or if there are more than the limit, the least and the greatest of every stretch."""
    if len(values) <= limit:
        return list(enumerate(values))
    kept = []
    stretches = limit // 2
    for number in range(stretches):
        indices = range(number * len(values) // stretches, (number + 1) * len(values) // stretches)
        low, high = min(indices, key=values.__getitem__), max(indices, key=values.__getitem__)
        kept += [(index, values[index]) for index in sorted({low, high})]
    return kept


def value_at(at: float, seconds: Sequence[float], values: Sequence[float]) -> float:
    """A curve's value at any time, also between its points, so that a mark sits on its own line."""
    if at <= seconds[0]:
        return values[0]
    for index in range(1, len(seconds)):
        before, after = seconds[index - 1], seconds[index]
        if at <= after:
            part = (at - before) / (after - before) if after > before else 1.0
            return values[index - 1] + part * (values[index] - values[index - 1])
    return values[-1]


def wants_log(values: Sequence[float]) -> bool:
    """Whether a tail would squeeze everything else into a corner of a linear axis."""
    positive = [value for value in values if math.isfinite(value) and value > 0]
    return bool(positive) and max(positive) > LOG_FROM_RATIO * min(positive)


def log_ticks(values: Sequence[float], num_ticks: int) -> dict[float, str]:
    """Round numbers for a logarithmic axis, about as many as asked for: 5, 10, 20, 50."""
    positive = [value for value in values if math.isfinite(value) and value > 0]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    decades = high - low + 0.2
    factors = next((some for some in ((1, 2, 5), (1, 3)) if decades * len(some) <= num_ticks), (1,))
    powers = range(math.floor(low) - 1, math.ceil(high) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return {tick: f"{tick:,.0f}" if tick >= 1 else f"{tick:g}" for tick in ticks}
