from __future__ import annotations

import dataclasses
import json
import re

from holdfast.lab.race.page import sections
from holdfast.lab.race.page.chart import Chart
from holdfast.lab.race.result import Event, RaceResult
from lab.race.made_up_races import made_up_race, on_loopback, without_training


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def widths(html: str) -> list[float]:
    return [float(width) for width in re.findall(r"width: ([\d.]+)%", html)]


def test_bars_are_as_long_as_the_training_took() -> None:
    result = made_up_race("gloo-cubic", "gloo-tuned", "holdfast")
    seconds = sorted(run.seconds_to_target or 0.0 for run in result.runs)
    bars = sections.arrival(result)
    assert widths(bars) == [round(100 * value / seconds[-1], 1) for value in seconds]
    assert words(bars).index("holdfast") < words(bars).index("gloo-tuned") < words(bars).index("gloo-cubic")


def test_a_bar_that_missed_the_target_is_pale_and_says_so() -> None:
    result = made_up_race("gloo-tuned", "holdfast", target=0.9999)
    assert sections.arrival(result).count("bar short") == 2
    assert words(sections.arrival(result)).count("not reached") == 2


def test_a_run_that_never_began_has_no_length() -> None:
    result = made_up_race("holdfast")
    both = dataclasses.replace(result, runs=(*result.runs, without_training("gloo", result)))
    assert widths(sections.arrival(both)) == [100.0, 0.0]


def test_a_path_with_spaces_survives_the_command_line() -> None:
    result = dataclasses.replace(made_up_race("gloo-tuned", "holdfast", seed=3), profile="my networks/bad.toml")
    assert sections.command(result) == (
        "holdfast race --task digits --hosts 4 --profile 'my networks/bad.toml' --peers gloo-tuned,holdfast --seed 3 "
        "--target 0.95"
    )


def test_no_text_of_a_figure_can_end_the_script_that_holds_it() -> None:
    chart = Chart("key", "title", "caption", {"data": [{"name": "</script><b>"}], "layout": {}})
    html = sections.chart_section(chart, json.dumps)
    (held,) = re.findall(r"json\">(.*?)</script>", html)
    assert json.loads(held) == chart.figure


def test_many_events_are_folded_in_the_order_of_time() -> None:
    result = with_events(made_up_race("holdfast"), 30)
    told = words(sections.events(result))
    assert re.findall(r"event (\d+)", told) == [str(number) for number in range(30)]
    assert "18 more" in told
    assert "<details>" not in sections.events(with_events(result, 3))
    assert "Nothing happened" in sections.events(with_events(result, 0))


def test_losses_are_counted_by_cause_and_absent_causes_left_out() -> None:
    result = made_up_race("gloo-tuned", "holdfast", num_steps=100)
    told = words(sections.losses(result))
    assert "random loss port queue" in told
    assert "holdfast 5,600" in told
    assert "link down" not in told
    assert sections.losses(on_loopback(result)) == ""


def with_events(result: RaceResult, number: int) -> RaceResult:
    """Backwards, so that somebody has to sort them."""
    events = tuple(Event(float(index), f"event {index}") for index in reversed(range(number)))
    return dataclasses.replace(result, runs=(dataclasses.replace(result.runs[0], events=events),))
