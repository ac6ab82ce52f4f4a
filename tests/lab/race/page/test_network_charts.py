from __future__ import annotations

import dataclasses

from holdfast.lab.race.page.chart import ALARM
from holdfast.lab.race.page.network_charts import late_ranks, lateness
from holdfast.lab.race.result import SwitchLateness
from lab.race.made_up_races import made_up_race, without_training


def test_a_switch_beyond_two_milliseconds_is_drawn_in_alarm() -> None:
    result = made_up_race("gloo-tuned", "holdfast")
    late = dataclasses.replace(result.runs[1], lateness=SwitchLateness(0.0, 2500.0, 2001.0, 9000.0, {}))
    figure = lateness(dataclasses.replace(result, runs=(result.runs[0], late))).figure
    assert figure is not None
    assert figure["layout"]["shapes"][0]["x0"] == 2000.0
    by_name = {trace["name"]: trace for trace in figure["data"] if "name" in trace}
    assert [colour == ALARM for colour in by_name["p99.9"]["marker"]["color"]] == [False, True]
    assert ALARM not in by_name["p99"]["marker"]["color"]
    assert min(by_name["p50"]["x"]) > 0  # a log axis has no zero


def test_who_was_late_counts_by_rank() -> None:
    result = made_up_race("gloo-tuned", "holdfast")
    accused = dataclasses.replace(result.runs[1], incomplete_by_rank={2: 17})
    figure = late_ranks(dataclasses.replace(result, runs=(accused,))).figure
    assert figure is not None
    (bars,) = figure["data"]
    assert bars["x"] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert bars["y"] == [0, 0, 17, 0]


def test_nobody_late_and_nobody_asked_are_different_sentences() -> None:
    result = made_up_race("gloo-tuned", "holdfast")
    punctual = dataclasses.replace(result.runs[1], incomplete_by_rank=dict.fromkeys(range(4), 0))
    assert "every rank delivered" in late_ranks(dataclasses.replace(result, runs=(punctual,))).caption
    assert "trained no step" in late_ranks(made_up_race("gloo-tuned")).caption
    idle = dataclasses.replace(result, runs=(without_training("holdfast", result),))
    assert "trained no step" in late_ranks(idle).caption
