"""What the network and the machine did to the race: the switch's own lateness, and whose gradients came too late."""

from __future__ import annotations

from typing import Any

from holdfast.lab.race import palette
from holdfast.lab.race.headline import TRUSTED_LATENESS_US, is_holdfast
from holdfast.lab.race.page.chart import (
    ALARM,
    GRID,
    INK,
    PAIRED_PX,
    PANEL,
    Chart,
    axis,
    figure,
    line_at,
    log_axis,
    plain,
)
from holdfast.lab.race.result import LOOPBACK, RaceResult, Run, SwitchLateness
from holdfast.lab.race.units import milliseconds_text

# Below a microsecond the clock is read, not the switch; a log axis has no zero.
_LEAST_US = 1.0
_SHOWN_FROM_US = 50.0
"""Leaves room for the limit's label."""
_STATISTICS = {"p50_us": ("p50", "circle"), "p99_us": ("p99", "diamond"), "p999_us": ("p99.9", "square")}


def lateness(result: RaceResult) -> Chart:
    title = "Lateness of the lab's switch"
    told = {run.peer: run.lateness for run in result.runs if run.lateness is not None}
    if not told:
        why = "There was no switch: the race ran on plain loopback." if result.profile == LOOPBACK else "Not measured."
        return Chart("lateness", title, why, None)
    values = [max(value, _LEAST_US) for late in told.values() for value in (*_statistics(late), late.max_us)]
    limit = line_at(TRUSTED_LATENESS_US, "x", "do not trust p99.9 beyond 2 ms ", logarithmic=True)
    return Chart(
        "lateness",
        title,
        "How much later than planned the switch delivered packets while each peer trained: the machine's own noise, not "
        "the network that it plays. ● p50, ◆ p99, ■ p99.9; the pale line ends at the latest packet.",
        figure(
            [*_ranges(told), *_marks(result, told)],
            max(PAIRED_PX, 130 + 45 * len(told)),
            xaxis=log_axis("microseconds late", [*values, _SHOWN_FROM_US, TRUSTED_LATENESS_US * 1.2], num_ticks=7),
            yaxis=axis("", categoryorder="array", categoryarray=[plain(peer) for peer in told][::-1])
            # Room below the last peer for the limit's label.
            | {"range": [-1, len(told) - 0.5]}
            | {"tickfont": {"color": INK, "size": 13}},
            showlegend=False,
            **limit,
        ),
    )


def late_ranks(result: RaceResult) -> Chart:
    title = "Who was late"
    runs = [run for run in result.runs if run.incomplete_by_rank]
    if not any(is_holdfast(run) and run.steps for run in result.runs):
        return Chart("late-ranks", title, "Only Holdfast says who was late, and it trained no step.", None)
    if not any(count for run in runs for count in run.incomplete_by_rank.values()):
        return Chart("late-ranks", title, "Nobody: every rank delivered every operation in full.", None)
    places = palette.places([run.peer for run in result.runs])
    return Chart(
        "late-ranks",
        title,
        "Operations that each rank did not deliver in full by the deadline, as Holdfast counted them. One rank that "
        "stands out is a straggler; all alike is the network.",
        figure(
            [_bars(run, places[run.peer]) for run in runs],
            PAIRED_PX,
            xaxis=axis("", type="category"),
            yaxis=axis("operations", rangemode="tozero"),
            barmode="group",
            bargap=0.35,
        ),
    )


def _statistics(late: SwitchLateness) -> list[float]:
    return [getattr(late, name) for name in _STATISTICS]


def _ranges(told: dict[str, SwitchLateness]) -> list[dict[str, Any]]:
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [max(late.p50_us, _LEAST_US), max(late.max_us, _LEAST_US)],
            "y": [plain(peer)] * 2,
            "line": {"color": GRID, "width": 4},
            "hoverinfo": "skip",
        }
        for peer, late in told.items()
    ]


def _marks(result: RaceResult, told: dict[str, SwitchLateness]) -> list[dict[str, Any]]:
    places = palette.places([run.peer for run in result.runs])
    traces = []
    for name, (label, symbol) in _STATISTICS.items():
        values = {peer: getattr(late, name) for peer, late in told.items()}
        too_late = {peer: name == "p999_us" and value > TRUSTED_LATENESS_US for peer, value in values.items()}
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label,
                "x": [max(value, _LEAST_US) for value in values.values()],
                "y": [plain(peer) for peer in values],
                "text": [milliseconds_text(value / 1e3) for value in values.values()],
                "marker": {
                    "symbol": symbol,
                    "size": 13,
                    "color": [ALARM if too_late[peer] else palette.variable(places[peer]) for peer in values],
                    "line": {"color": PANEL, "width": 1.5},
                },
                "hovertemplate": f"<b>%{{y}}</b> {label} %{{text}}<extra></extra>",
            }
        )
    return traces


def _bars(run: Run, place: int) -> dict[str, Any]:
    ranks = sorted({*range(run.hosts), *run.incomplete_by_rank})
    counts = [run.incomplete_by_rank.get(rank, 0) for rank in ranks]
    return {
        "type": "bar",
        "name": plain(run.peer),
        "showlegend": True,
        "x": [f"rank {rank}" for rank in ranks],
        "y": counts,
        "text": [f"{count:,}" for count in counts],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": palette.variable(place)},
        "hovertemplate": f"<b>{plain(run.peer)}</b> %{{x}}: %{{y}} operations<extra></extra>",
    }
