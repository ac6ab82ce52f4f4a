"""How training went: the metric against time, and how far the replicas drifted apart."""

from __future__ import annotations

import math
from typing import Any

from holdfast.lab.race import palette
from holdfast.lab.race.page.chart import INK, PAIRED_PX, PANEL, Chart, axis, figure, line_at, log_axis, plain
from holdfast.lab.race.result import Evaluation, RaceResult, Run
from holdfast.lab.race.spread import value_at, wants_log
from holdfast.lab.race.units import drift_text, metric_text, seconds_text, target_value_text

MAX_EVENT_MARKS = 200


def time_to_target(result: RaceResult) -> Chart:
    title = f"Time to {'accuracy' if result.metric == 'accuracy' else result.metric}"
    seen = [point for run in result.runs for point in _measured(run)]
    if not seen:
        return Chart("time-to-target", title, "No run got as far as an evaluation.", None)
    places = palette.places([run.peer for run in result.runs])
    traces = [trace for run in result.runs for trace in _course(result, run, places[run.peer])]
    values = [*(point.metric for point in seen), result.target]
    logarithmic = result.metric != "accuracy" and wants_log(values)
    percent = {"tickformat": ".0%"} if result.metric == "accuracy" else {}
    target = line_at(
        result.target, "y", f" target<br> {target_value_text(result)}", colour=INK, logarithmic=logarithmic
    )
    better = "higher" if result.higher_is_better else "lower"
    return Chart(
        "time-to-target",
        title,
        f"The {result.metric} of the model after so many seconds of its own training; {better} is better, further left "
        "is sooner. Evaluations and the other peers' turns are not counted. The large marks are where the target was "
        "reached; small triangles are events.",
        figure(
            traces,
            430,
            xaxis=axis("seconds of training", rangemode="tozero"),
            yaxis=log_axis(result.metric, values) if logarithmic else axis(result.metric, **percent),
            margin={"l": 8, "r": 58, "t": 30, "b": 8},
            **target,
        ),
    )


def drift(result: RaceResult) -> Chart:
    title = "Drift between replicas"
    seen = {run.peer: _drifts(run) for run in result.runs}
    if not any(seen.values()):
        return Chart("drift", title, "It was not measured.", None)
    if all(apart == 0 for drifts in seen.values() for _, apart in drifts):
        return Chart("drift", title, "None: at every evaluation all ranks held the same parameters, bit for bit.", None)
    places = palette.places([run.peer for run in result.runs])
    traces = [
        _line(run, places[run.peer])
        | {
            "x": [point.seconds for point, _ in seen[run.peer]],
            "y": [apart for _, apart in seen[run.peer]],
            "text": [f"{drift_text(apart)} after {point.steps:,} steps" for point, apart in seen[run.peer]],
        }
        for run in result.runs
    ]
    return Chart(
        "drift",
        title,
        "The largest difference of any parameter between two ranks, at every evaluation. Zero means equal bit for bit; a "
        "lost result lets replicas differ until they are synchronized.",
        figure(
            traces,
            PAIRED_PX,
            xaxis=axis("seconds of training", rangemode="tozero"),
            yaxis=axis("largest difference", rangemode="tozero", exponentformat="power"),
        ),
    )


def _course(result: RaceResult, run: Run, place: int) -> list[dict[str, Any]]:
    points = _measured(run)
    hover = [f"{metric_text(result, point.metric)} after {point.steps:,} steps" for point in points]
    seconds, values = [point.seconds for point in points], [point.metric for point in points]
    traces = [_line(run, place) | {"x": seconds, "y": values, "text": hover}]
    in_group = {"legendgroup": run.peer, "showlegend": False, "mode": "markers", "name": plain(run.peer)}
    if run.seconds_to_target is not None and points:
        traces.append(
            in_group
            | {
                "type": "scatter",
                "x": [run.seconds_to_target],
                "y": [value_at(run.seconds_to_target, seconds, values)],
                "marker": {
                    "symbol": palette.symbol(place),
                    "size": 15,
                    "color": palette.variable(place),
                    "line": {"color": PANEL, "width": 2},
                },
                "hovertemplate": f"<b>{plain(run.peer)}</b> arrives<br>{seconds_text(run.seconds_to_target)}"
                "<extra></extra>",
            }
        )
    events = [event for event in run.events if math.isfinite(event.seconds)][:MAX_EVENT_MARKS]
    if events and points:
        traces.append(
            in_group
            | {
                "type": "scatter",
                "x": [event.seconds for event in events],
                "y": [value_at(event.seconds, seconds, values) for event in events],
                "text": [plain(event.what) for event in events],
                "marker": {
                    "symbol": "triangle-down",
                    "size": 11,
                    "color": palette.variable(place),
                    "line": {"color": INK, "width": 1.2},
                },
                "hovertemplate": f"<b>{plain(run.peer)}</b> at %{{x:.1f}} s<br>%{{text}}<extra></extra>",
            }
        )
    return traces


def _line(run: Run, place: int) -> dict[str, Any]:
    colour = palette.variable(place)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(run.peer),
        "legendgroup": run.peer,
        "line": {"color": colour, "width": 2.5, "dash": palette.dash(place)},
        "marker": {"symbol": palette.symbol(place), "size": 6, "color": colour},
        "hovertemplate": f"<b>{plain(run.peer)}</b> at %{{x:.1f}} s<br>%{{text}}<extra></extra>",
    }


def _measured(run: Run) -> list[Evaluation]:
    return [point for point in run.evaluations if math.isfinite(point.metric)]


def _drifts(run: Run) -> list[tuple[Evaluation, float]]:
    return [(point, point.drift) for point in run.evaluations if point.drift is not None and math.isfinite(point.drift)]
