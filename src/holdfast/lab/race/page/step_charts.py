"""How long steps took: their distribution with its tail, and step after step over the training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from holdfast.lab.race import palette
from holdfast.lab.race.page.chart import INK, PAIRED_PX, PANEL, Chart, axis, figure, plain, value_axis
from holdfast.lab.race.result import RaceResult, Run
from holdfast.lab.race.spread import RARITIES, tail_curve, thinned
from holdfast.lab.race.units import milliseconds_text

MAX_SHOWN_STEPS = 800
"""Per peer. More marks show nothing more and make the page slow; the extremes of every stretch are kept."""
MAX_LABELLED_PEERS = 2
_STRIP_PX = 120
_AXES_PX = 60
_NO_LEGEND = {"l": 8, "r": 14, "t": 0, "b": 8}


def distribution(result: RaceResult) -> Chart:
    runs = [run for run in result.runs if run.step_ms]
    title = "How long a step takes"
    if not runs:
        return Chart("step-distribution", title, "No step was trained.", None)
    places = palette.places([run.peer for run in result.runs])
    traces = [trace for run in runs for trace in _tail(run, places[run.peer], _label_sides(run, runs))]
    longest = max(len(run.step_ms) for run in runs)
    rarities = {rarity: text.replace("\n", "<br>") for rarity, text in RARITIES.items() if rarity <= max(longest, 2)}
    shown = [value for trace in traces for value in trace["y"]]
    return Chart(
        "step-distribution",
        title,
        "Half of the steps take longer than the value at p50, one step in a hundred longer than the value at p99; the "
        "right end is the slowest step of all. Flat is steady, and lower is better. Of every step, the slowest rank "
        "counts.",
        figure(
            traces,
            PAIRED_PX,
            xaxis=axis(
                "one step in so many is slower",
                type="log",
                tickvals=list(rarities),
                ticktext=list(rarities.values()),
                range=[-0.05, math.log10(max(longest, 2)) + 0.12],
            ),
            yaxis=value_axis("milliseconds", shown),
        ),
    )


def over_training(result: RaceResult) -> Chart:
    runs = [run for run in result.runs if run.step_ms]
    title = "Every step of the training"
    if not runs:
        return Chart("steps", title, "No step was trained.", None)
    places = palette.places([run.peer for run in result.runs])
    shown = [thinned(run.step_ms, MAX_SHOWN_STEPS) for run in runs]
    values = [value for points in shown for _, value in points]
    longest = max(len(run.step_ms) for run in runs)
    layout: dict[str, Any] = {"xaxis": axis("step", anchor=_axis_id(len(runs) - 1), range=[0, 1.02 * longest])}
    traces, headings = [], []
    gap = 26 / (_STRIP_PX * len(runs))  # for the strip's heading
    for row, (run, points) in enumerate(zip(runs, shown, strict=True)):
        top = 1 - row / len(runs)
        domain = [max(0.0, top - 1 / len(runs)), top - gap]
        layout[f"yaxis{row + 1}"] = value_axis("", values, domain=domain, num_ticks=3)
        traces.append(_strip(run, points, row, places[run.peer]))
        headings.append(_strip_heading(run, domain[1]))
    thin = any(len(run.step_ms) > MAX_SHOWN_STEPS for run in runs)
    return Chart(
        "steps",
        title,
        "Milliseconds of each step, on one scale for all peers: a stall stands out above the others."
        + (f" At most {MAX_SHOWN_STEPS} steps per peer are drawn, the fastest and slowest of each stretch." * thin),
        figure(
            traces,
            _AXES_PX + _STRIP_PX * len(runs),
            annotations=headings,
            showlegend=False,
            margin=_NO_LEGEND,
            **layout,
        ),
    )


def _label_sides(run: Run, runs: Sequence[Run]) -> list[str]:
    """Where p50 and p99 stand beside a curve without hiding another one; nowhere if there are more than two."""
    if len(runs) > MAX_LABELLED_PEERS:
        return []
    # Each for itself: curves may cross in between.
    median_on_top = run.step_p50_ms == max(other.step_p50_ms for other in runs)
    tail_on_top = run.step_p99_ms == max(other.step_p99_ms for other in runs)
    return ["top center" if median_on_top else "bottom center", "top left" if tail_on_top else "bottom center"]


def _tail(run: Run, place: int, label_sides: list[str]) -> list[dict[str, Any]]:
    colour, name = palette.variable(place), plain(run.peer)
    curve = tail_curve(run.step_ms)
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "legendgroup": run.peer,
            "x": [rarity for rarity, _ in curve],
            "y": [value for _, value in curve],
            "line": {"color": colour, "width": 2.5, "dash": palette.dash(place)},
            "hovertemplate": f"<b>{name}</b><br>1 step in %{{x:.0f}} takes longer than %{{y:.2f}} ms<extra></extra>",
        }
    ]
    marks = [(share, value) for share, value in ((2, run.step_p50_ms), (100, run.step_p99_ms)) if math.isfinite(value)]
    traces.append(
        {
            "type": "scatter",
            "mode": "markers+text" if label_sides else "markers",
            "name": name,
            "legendgroup": run.peer,
            "showlegend": False,
            "x": [min(rarity, len(run.step_ms)) for rarity, _ in marks],
            "y": [value for _, value in marks],
            "text": [milliseconds_text(value) for _, value in marks],
            "textposition": label_sides or "top left",
            "textfont": {"color": INK, "size": 12},
            "marker": {
                "symbol": palette.symbol(place),
                "size": 10,
                "color": colour,
                "line": {"color": PANEL, "width": 1.5},
            },
            "hovertemplate": f"<b>{name}</b> %{{text}}<extra></extra>",
        }
    )
    return traces


def _strip(run: Run, points: Sequence[tuple[int, float]], row: int, place: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(run.peer),
        "x": [index + 1 for index, _ in points],
        "y": [value for _, value in points],
        "yaxis": _axis_id(row),
        "marker": {"color": palette.variable(place), "size": 4, "opacity": 0.75},
        "hovertemplate": f"<b>{plain(run.peer)}</b> step %{{x}}<br>%{{y:.2f}} ms<extra></extra>",
    }


def _strip_heading(run: Run, top: float) -> dict[str, Any]:
    return {
        "text": f"<b>{plain(run.peer)}</b>  slowest {milliseconds_text(max(run.step_ms))}",
        "showarrow": False,
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": top,
        "xanchor": "left",
        "yanchor": "bottom",
        "font": {"color": INK, "size": 13},
    }


def _axis_id(row: int) -> str:
    return f"y{row + 1}" if row else "y"
