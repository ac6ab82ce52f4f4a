"""Traces of availability: how many workers there are, over time.

A trace is a CSV with the header `seconds,available`; each line holds until the next one. Times must rise. The shipped
`spot-24` is made by `seeded_trace`: like the paper's six-hour cloud trace it has 159 samples and falls from 24 workers
to 15 with a mean near 21.7 (spec section 7); the original is not public.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from holdfast.errors import BrokenTrace

HEADER = "seconds,available"
MAX_SAMPLES = 1_000_000
SHIPPED = ("spot-24",)
SHIPPED_SEED = 24


@dataclass(frozen=True)
class Trace:
    """Samples of (seconds, available workers), and the workers the job was started with."""

    samples: tuple[tuple[float, int], ...]
    name: str

    def __post_init__(self) -> None:
        if len(self.samples) < 2:
            raise BrokenTrace(f"{self.name} has fewer than two samples.", what_to_try="add a last line with its end.")
        for index, ((before, _), (after, _)) in enumerate(pairwise(self.samples)):
            if after <= before:
                raise BrokenTrace(
                    f"{self.name} goes backwards: sample {index + 2} is at {after:g} s, after {before:g} s.",
                    what_to_try="sort its lines by time and drop double ones.",
                )
        for seconds, available in self.samples:
            if available < 0:
                raise BrokenTrace(
                    f"{self.name} has {available} workers at {seconds:g} s.", what_to_try="count workers from 0."
                )

    @property
    def num_workers(self) -> int:
        """The most there ever are."""
        return max(available for _, available in self.samples)

    @property
    def seconds(self) -> float:
        return self.samples[-1][0] - self.samples[0][0]

    def text(self) -> str:
        return "\n".join([HEADER, *(f"{seconds:g},{available}" for seconds, available in self.samples)]) + "\n"


def seeded_trace(
    seed: int = SHIPPED_SEED, workers: int = 24, lowest: int = 15, hours: float = 6.0, num_samples: int = 159
) -> Trace:
    """Workers are taken faster and faster, and sometimes one comes back: a cubic decline with noise."""
    chance = random.Random(seed)
    available = workers
    samples = []
    for index in range(num_samples):
        progress = index / (num_samples - 1)
        expected = workers - (workers - lowest) * progress**3
        noise = chance.gauss(0, 0.9) if 0 < progress < 1 else 0.0
        wanted = min(workers, max(lowest, round(expected + noise)))
        # Half of the samples repeat the one before: capacity comes and goes in steps, not every two minutes.
        if chance.random() < 0.5 or progress == 1:
            available = wanted
        samples.append((round(progress * hours * 3600, 1), available))
    return Trace(tuple(samples), f"seed {seed}")


def load_trace(name_or_path: str) -> Trace:
    """A shipped trace by name, or a CSV file."""
    if name_or_path in SHIPPED:
        text = (files("holdfast.reroute") / "traces" / f"{name_or_path}.csv").read_text()
        return parse_trace(text, name_or_path)
    try:
        text = Path(name_or_path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenTrace(
            f"Cannot read the trace {name_or_path}: {error}.",
            what_to_try=f"give the path of a CSV file, or one of {', '.join(SHIPPED)}.",
        ) from error
    return parse_trace(text, name_or_path)


def parse_trace(text: str, name: str) -> Trace:
    """A trace from its CSV text."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or lines[0].replace(" ", "") != HEADER:
        raise BrokenTrace(f"{name} does not start with the header.", what_to_try=f"make its first line {HEADER!r}.")
    if len(lines) - 1 > MAX_SAMPLES:
        raise BrokenTrace(f"{name} has over {MAX_SAMPLES:,} samples.", what_to_try="keep only the changes.")
    samples = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            seconds, available = line.split(",")
            sample = (float(seconds), int(available))
            if not abs(sample[0]) < 1e12:
                raise ValueError(f"{seconds} is not a time")
        except ValueError as error:
            raise BrokenTrace(
                f"Line {number} of {name} is {line!r}: {error}.", what_to_try="write seconds,workers, such as 136.7,23."
            ) from error
        samples.append(sample)
    return Trace(tuple(samples), name)
