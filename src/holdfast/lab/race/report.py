"""The race as one page: a file that needs nothing else, no network, and asks nobody for anything.

Whatever comes from a file or an argument is escaped. The page forbids itself every request by its own content policy.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import holdfast
from holdfast.errors import LabUnavailable
from holdfast.lab.race import palette
from holdfast.lab.race.headline import headline, remarks
from holdfast.lab.race.page import sections
from holdfast.lab.race.page.network_charts import late_ranks, lateness
from holdfast.lab.race.page.step_charts import distribution, over_training
from holdfast.lab.race.page.training_charts import drift, time_to_target
from holdfast.lab.race.result import RaceResult


def write_report(result: RaceResult, path: Path) -> None:
    """Writes the page. Needs plotly."""
    path.write_text(report_html(result), encoding="utf-8")


def report_html(result: RaceResult) -> str:
    graph_objects, plotly_script = _plotly()

    def figure_json(figure: dict[str, Any]) -> str:
        return str(graph_objects.Figure(figure).to_json())

    parts = [
        sections.arrival(result),
        sections.table_of_runs(result),
        sections.chart_section(time_to_target(result), figure_json),
        sections.pair(distribution(result), late_ranks(result), figure_json),
        sections.chart_section(over_training(result), figure_json),
        sections.pair(lateness(result), drift(result), figure_json),
        sections.losses(result),
        sections.events(result),
        sections.network(result),
        sections.explanations(result),
        sections.reproduction(result),
    ]
    sentence = headline(result)
    return Template(_resource("report.html")).substitute(
        title=escape(f"Race on {result.profile}: {sentence}"),
        light=palette.declarations(palette.LIGHT),
        dark=palette.declarations(palette.DARK),
        css=_resource("report.css"),
        headline=escape(sentence),
        facts=sections.facts(result),
        remarks=sections.remarks(remarks(result)),
        sections="\n".join(part for part in parts if part),
        footer=f"Made by Holdfast {escape(holdfast.__version__)}. Everything is in this file; it needs no network.",
        plotly=plotly_script,
        script=_resource("report.js"),
    )


def _resource(name: str) -> str:
    return (files("holdfast.lab.race.page") / name).read_text(encoding="utf-8")


def _plotly() -> tuple[Any, str]:
    """plotly's graph objects, which check every figure, and its script; loaded late: it is optional and slow."""
    try:
        import plotly.graph_objects as graph_objects
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise LabUnavailable("the report needs plotly", what_to_try="pip install 'holdfast[demo]'") from error
    return graph_objects, get_plotlyjs()
