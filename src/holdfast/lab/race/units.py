"""Figures as people read them. Nothing is ever rounded to the better side: 99.9996 % does not become 100 %."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from holdfast.lab.race.result import RaceResult

NOTHING = "\N{EN DASH}"
"""Where there is no figure."""


def share_text(ratio: float) -> str:
    """At least two decimals, and as many more as show two digits of what is missing."""
    if not math.isfinite(ratio):
        return NOTHING
    if ratio >= 1:
        return "100%"
    missing = 1 - ratio
    decimals = min(7, max(2, 1 - math.floor(math.log10(missing * 100))))
    exact = Decimal(repr(ratio)) * 100
    shown = exact.quantize(Decimal(1).scaleb(-decimals), ROUND_FLOOR)
    whole, fraction = f"{shown:f}".split(".")
    return f"{whole}.{fraction.rstrip('0'):0<2}%"


def metric_text(result: RaceResult, value: float) -> str:
    """Accuracies in percent, losses in four digits; a value just short of the target never reads as the target."""
    if not math.isfinite(value):
        return NOTHING
    if result.metric == "accuracy":
        return f"{(Decimal(repr(value)) * 100).quantize(Decimal('0.01'), ROUND_FLOOR):f}%"
    side = ROUND_FLOOR if result.higher_is_better else ROUND_CEILING
    return f"{Decimal(repr(value)).quantize(Decimal('0.0001'), side):f}"


def target_text(result: RaceResult) -> str:
    """`97% accuracy`, or `a loss of 1.25`."""
    value = target_value_text(result)
    return f"{value} accuracy" if result.metric == "accuracy" else f"a {result.metric} of {value}"


def target_value_text(result: RaceResult) -> str:
    return f"{result.target * 100:.6g}%" if result.metric == "accuracy" else f"{result.target:.6g}"


def seconds_text(seconds: float) -> str:
    if not math.isfinite(seconds):
        return NOTHING
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 119.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def milliseconds_text(milliseconds: float) -> str:
    """Three digits, in the unit that needs no zeros."""
    if not math.isfinite(milliseconds):
        return NOTHING
    if milliseconds <= 0:
        return "0 ms"
    if milliseconds < 0.9995:
        return f"{_three_digits(milliseconds * 1e3)} µs"
    if milliseconds < 999.5:
        return f"{_three_digits(milliseconds)} ms"
    return f"{_three_digits(milliseconds / 1e3)} s"


def _three_digits(value: float) -> str:
    decimals = max(0, 2 - math.floor(math.log10(value))) if value < 1000 else 0
    return f"{value:,.{min(decimals, 2)}f}"


def drift_text(drift: float) -> str:
    if not math.isfinite(drift):
        return NOTHING
    return "0" if drift == 0 else f"{drift:.1e}"


def rate_text(bits_per_s: float) -> str:
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits_per_s >= size:
            return f"{bits_per_s / size:g} {unit}"
    return f"{bits_per_s:g} bit/s"


def ratio_text(ratio: float) -> str:
    """How many times: two decimals while they matter, cut off, so that a lead is never overstated."""
    if ratio >= 100:
        return f"{math.floor(ratio):,}"
    decimals = 1 if ratio >= 10 else 2
    return f"{math.floor(ratio * 10**decimals + 1e-9) / 10**decimals:.{decimals}f}"
