from __future__ import annotations

import dataclasses
import math

from holdfast.lab.race.page.chart import Chart
from holdfast.lab.race.page.training_charts import drift, time_to_target
from lab.race.made_up_races import made_up_race


def layout(chart: Chart) -> dict[str, dict[str, object]]:
    assert chart.figure is not None
    return chart.figure["layout"]


def test_the_target_is_a_line_and_arrivals_are_marked_when_it_was_seen() -> None:
    result = made_up_race("gloo-tuned", "holdfast")
    chart = time_to_target(result)
    assert chart.figure is not None
    assert [shape["y0"] for shape in chart.figure["layout"]["shapes"]] == [0.95]
    arrivals = [trace for trace in chart.figure["data"] if trace.get("marker", {}).get("size") == 15]
    assert [trace["x"] for trace in arrivals] == [[run.seconds_to_target] for run in result.runs]
    assert all(trace["y"][0] >= result.target for trace in arrivals)
    assert "higher is better" in chart.caption


def test_a_loss_falls_on_a_log_axis_if_it_falls_far() -> None:
    far = time_to_target(made_up_race("holdfast", metric="loss", target=0.2))
    assert layout(far)["yaxis"]["type"] == "log"
    # plotly wants the exponent for a text and the value for a line.
    assert far.figure is not None
    assert far.figure["layout"]["annotations"][0]["y"] == math.log10(0.2)
    assert far.figure["layout"]["shapes"][0]["y0"] == 0.2
    assert "lower is better" in far.caption
    result = made_up_race("holdfast", metric="loss", target=1.5)
    beginning = dataclasses.replace(result.runs[0], evaluations=result.runs[0].evaluations[:8])
    near = time_to_target(dataclasses.replace(result, runs=(beginning,)))
    assert layout(near)["yaxis"].get("type") is None


def test_an_event_sits_on_the_line_of_its_peer() -> None:
    result = made_up_race("gloo-tuned")
    chart = time_to_target(result)
    assert chart.figure is not None
    line, _, events = chart.figure["data"]
    (at,), (height,) = events["x"], events["y"]
    before = max(index for index, second in enumerate(line["x"]) if second <= at)
    low, high = sorted(line["y"][before : before + 2])
    assert low <= height <= high


def test_equal_replicas_need_no_chart() -> None:
    assert drift(made_up_race("gloo-tuned")).figure is None
    assert "bit for bit" in drift(made_up_race("gloo-tuned")).caption
    assert drift(made_up_race("gloo-tuned", "holdfast")).figure is not None
