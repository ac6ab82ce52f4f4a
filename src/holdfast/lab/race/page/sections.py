"""The parts of the report's page as HTML: bars, tables, charts, lists. Every text from outside is escaped here."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from holdfast.lab.race import headline, palette
from holdfast.lab.race.page.chart import Chart
from holdfast.lab.race.result import LOOPBACK, RaceResult, Run
from holdfast.lab.race.units import (
    NOTHING,
    drift_text,
    metric_text,
    milliseconds_text,
    rate_text,
    seconds_text,
    share_text,
    target_text,
)

MAX_SHOWN_EVENTS = 12


def facts(result: RaceResult) -> str:
    """What all runs had in common, in a line under the headline."""
    hosts = f"<b>{result.hosts}</b> {_hosts(result)}"
    if result.bits_per_s:
        hosts += f" at {rate_text(result.bits_per_s)}"
    told = [
        f"task <b>{escape(result.task)}</b>: {escape(result.task_title)}",
        f"network <b>{escape(result.profile)}</b>",
        hosts,
        f"<b>{result.parameters:,}</b> parameters",
        f"seed <b>{result.seed}</b>",
    ]
    return "".join(f"<li>{fact}</li>" for fact in told)


def remarks(said: Sequence[headline.Remark]) -> str:
    return "".join(
        f'<p class="remark{" alarm" if remark.is_alarm else ""}" role="note">{escape(remark.text)}</p>'
        for remark in said
    )


def arrival(result: RaceResult) -> str:
    """The race at a glance: one bar per peer."""
    runs = headline.by_arrival(result)
    if not runs:
        return ""
    longest = max((_seconds_shown(run) for run in runs), default=0.0) or 1.0
    lanes = "".join(_lane(result, run, _seconds_shown(run) / longest) for run in runs)
    return _section(
        f"Training time until {target_text(result)}",
        "Shorter is better. A pale bar did not reach the target.",
        f'<div class="lanes">{lanes}</div>',
    )


def table_of_runs(result: RaceResult) -> str:
    names = ("peer", "steps", "time to target", f"final {result.metric}", "step p50", "step p99", "delivered", "drift")
    rows = [
        [
            _named(result, run.peer),
            f"{run.steps:,}",
            NOTHING if run.seconds_to_target is None else seconds_text(run.seconds_to_target),
            metric_text(result, run.final_metric),
            milliseconds_text(run.step_p50_ms),
            milliseconds_text(run.step_p99_ms),
            share_text(run.delivered_ratio),
            drift_text(run.drift_max),
        ]
        for run in result.runs
    ]
    shared = f"task {result.task}, profile {result.profile}, {result.hosts} {_hosts(result)}, seed {result.seed}"
    return _section(
        "The runs",
        f"All of {shared}: same model, same data, same order. Delivered is the share of all gradients that are in the "
        "averages; drift is the largest difference of a parameter between two ranks.",
        _table(names, rows),
    )


def chart_section(chart: Chart, figure_json: Callable[[dict[str, Any]], str]) -> str:
    body = ""
    if chart.figure is not None:
        # Nothing inside may end the script element; JSON allows the escaped form everywhere.
        data = figure_json(chart.figure).replace("<", "\\u003c")
        body = (
            f'<div class="chart" id="{chart.key}"><script type="application/json">{data}</script>'
            f'<div class="drawing" role="img" aria-label="{escape(chart.title)}"></div></div>'
        )
    return _section(chart.title, chart.caption, body)


def pair(left: Chart, right: Chart, figure_json: Callable[[dict[str, Any]], str]) -> str:
    """Beside each other where there is room, unless one is but a sentence."""
    both = chart_section(left, figure_json) + chart_section(right, figure_json)
    return both if left.figure is None or right.figure is None else f'<div class="pair">{both}</div>'


def losses(result: RaceResult) -> str:
    """What the network dropped, by cause."""
    told = {run.peer: run.lateness.losses for run in result.runs if run.lateness is not None}
    causes = list(dict.fromkeys(cause for counts in told.values() for cause, count in counts.items() if count))
    if not causes:
        return ""
    rows = [[_named(result, peer), *(f"{counts.get(cause, 0):,}" for cause in causes)] for peer, counts in told.items()]
    return _section(
        "What the network lost",
        "Packets that the switch dropped while each peer trained, by cause.",
        _table(("peer", *(cause.replace("_", " ") for cause in causes)), rows),
    )


def events(result: RaceResult) -> str:
    happened = sorted(
        ((event, run.peer) for run in result.runs for event in run.events), key=lambda pair: pair[0].seconds
    )
    if not happened:
        return _section("Events", "Nothing happened but training.", "")
    rows = [[_named(result, peer), seconds_text(event.seconds), escape(event.what)] for event, peer in happened]
    names = ("peer", "at", "what happened")
    table = _table(names, rows[:MAX_SHOWN_EVENTS], words=2)
    if len(rows) > MAX_SHOWN_EVENTS:
        rest = _table(names, rows[MAX_SHOWN_EVENTS:], words=2)
        table += f"<details><summary>{len(rows) - MAX_SHOWN_EVENTS:,} more</summary>{rest}</details>"
    return _section("Events", "In seconds of that peer's own training.", table)


def network(result: RaceResult) -> str:
    return _section(
        f"What the network {result.profile} stands for", "", f"<p>{escape(result.profile_models.strip())}</p>"
    )


def explanations(result: RaceResult) -> str:
    told = [run for run in result.runs if run.explain]
    if not told:
        return ""
    body = "".join(
        (f"<p><b>{_named(result, run.peer)}</b></p>" if len(told) > 1 else "")
        + f"<pre>{escape(chr(10).join(run.explain))}</pre>"
        for run in told
    )
    return _section("What Holdfast chose, and why", "Its own words, from rank 0 at the end of the training.", body)


def reproduction(result: RaceResult) -> str:
    return _section(
        "Run it again",
        "Data, weights and the network's misfortunes come from the seed; the machine's own noise does not. One race is "
        "one sample: repeat it with other seeds before you decide.",
        f"<pre>{escape(command(result))}</pre>",
    )


def command(result: RaceResult) -> str:
    """What to type for the same race."""
    words = ["holdfast", "race", "--task", result.task, "--hosts", str(result.hosts)]
    words += ["--loopback"] if result.profile == LOOPBACK else ["--profile", result.profile]
    words += ["--peers", ",".join(run.peer for run in result.runs), "--seed", str(result.seed)]
    words += ["--target", f"{result.target:g}", *result.further_arguments]
    return shlex.join(words)


def _hosts(result: RaceResult) -> str:
    return "ranks" if result.profile == LOOPBACK else "hosts"


def _seconds_shown(run: Run) -> float:
    seconds = run.seconds if run.seconds_to_target is None else run.seconds_to_target
    return seconds if math.isfinite(seconds) else 0.0


def _lane(result: RaceResult, run: Run, share: float) -> str:
    if run.seconds_to_target is not None:
        told = f"<b>{seconds_text(run.seconds_to_target)}</b>"
    else:
        told = "<b>not reached</b>"
        if math.isfinite(run.final_metric):
            told += f" · {metric_text(result, run.final_metric)} after {seconds_text(run.seconds)}"
    if run.steps:
        told += f" · half of the steps within {milliseconds_text(run.step_p50_ms)}, 99 of 100 within "
        told += f"{milliseconds_text(run.step_p99_ms)} · {share_text(run.delivered_ratio)} delivered"
    short = " short" if run.seconds_to_target is None else ""
    return (
        f'<div class="lane-name">{_named(result, run.peer)}</div><div class="track">'
        f'<div class="bar{short}" style="--colour: {_colour(result, run.peer)}; width: {100 * share:.1f}%"></div>'
        f'<div class="lane-text">{told}</div></div>'
    )


def _named(result: RaceResult, peer: str) -> str:
    return f'<span class="swatch" style="--colour: {_colour(result, peer)}"></span>{escape(peer)}'


def _colour(result: RaceResult, peer: str) -> str:
    return palette.variable(palette.places([run.peer for run in result.runs])[peer])


def _section(title: str, caption: str, body: str) -> str:
    told = f'<p class="caption">{escape(caption)}</p>' if caption else ""
    return f"<section><h2>{escape(title)}</h2>{told}{body}</section>"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], words: int | None = None) -> str:
    """Cells are HTML already; `words` is the column that holds sentences."""

    def cell(tag: str, column: int, text: str) -> str:
        return f'<{tag} class="words">{text}</{tag}>' if column == words else f"<{tag}>{text}</{tag}>"

    head = "".join(cell("th", column, escape(name)) for column, name in enumerate(names))
    body = "".join(
        "<tr>" + "".join(cell("td", column, text) for column, text in enumerate(row)) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
