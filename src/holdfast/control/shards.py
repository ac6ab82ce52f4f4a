"""Who sums how much: smaller shards for a rank whose network is persistently slow.

Let rank i sum the share w_i of a bucket of B bytes. It sends B (1 - w_i) of its own gradient to the others, and its
results, w_i B, to each of N - 1; it receives as much. At a rate r_i, in both directions at once, it is busy for

    t_i = B (1 - w_i + (N - 1) w_i) / r_i = B ((N - 2) w_i + 1) / r_i

The operation lasts as long as the slowest. Minimise max t_i with sum w_i = 1, w_i >= 0: fill all ranks to one level T,
so that w_i = (T r_i - 1) / (N - 2); ranks with T r_i < 1 get nothing, because sending their own gradient alone takes
longer than T. No division beats B / min r_i for that reason; with N = 2 none changes anything.

All ranks divide alike, so a division follows from a list that all agreed on, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

FULL_WEIGHT = 64
LEAST_WEIGHT = 1
"""Nobody is left without a shard; this one costs a slow rank about a hundredth more time than none."""
SLOWER_RATIO = 1.5
RECOVERED_RATIO = 1.25
"""A rank that has a smaller shard gets a full one when it is within this of the others."""
MAX_NUMBER = 7
LEAST_STEP = 8
"""An eighth of a full shard: smaller corrections are noise, and not worth an agreement between all ranks."""


@dataclass(frozen=True)
class Division:
    """Shards in proportion to `weights`, one for each rank, 1 to 64, and why."""

    weights: tuple[int, ...]
    reason: str
    number: int = 0
    """What packets carry: 1 to 7, and another than the last ones had, so that no rank takes the two for the same. Even
    shards are 0 on the wire, whatever this is."""

    @classmethod
    def even(cls, num_ranks: int, reason: str = "no rank is persistently slow") -> Division:
        return cls((FULL_WEIGHT,) * num_ranks, f"even shards: {reason}")

    @property
    def shares(self) -> list[float]:
        total = sum(self.weights)
        return [weight / total for weight in self.weights]


def propose(rate_rows: Sequence[Sequence[float]], current: Division) -> Division:
    """The next division: `current` itself where a change is not worth it.

    `rate_rows` holds the rates of all ranks for parts of a window that follow each other (for example five medians over
    twenty operations each); a rank is slow, or has recovered, only if every part says so.
    """
    num_ranks = len(current.weights)
    if num_ranks <= 2 or not rate_rows:
        return current
    slow = [rank for rank in range(num_ranks) if _is_slow(rank, rate_rows, current)]
    rates = [median(row[rank] for row in rate_rows) for rank in range(num_ranks)]
    wanted = _division_for(rates, slow)
    steps = [abs(new - old) for new, old in zip(wanted.weights, current.weights, strict=True)]
    return replace(wanted, number=_number_after(current, wanted)) if max(steps) > LEAST_STEP else current


def _number_after(current: Division, wanted: Division) -> int:
    """Counted on through even shards: an operation that was opened early may still be divided as before those."""
    return current.number if min(wanted.weights) == max(wanted.weights) else current.number % MAX_NUMBER + 1


def _division_for(rates: Sequence[float], slow: Sequence[int]) -> Division:
    num_ranks = len(rates)
    fast = [rates[rank] for rank in range(num_ranks) if rank not in slow]
    if not slow or not fast:
        return Division.even(num_ranks)
    usual = min(fast)  # all that is certain of every one of them
    shares = optimal_weights([rates[rank] if rank in slow else usual for rank in range(num_ranks)])
    weights = tuple(max(LEAST_WEIGHT, round(FULL_WEIGHT * share / max(shares))) for share in shares)
    if min(weights) == max(weights):
        return Division.even(num_ranks)
    named = ", ".join(f"rank {rank} at {rates[rank] / usual:.2f} of the others' rate" for rank in slow)
    return Division(weights, f"shards in proportion to {'/'.join(map(str, weights))}: {named}")


def _is_slow(rank: int, rate_rows: Sequence[Sequence[float]], current: Division) -> bool:
    """Slower than the median of the others; harder to begin, and to end, than to go on."""
    ratios = [median([*row[:rank], *row[rank + 1 :]]) / row[rank] for row in rate_rows]
    if current.weights[rank] < max(current.weights):
        return not all(ratio <= RECOVERED_RATIO for ratio in ratios)
    return all(ratio > SLOWER_RATIO for ratio in ratios)


def optimal_weights(rates: Sequence[float]) -> list[float]:
    """The shares w_i, summing to 1, for which the slowest rank is done soonest."""
    num_ranks = len(rates)
    if num_ranks <= 2:
        return [1 / num_ranks] * num_ranks
    level = _level(rates)
    return [max(0.0, level * rate - 1) / (num_ranks - 2) for rate in rates]


def lower_bound_ms(rates: Sequence[float], num_bytes: int) -> float:
    """What no division into shards can beat; rates in bytes per millisecond."""
    if len(rates) <= 1:
        return 0.0
    slowest = 1 / min(rates)
    return num_bytes * (slowest if len(rates) == 2 else max(slowest, _level(rates)))


def _level(rates: Sequence[float]) -> float:
    """T / B: from the fastest ranks on, as many as are above water, sum of (T r_i - 1) = N - 2."""
    level = rate_sum = 0.0
    for num_filled, rate in enumerate(sorted(rates, reverse=True), start=1):
        if num_filled > 1 and level * rate <= 1:
            break
        rate_sum += rate
        level = (len(rates) - 2 + num_filled) / rate_sum
    return level
