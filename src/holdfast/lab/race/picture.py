"""The race as one picture for a talk: time to the target on the left, how long steps took on the right."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import LabUnavailable
from holdfast.lab.race import palette
from holdfast.lab.race.headline import headline
from holdfast.lab.race.result import LOOPBACK, RaceResult, Run
from holdfast.lab.race.spread import RARITIES, log_ticks, tail_curve, value_at, wants_log
from holdfast.lab.race.units import milliseconds_text, rate_text, target_value_text

MAX_LABELLED_PEERS = 2
SIZE_PX = (1600, 800)
_DPI = 100
_HEADLINE_COLUMNS = 88
_INK, _SOFT, _GRID = "#15202b", "#5b6672", "#dde2e8"
_STYLE: dict[Any, Any] = {
    "font.size": 15,
    "text.color": _INK,
    "text.parse_math": False,  # a path may hold dollars
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _GRID,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "axes.axisbelow": True,
}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "star": "*"}
_LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


def draw_picture(result: RaceResult, path: Path) -> None:
    """Writes a PNG. Needs matplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LabUnavailable("the picture needs matplotlib", what_to_try="pip install 'holdfast[demo]'") from error

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(SIZE_PX[0] / _DPI, SIZE_PX[1] / _DPI), dpi=_DPI, facecolor="white")
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        lines = textwrap.wrap(headline(result), _HEADLINE_COLUMNS)
        figure.subplots_adjust(left=0.06, right=0.975, top=0.885 - 0.046 * len(lines), bottom=0.155, wspace=0.2)
        figure.text(0.015, 0.965, "\n".join(lines), fontsize=21, fontweight="bold", va="top", linespacing=1.25)
        figure.text(0.015, 0.02, _facts(result), fontsize=12, color=_SOFT)
        _draw_courses(left, result)
        _draw_tails(right, result)
        figure.savefig(path, format="png")


def _draw_courses(axes: Any, result: RaceResult) -> None:
    places = palette.places([run.peer for run in result.runs])
    seen = []
    for run in result.runs:
        points = [point for point in run.evaluations if math.isfinite(point.metric)]
        seen += [point.metric for point in points]
        look = _look(places[run.peer])
        seconds, values = [point.seconds for point in points], [point.metric for point in points]
        axes.plot(seconds, values, label=run.peer, linewidth=2.6, **look | {"marker": ""})
        if run.seconds_to_target is not None and points:
            height = value_at(run.seconds_to_target, seconds, values)
            axes.plot(run.seconds_to_target, height, markersize=13, **look, markeredgecolor="white", zorder=5)
    axes.set_title(f"{result.metric.capitalize()} over seconds of training", loc="left", pad=14)
    axes.set_xlabel("seconds of training")
    if not seen:
        _say(axes, "no evaluation")
        return
    axes.axhline(result.target, color=_INK, linewidth=1.3, linestyle="--", zorder=1)
    axes.set_xlim(left=0)
    if result.metric == "accuracy":
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    elif wants_log([*seen, result.target]):
        _log(axes, [*seen, result.target])
    axes.annotate(
        f"target\n{target_value_text(result)}",
        (1, result.target),
        (6, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        fontsize=13,
        va="center",
    )
    axes.legend(frameon=False, loc="lower right" if result.higher_is_better else "upper right", fontsize=14)


def _draw_tails(axes: Any, result: RaceResult) -> None:
    places = palette.places([run.peer for run in result.runs])
    axes.set_title("How long a step takes, in milliseconds", loc="left", pad=14)
    runs = [run for run in result.runs if run.step_ms]
    if not runs:
        _say(axes, "no step")
        return
    shown: list[float] = []
    for run in runs:
        curve = tail_curve(run.step_ms)
        look = _look(places[run.peer])
        shown += [value for _, value in curve]
        axes.plot(*zip(*curve, strict=True), linewidth=2.6, **look | {"marker": ""})
        _mark_percentiles(axes, run, look, runs)
    longest = max(2, *(len(run.step_ms) for run in runs))
    axes.set_xscale("log")
    ticks = {rarity: text for rarity, text in RARITIES.items() if rarity <= longest}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.set_xlim(0.95, longest * 1.1)
    axes.set_xlabel("one step in so many is slower; the right end is the slowest")
    if wants_log(shown):
        _log(axes, shown)
    else:
        axes.set_ylim(bottom=0)


def _mark_percentiles(axes: Any, run: Run, look: dict[str, Any], runs: Sequence[Run]) -> None:
    for rarity, figure, side in ((2, "step_p50_ms", "center"), (100, "step_p99_ms", "right")):
        value = getattr(run, figure)
        if not math.isfinite(value):
            continue
        is_upper = value == max(getattr(other, figure) for other in runs)  # curves may cross in between
        at = min(rarity, len(run.step_ms))
        axes.plot(at, value, markersize=10, **look, markeredgecolor="white", zorder=5)
        if len(runs) <= MAX_LABELLED_PEERS:
            above = (0, 12 if is_upper else -26)
            axes.annotate(milliseconds_text(value), (at, value), above, textcoords="offset points", ha=side)


def _log(axes: Any, values: Sequence[float]) -> None:
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = {tick: text for tick, text in log_ticks(values, num_ticks=8).items() if low <= tick <= high}
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()


def _look(place: int) -> dict[str, Any]:
    return {
        "color": palette.LIGHT[place % len(palette.LIGHT)],
        "linestyle": _LINES[palette.dash(place)],
        "marker": _MARKERS.get(palette.symbol(place), "o"),
    }


def _facts(result: RaceResult) -> str:
    hosts = f"{result.hosts} {'ranks' if result.profile == LOOPBACK else 'hosts'}"
    if result.bits_per_s:
        hosts += f" at {rate_text(result.bits_per_s)}"
    return (
        f"{result.task_title}; {result.parameters:,} parameters; network {result.profile}; {hosts}; seed {result.seed}"
    )


def _say(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=_SOFT)
    axes.set(xticks=[], yticks=[])
