"""Whether a profile keeps its promises: each is measured, again if the machine was not quiet, and judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.lab.calibrate.finding import Finding
from holdfast.lab.calibrate.iperf import FlowsApart
from holdfast.lab.calibrate.measures import MEASURES, Effort
from holdfast.lab.cloud import Cloud
from holdfast.lab.lateness import TRUSTED_P999_MS
from holdfast.lab.profile import Profile, promised

MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Beginning:
    """What is about to be measured."""

    profile: str
    figure: str
    instrument: str
    attempt: int


@dataclass(frozen=True)
class Attempt:
    """One measurement, and how late the switch was meanwhile."""

    found: Finding
    late_p999_ms: float

    @property
    def quiet(self) -> bool:
        return self.late_p999_ms <= TRUSTED_P999_MS and self.found.disturbance <= 1


@dataclass(frozen=True)
class Row:
    """A promise and what was found of it."""

    profile: str
    figure: str
    instrument: str
    promise: float
    found: float
    standard_error: float | None
    num_samples: int
    deviation: float | None
    """As a share of the promise; None where the promise is none at all."""
    tolerance: float
    kept: bool
    late_p999_ms: float
    """Of the switch, meanwhile: not a finding, but above 2 ms a reason to distrust it."""
    quiet: bool
    """Neither was the switch late, nor the instrument disturbed."""
    attempts: int

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def calibrate(
    profile: Profile, *, num_hosts: int, seed: int, effort: Effort,
    on_begin: Callable[[Beginning], None] = lambda _about: None,
) -> Iterator[Row]:  # fmt: skip
    """Every promise of the profile, measured in a cloud of its own."""
    with Cloud(num_hosts, profile, seed=seed) as cloud:
        for figure, promise in promised(profile.promise).items():
            take = partial(_attempt, cloud, figure, promise, effort, on_begin)
            yield judge(profile.name, figure, promise, until_quiet(take))


def _attempt(
    cloud: Cloud, figure: str, promise: float, effort: Effort, on_begin: Callable[[Beginning], None], number: int
) -> Attempt:
    measure = MEASURES[figure]
    on_begin(Beginning(cloud.profile.name, figure, measure.instrument, number))
    cloud.switch.reset()
    found = measure.take(cloud, promise, effort)
    return Attempt(found, cloud.switch.report().lateness_p999_us / 1e3)


def until_quiet(attempt: Callable[[int], Attempt]) -> list[Attempt]:
    """Up to three attempts, by number, that came to something; the first quiet one ends it."""
    attempts: list[Attempt] = []
    for number in range(1, MAX_ATTEMPTS + 1):
        try:
            attempts.append(attempt(number))
        except FlowsApart:
            if number == MAX_ATTEMPTS and not attempts:
                raise
        if attempts and attempts[-1].quiet:
            break
    return attempts


def judge(profile: str, figure: str, promise: float, attempts: list[Attempt]) -> Row:
    """By the quietest attempt. A promise of none is kept if none was found, any other within its tolerance."""
    measure = MEASURES[figure]
    best = min(attempts, key=lambda one: (not one.quiet, one.found.disturbance, one.late_p999_ms))
    found = best.found
    deviation = None if promise == 0 else found.value / promise - 1
    return Row(
        profile=profile,
        figure=figure,
        instrument=measure.instrument,
        promise=promise,
        found=found.value,
        standard_error=found.standard_error,
        num_samples=found.num_samples,
        deviation=deviation,
        tolerance=measure.tolerance,
        kept=found.value == 0 if deviation is None else abs(deviation) <= measure.tolerance,
        late_p999_ms=best.late_p999_ms,
        quiet=best.quiet,
        attempts=len(attempts),
    )
