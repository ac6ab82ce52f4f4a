"""The four schedules of a plan as one page, one above the other: offline, zoom by mouse, details on hover."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.reroute.planner import Plan
from holdfast.reroute.plotting import plotly_parts
from holdfast.reroute.schedule import OPTIMIZER, Operation, Schedule
from holdfast.reroute.shape import Worker

if TYPE_CHECKING:
    import plotly.graph_objects

# More boxes than this make a browser crawl; larger plans show the workers that failures touch most.
MAX_BOXES = 14_000
MAX_WORKERS = 48
# Numbers inside boxes are only legible, and only affordable, on small plans.
MAX_LABELS = 5_000
TOP_PX = 150
"""Room for heading and legend."""

TITLES = {
    "fault_free": "Fault-free 1F1B",
    "rerouted": "Re-routed",
    "decoupled": "+ decoupled backward",
    "staggered": "+ staggered optimizer",
}


@dataclass(frozen=True)
class _Look:
    name: str
    own: str
    rerouted: str
    text: str = "#ffffff"


# Own work in cool blues and greens, re-routed work of the same kind in warm tones, so that detours stand out.
_LOOKS = {
    "F": _Look("forward", "#4c78a8", "#e45756"),
    "B": _Look("backward (fused)", "#2f8f83", "#b5382f"),
    "I": _Look("input gradient", "#6bb5a8", "#f2862f", "#10222e"),
    "W": _Look("weight gradient", "#b9dcd3", "#ffc27a", "#10222e"),
    "O": _Look("all-reduce + optimizer", "#8d99a6", "#8d99a6"),
}
_DEAD = "#3b3b3b"


def gantt_figure(plan: Plan) -> plotly.graph_objects.Figure:
    """The picture as a plotly figure."""
    go, make_subplots = plotly_parts()

    workers = shown_workers(plan)
    steps = plan.steps
    figure = make_subplots(
        rows=len(steps),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.045,
        subplot_titles=[_title(plan, name, schedule) for name, schedule in steps.items()],
    )
    labels = [_label(worker) for worker in workers]
    num_boxes = len(workers) * 3 * plan.job.shape.microbatches * len(steps)
    in_legend: set[str] = set()
    for row, (_, schedule) in enumerate(steps.items(), start=1):
        for trace in _boxes(schedule, workers, with_numbers=num_boxes <= MAX_LABELS):
            group = str(trace["legendgroup"])
            figure.add_trace(go.Bar(**trace, showlegend=group not in in_legend), row=row, col=1)
            in_legend.add(group)
        dead = [worker for worker in workers if worker in schedule.job.failed]
        if dead:
            figure.add_trace(_dead_rows(go, dead, schedule.period, "dead" not in in_legend), row=row, col=1)
            in_legend.add("dead")
        figure.update_yaxes(
            categoryorder="array", categoryarray=labels[::-1], tickfont={"size": 11}, row=row, col=1, fixedrange=True
        )
        figure.add_trace(_next_iteration(go, schedule, workers, in_legend=row == 1), row=row, col=1)
        if schedule.synchronous:
            figure.add_vline(x=schedule.slots, line={"color": "#222", "width": 1, "dash": "dot"}, row=row, col=1)
    _finish(figure, plan, workers)
    return figure


def gantt_html(plan: Plan) -> str:
    """A self-contained page; it needs no network."""
    page: str = gantt_figure(plan).to_html(
        include_plotlyjs=True, full_html=True, config={"displaylogo": False, "showSendToCloud": False}
    )
    return page.replace("<head>", "<head><title>Holdfast pipeline plan</title>", 1)


def shown_workers(plan: Plan) -> list[Worker]:
    """All workers, or for large jobs the dead ones and the busiest of their peers."""
    everyone = plan.job.shape.workers()
    per_worker = 3 * plan.job.shape.microbatches * len(plan.steps)
    affordable = max(4, min(MAX_WORKERS, MAX_BOXES // per_worker))
    if len(everyone) <= affordable:
        return everyone
    hit = {worker.stage for worker in plan.job.failed}
    chosen = sorted(plan.job.failed)[: affordable // 2]
    chosen += [worker for worker in everyone if worker.stage in hit and worker not in plan.job.failed]
    chosen += [worker for worker in everyone if worker.stage not in hit]
    return sorted(chosen[:affordable])


def _title(plan: Plan, name: str, schedule: Schedule) -> str:
    change = schedule.slots / plan.fault_free.slots - 1
    than = "" if name == "fault_free" else f", {change:+.0%}" if round(change * 100) else ", no slower"
    text = f"<b>{TITLES[name]}</b>: {schedule.slots} slots{than} (period {schedule.period} with the optimizer"
    if schedule.num_split:
        text += f"; {schedule.num_split} of {schedule.work.num_cells} backwards split"
    if name == "rerouted" and plan.rerouted_best.slots < schedule.slots:
        text += f"; the solver finds {plan.rerouted_best.slots}"
    return text + ")"


def _label(worker: Worker) -> str:
    return f"pipeline {worker.pipeline} · stage {worker.stage}"


def _boxes(schedule: Schedule, workers: list[Worker], with_numbers: bool) -> list[dict[str, Any]]:
    shown = set(workers)
    kinds: dict[tuple[str, bool], list[Operation]] = defaultdict(list)
    for operation in schedule.operations():
        if operation.worker in shown:
            kinds[operation.op, operation.is_rerouted].append(operation)
    traces = []
    for rank, (kind, look) in enumerate(_LOOKS.items()):
        for rerouted in (False, True):
            operations = kinds.get((kind, rerouted))
            if not operations:
                continue
            name = look.name + (", re-routed" if rerouted else "")
            traces.append(
                {
                    "orientation": "h",
                    "name": name,
                    "legendgroup": name,
                    "legendrank": 1000 + rank + (100 if rerouted else 0),
                    "y": [_label(operation.worker) for operation in operations],
                    "base": [operation.start for operation in operations],
                    "x": [operation.duration for operation in operations],
                    "width": 0.86,
                    "marker": {
                        "color": look.rerouted if rerouted else look.own,
                        "line": {"color": "#ffffff", "width": 0.8},
                    },
                    "text": [_number(operation, schedule) for operation in operations] if with_numbers else None,
                    "textposition": "inside",
                    "insidetextanchor": "middle",
                    "textangle": 0,
                    "constraintext": "none",
                    "textfont": {"size": 9, "color": "#10222e" if look.text != "#ffffff" else "#ffffff"},
                    "customdata": [_details(operation, look.name) for operation in operations],
                    "hovertemplate": "%{customdata}<extra></extra>",
                }
            )
    return traces


def _number(operation: Operation, schedule: Schedule) -> str:
    """Numbered through all pipelines from 1, as in the paper's figures."""
    if operation.microbatch is None:
        return "opt"
    return str(operation.pipeline * schedule.job.shape.microbatches + operation.microbatch + 1)


def _details(operation: Operation, name: str) -> str:
    lines = [f"<b>{name}</b> on {_label(operation.worker)}"]
    if operation.op != OPTIMIZER:
        lines.append(f"micro-batch {operation.microbatch} of pipeline {operation.pipeline}")
        if operation.is_rerouted:
            lines.append(f"re-routed from dead {Worker(operation.pipeline, operation.worker.stage)}")
    lines.append(f"ticks {operation.start} to {operation.end}")
    return "<br>".join(lines)


def _dead_rows(go: Any, dead: list[Worker], period: int, in_legend: bool) -> Any:
    return go.Bar(
        orientation="h",
        name="dead worker",
        legendgroup="dead",
        legendrank=1800,
        showlegend=in_legend,
        y=[_label(worker) for worker in dead],
        x=[period] * len(dead),
        base=[0] * len(dead),
        width=0.86,
        marker={"color": "#e9e4e4", "pattern": {"shape": "/", "fgcolor": _DEAD, "size": 7, "solidity": 0.25}},
        text=["dead"] * len(dead),
        textposition="inside",
        insidetextanchor="middle",
        textfont={"size": 12, "color": "#a01010"},
        hovertemplate="%{y}: dead<extra></extra>",
    )


def _next_iteration(go: Any, schedule: Schedule, workers: list[Worker], in_legend: bool) -> Any:
    """The first forward of the next iteration, a period later: shows that staggered windows fit into each other."""
    stages, costs = schedule.job.shape.stages, schedule.job.costs
    alive = [worker for worker in workers if worker not in schedule.job.failed]
    first = schedule.timing.first_start
    return go.Bar(
        orientation="h",
        name="next iteration begins",
        legendgroup="next",
        legendrank=1900,
        showlegend=in_legend,
        y=[_label(worker) for worker in alive],
        x=[costs[worker.stage].forward for worker in alive],
        base=[first[worker.pipeline * stages + worker.stage] + schedule.period for worker in alive],
        width=0.86,
        marker={"color": "#eaf1f8", "line": {"color": "#4c78a8", "width": 1}},
        hovertemplate="%{y}: next iteration from tick %{base}<extra></extra>",
    )


def _finish(figure: Any, plan: Plan, workers: list[Worker]) -> None:
    shape, total = plan.job.shape, plan.job.shape.num_workers
    dead = ", ".join(str(worker) for worker in sorted(plan.job.failed)[:12]) or "none"
    if len(plan.job.failed) > 12:
        dead += f" and {len(plan.job.failed) - 12} more"
    subtitle = (
        f"{shape.stages} stages x {shape.pipelines} pipelines x {shape.microbatches} micro-batches; dead "
        f"(pipeline:stage): {dead}; lower bound {plan.limits.work}"
    )
    if len(workers) < total:
        subtitle += f"; {len(workers)} of {total} workers shown"
    rows = len(plan.steps)
    figure_height = TOP_PX + 50 + rows * (52 + 19 * len(workers))
    figure.update_layout(
        barmode="overlay",
        bargap=0,
        template="plotly_white",
        title={
            "text": f"Holdfast pipeline plan<br><sup>{subtitle}</sup>",
            "x": 0.01,
            "y": 1 - 14 / figure_height,
            "yanchor": "top",
        },
        legend={
            "orientation": "h",
            "y": 1 - 52 / figure_height,
            "yanchor": "top",
            "yref": "container",
            "x": 0,
            "font": {"size": 11},
        }
        | {"title": {"text": ""}, "entrywidth": 165, "entrywidthmode": "pixels"},
        height=figure_height,
        margin={"l": 130, "r": 20, "t": TOP_PX, "b": 50},
        hoverlabel={"align": "left"},
    )
    for annotation in figure.layout.annotations:
        annotation.update(x=0, xanchor="left", font={"size": 13})
    figure.update_xaxes(showticklabels=True, tickfont={"size": 10}, showgrid=True)
    figure.update_xaxes(title_text="ticks", row=rows, col=1)
