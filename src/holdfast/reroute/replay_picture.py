"""A replay as one page: throughput of every policy over time, and what they delivered in all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.reroute.plotting import plotly_parts
from holdfast.reroute.replay import PolicyRun, Replay

if TYPE_CHECKING:
    import plotly.graph_objects

_COLOURS = ("#d1495b", "#30638e", "#3c8d5a", "#edae49", "#8d6a9f")


def replay_figure(played: Replay) -> plotly.graph_objects.Figure:
    """The picture as a plotly figure: availability, throughput over time, means."""
    go, make_subplots = plotly_parts()

    figure = make_subplots(
        rows=3,
        cols=1,
        row_heights=[0.2, 0.5, 0.3],
        vertical_spacing=0.11,
        subplot_titles=[
            "<b>Workers alive</b>",
            "<b>Throughput</b>, means over five minutes, relative to fault-free 1F1B",
            "<b>Mean over the whole trace</b>, lost work taken off (dotted: share of workers alive)",
        ],
    )
    hours = [seconds / 3600 for seconds, _ in played.trace.samples]
    alive = [available for _, available in played.trace.samples]
    figure.add_trace(
        go.Scatter(
            x=hours,
            y=alive,
            line={"shape": "hv", "color": "#444", "width": 2},
            fill="tozeroy",
            fillcolor="rgba(120,130,140,0.18)",
            showlegend=False,
            hovertemplate="%{x:.2f} h: %{y} workers<extra></extra>",
        ),
        row=1,
        col=1,
    )
    _add_fault_scaled(go, figure, played, hours, alive)
    for run, colour in zip(played.runs, _COLOURS, strict=True):
        _add_run(go, figure, run, colour)
    _add_means(go, figure, played)
    _finish(figure, played)
    return figure


def replay_html(played: Replay) -> str:
    """A self-contained page with the models in words below the picture; it needs no network."""
    page: str = replay_figure(played).to_html(
        include_plotlyjs=True, full_html=True, config={"displaylogo": False, "showSendToCloud": False}
    )
    rows = "".join(f"<li><b>{run.name}</b>: {run.model}.</li>" for run in played.runs)
    style = "font-family:sans-serif;font-size:14px;max-width:70em;margin:0 40px 40px"
    notes = f'<div style="{style}"><p>What each model assumes:</p><ul>{rows}</ul></div>'
    page = page.replace("<head>", "<head><title>Holdfast replay</title>", 1)
    return page.replace("</body>", notes + "</body>", 1)


def windowed(run: PolicyRun, window_s: float = 300.0) -> list[tuple[float, float]]:
    """(middle in seconds, mean rate) of consecutive windows: pauses of seconds would only be hairlines."""
    begin, end = run.stretches[0].begin_s, run.stretches[-1].end_s
    num_windows = max(1, round((end - begin) / window_s))
    width = (end - begin) / num_windows
    done = [0.0] * num_windows
    for one in run.stretches:
        first, last = int((one.begin_s - begin) / width), int((one.end_s - begin) / width)
        for index in range(first, min(last, num_windows - 1) + 1):
            low, high = begin + index * width, begin + (index + 1) * width
            done[index] += max(0.0, min(one.end_s, high) - max(one.begin_s, low)) * one.rate
    return [(begin + (index + 0.5) * width, amount / width) for index, amount in enumerate(done)]


def _add_fault_scaled(go: Any, figure: Any, played: Replay, hours: list[float], alive: list[int]) -> None:
    figure.add_trace(
        go.Scatter(
            x=hours,
            y=[available / played.job.shape.num_workers for available in alive],
            name="share of workers alive",
            line={"shape": "hv", "color": "#999", "width": 1.5, "dash": "dot"},
            hovertemplate="%{x:.2f} h: %{y:.3f}<extra>share of workers alive</extra>",
        ),
        row=2,
        col=1,
    )


def _add_run(go: Any, figure: Any, run: PolicyRun, colour: str) -> None:
    points = windowed(run)
    figure.add_trace(
        go.Scatter(
            x=[seconds / 3600 for seconds, _ in points],
            y=[rate for _, rate in points],
            name=run.name,
            line={"color": colour, "width": 3 if run.name == "Holdfast" else 1.8},
            hovertemplate="%{x:.2f} h: %{y:.3f}<extra>" + run.name + "</extra>",
        ),
        row=2,
        col=1,
    )


def _add_means(go: Any, figure: Any, played: Replay) -> None:
    runs = played.runs
    figure.add_trace(
        go.Bar(
            orientation="h",
            y=[run.name for run in runs],
            x=[run.mean for run in runs],
            marker={"color": list(_COLOURS[: len(runs)])},
            text=[f"{run.mean:.3f}" for run in runs],
            textposition="outside",
            cliponaxis=False,
            customdata=[[run.paused_s / 60, run.lost_s / 60] for run in runs],
            hovertemplate="%{y}: %{x:.3f}<br>stopped %{customdata[0]:.0f} min, lost %{customdata[1]:.0f} min of work"
            "<extra></extra>",
            showlegend=False,
        ),
        row=3,
        col=1,
    )
    figure.add_vline(x=played.mean_available, line={"color": "#999", "dash": "dot", "width": 1.5}, row=3, col=1)


def _finish(figure: Any, played: Replay) -> None:
    shape = played.job.shape
    subtitle = (
        f"{shape.stages} stages x {shape.pipelines} pipelines x {shape.microbatches} micro-batches, trace "
        f"{played.trace.name}, {played.trace.seconds / 3600:.1f} hours, seed {played.seed}"
    )
    figure.update_layout(
        template="plotly_white",
        title={"text": f"Five ways to live with lost workers<br><sup>{subtitle}</sup>", "x": 0.01},
        height=900,
        margin={"l": 150, "r": 40, "t": 110, "b": 50},
        legend={"orientation": "v", "x": 1.01, "y": 0.72, "yanchor": "top"},
        hovermode="closest",
    )
    for annotation in figure.layout.annotations:
        annotation.update(x=0, xanchor="left", font={"size": 14})
    end = played.trace.samples[-1][0] / 3600
    for row in (1, 2):
        figure.update_xaxes(range=[played.trace.samples[0][0] / 3600, end], row=row, col=1)
    figure.update_xaxes(title_text="hours", row=2, col=1, title_standoff=4)
    figure.update_xaxes(range=[0, 1.1], title_text="relative to fault-free 1F1B", row=3, col=1)
    figure.update_yaxes(rangemode="tozero", row=1, col=1)
    figure.update_yaxes(range=[0, 1.08], row=2, col=1)
    figure.update_yaxes(autorange="reversed", row=3, col=1)
