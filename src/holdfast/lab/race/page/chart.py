"""What all charts of the report share: a figure as plain data, its heading, and axes in the page's own colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from holdfast.lab.race.spread import log_ticks, wants_log

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
CLEAR = "rgba(0,0,0,0)"
INK, SOFT, GRID, PANEL, ALARM = (f"var(--{name})" for name in ("ink", "soft", "grid", "panel", "alarm"))
PAIRED_PX = 360
"""Height of charts that stand beside each other."""


@dataclass(frozen=True)
class Chart:
    """A chart and its words. Without a figure the caption says why there is nothing to draw."""

    key: str
    title: str
    caption: str
    figure: dict[str, Any] | None


def figure(traces: Sequence[dict[str, Any]], height: int, **layout: Any) -> dict[str, Any]:
    return {"data": list(traces), "layout": _LAYOUT | {"height": height} | layout}


def plain(text: str) -> str:
    """For plotly's texts, which know tags and most entities, but not the one for a quotation mark."""
    return escape(text, quote=False)


def axis(title: str = "", **settings: Any) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 13}},
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        "automargin": True,
        "tickfont": {"size": 12},
    } | settings


def line_at(value: float, along: str, text: str, *, colour: str = ALARM, logarithmic: bool = False) -> dict[str, Any]:
    """A limit across the whole chart and its label, as a part of the layout; `along` is the axis it is read on."""
    across = "y" if along == "x" else "x"
    shape = {
        "type": "line",
        f"{along}0": value,
        f"{along}1": value,
        f"{across}0": 0,
        f"{across}1": 1,
        f"{across}ref": "paper",
        "line": {"color": colour, "width": 1.5, "dash": "dash"},
    }
    label = {
        "text": text,
        "showarrow": False,
        "font": {"color": colour, "size": 12},
        along: math.log10(value) if logarithmic else value,  # plotly: shapes take values, annotations exponents
        across: 1 if across == "x" else 0,
        f"{across}ref": "paper",
        "xanchor": "left" if across == "x" else "right",
        "yanchor": "middle" if across == "x" else "bottom",
        "align": "left",
    }
    return {"shapes": [shape], "annotations": [label]}


def value_axis(title: str, values: Sequence[float], num_ticks: int = 6, **settings: Any) -> dict[str, Any]:
    """Logarithmic if the values ask for it, else from zero."""
    if wants_log(values):
        return log_axis(title, values, num_ticks, **settings)
    return axis(
        title,
        range=[0, 1.08 * max((value for value in values if math.isfinite(value)), default=1)],
        nticks=num_ticks,
        **settings,
    )


def log_axis(title: str, values: Sequence[float], num_ticks: int = 6, **settings: Any) -> dict[str, Any]:
    """With numbers that can be read: 5, 10, 20, 50."""
    positive = [value for value in values if math.isfinite(value) and value > 0]
    ticks = log_ticks(values, num_ticks)
    return axis(
        title,
        type="log",
        tickvals=list(ticks),
        ticktext=list(ticks.values()),
        range=[math.log10(min(positive)) - 0.08, math.log10(max(positive)) + 0.12],
        **settings,
    )


_LAYOUT: dict[str, Any] = {
    "template": {},
    "paper_bgcolor": CLEAR,
    "plot_bgcolor": CLEAR,
    "font": {"family": FONT, "size": 13, "color": SOFT},
    "margin": {"l": 8, "r": 14, "t": 30, "b": 8},
    "hovermode": "closest",
    "hoverlabel": {"bgcolor": PANEL, "bordercolor": GRID, "font": {"color": INK, "family": FONT}, "align": "left"},
    "legend": {
        "orientation": "h",
        "x": 0,
        "y": 1.02,
        "xanchor": "left",
        "yanchor": "bottom",
        "font": {"color": INK, "size": 13},
    },
    "modebar": {"bgcolor": CLEAR, "color": SOFT, "activecolor": INK},
}
