"""What was found, as one figure with the error that chance alone gives it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from holdfast.lab.calibrate.iperf import Interval


@dataclass(frozen=True)
class Finding:
    value: float
    standard_error: float | None
    """One standard deviation of what another run of the same length would find; None where no length tells."""
    num_samples: int
    """Pings, datagrams, intervals or operations."""
    disturbance: float = 0.0
    """What the instrument itself noticed of a busy machine; above 1 it was too much for it."""


def median(values: Sequence[float]) -> Finding:
    """The error is half the distance of the order statistics that lie one deviation to each side."""
    ascending = sorted(values)
    middle, spread = len(ascending) / 2, math.sqrt(len(ascending)) / 2
    low, high = max(0, math.floor(middle - spread)), min(len(ascending) - 1, math.ceil(middle + spread))
    return Finding(statistics.median(ascending), (ascending[high] - ascending[low]) / 2, len(ascending))


def loss(intervals: Sequence[Interval]) -> Finding:
    """Share of packets lost. Losses come together in bursts, so the error is taken from interval to interval.

    Of n packets without a loss, nothing below 1/n can be told from none.
    """
    packets, lost = sum(part.packets for part in intervals), sum(part.lost for part in intervals)
    share = lost / packets
    misses = sum((part.lost - share * part.packets) ** 2 for part in intervals)
    by_interval = math.sqrt(misses * len(intervals) / max(1, len(intervals) - 1)) / packets
    return Finding(share, max(by_interval, 1 / packets), packets)


def mean(values: Sequence[float]) -> Finding:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Finding(statistics.fmean(values), error, len(values))


def p99_to_p50(milliseconds: Sequence[float], seed: int = 0) -> Finding:
    """The tail's length. What is slow comes in episodes, so the error is that of runs put together from long blocks."""
    block, num_resamples = 64, 200
    times = numpy.asarray(milliseconds)
    found = _ratio(times)
    if len(times) < 2 * block:
        return Finding(found, None, len(times))
    random = numpy.random.default_rng(seed)
    num_blocks = math.ceil(len(times) / block)
    starts = random.integers(0, len(times) - block + 1, size=(num_resamples, num_blocks))
    resampled = times[(starts[:, :, None] + numpy.arange(block)).reshape(num_resamples, -1)[:, : len(times)]]
    return Finding(found, float(numpy.std([_ratio(run) for run in resampled])), len(times))


def _ratio(times: numpy.ndarray) -> float:
    p50, p99 = numpy.quantile(times, [0.5, 0.99])
    return float(p99 / p50)
