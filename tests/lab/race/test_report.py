"""The page is whole by itself: opened in a browser without a network, its charts are there, and it asks for nothing."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest

from holdfast.lab.race.report import report_html, write_report
from holdfast.lab.race.result import Event, RaceResult
from lab.race import browser
from lab.race.made_up_races import PACES, made_up_race, on_loopback, without_training

pytest.importorskip("plotly", reason="the report needs plotly")

CHARTS = ("time-to-target", "step-distribution", "late-ranks", "steps", "lateness", "drift")
NUM_STEPS = 240
MAX_BYTES = 6_000_000
HOSTILE = '<script>alert("x")</script>&amp;\'$headline\\u003c'


def markup_of(page: str) -> str:
    """The page without plotly's own script: what we wrote."""
    head, _, rest = page.partition("<script>/**")
    return head + rest.partition("</script>")[2]


def figures_of(page: str) -> dict[str, dict[str, list[dict[str, object]]]]:
    found = re.findall(r'id="([a-z-]+)"><script type="application/json">(.*?)</script>', page)
    return {key: json.loads(text) for key, text in found}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> browser.Drawn:
    """Six peers, one of them badly named, as a browser without a network shows them."""
    if why := browser.missing():
        pytest.skip(why)
    scratch = tmp_path_factory.mktemp("page")
    write_report(hostile(made_up_race(*PACES, num_steps=NUM_STEPS), peer="gloo-bbr"), scratch / "race.html")
    document, console = browser.open_page(scratch / "race.html", scratch)
    assert console == ""
    return browser.Drawn(document)


def test_a_browser_without_network_draws_every_chart(drawn: browser.Drawn) -> None:
    assert set(drawn.classes) == set(CHARTS)
    assert all(drawn.classes[chart]["main-svg"] >= 1 for chart in CHARTS)
    # Of every peer a line, where it arrived, and its events; a curve and its percentiles; a strip.
    assert drawn.classes["time-to-target"]["scatter"] == 3 * len(PACES)
    assert drawn.classes["step-distribution"]["scatter"] == 2 * len(PACES)
    assert drawn.classes["steps"]["scatter"] == len(PACES)
    assert drawn.classes["steps"]["point"] == NUM_STEPS * len(PACES)
    assert drawn.classes["lateness"]["point"] == 3 * len(PACES)
    assert drawn.classes["drift"]["scatter"] == len(PACES)
    assert drawn.classes["late-ranks"]["bars"] == 2


def test_the_browser_shows_every_peer_by_its_name(drawn: browser.Drawn) -> None:
    peers = (set(PACES) - {"gloo-bbr"}) | {HOSTILE}
    for chart in ("time-to-target", "step-distribution", "steps", "lateness", "drift"):
        assert peers <= set(drawn.texts[chart]), chart
    assert {"rank 0", "rank 3", "holdfast", "holdfast-exact"} <= set(drawn.texts["late-ranks"])
    assert {"target", "95%"} <= set(drawn.texts["time-to-target"])


def test_the_page_refers_to_no_host() -> None:
    page = report_html(made_up_race("gloo-tuned", "holdfast"))
    markup = markup_of(page)
    assert len(markup) < 200_000
    assert "//" not in re.sub(r"^\s*//.*$", "", markup, flags=re.MULTILINE)
    for attribute in ("src=", "href=", "@import", "url("):
        assert attribute not in markup
    assert "default-src 'none'" in markup
    assert "showSendToCloud: false" in markup


def test_five_thousand_steps_of_six_peers_stay_small(tmp_path: Path) -> None:
    write_report(made_up_race(*PACES, num_steps=5000), tmp_path / "race.html")
    assert (tmp_path / "race.html").stat().st_size < MAX_BYTES


def test_everything_from_outside_is_escaped() -> None:
    page = report_html(hostile(made_up_race("gloo-tuned", "holdfast", num_steps=60), peer="gloo-tuned"))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;amp;&#x27;$headline\\u003c" in page
    assert len(figures_of(page)) == len(CHARTS)


def test_the_table_has_all_twelve_figures() -> None:
    result = made_up_race("gloo-tuned", "holdfast", num_steps=360)
    text = re.sub(r"<[^>]+>", " ", markup_of(report_html(result)))
    own = result.runs[1]
    assert f"All of task digits, profile lossy-1, 4 hosts, seed {result.seed}" in text
    row = ["holdfast", "360", f"{own.seconds_to_target:.1f} s", "97.05%", "41.0 ms", "48.1 ms", "98.97%", "3.9e-04"]
    assert re.search(r"\s+".join(map(re.escape, row)), text)


def test_a_share_of_almost_everything_is_not_shown_as_everything() -> None:
    result = made_up_race("holdfast", num_steps=60)
    almost = dataclasses.replace(result.runs[0], delivered_ratio=0.999996)
    markup = markup_of(report_html(dataclasses.replace(result, runs=(almost,))))
    assert "99.9996%" in markup
    assert "100%" not in re.sub(r"<style>.*?</style>", "", markup, flags=re.DOTALL).replace("width: 100", "")


def test_loopback_has_no_lateness() -> None:
    page = report_html(on_loopback(made_up_race("gloo-tuned", "holdfast", num_steps=60)))
    assert "lateness" not in figures_of(page)
    assert "There was no switch" in page


@pytest.mark.parametrize("case", ["nobody", "nothing", "no peer", "not a number", "one step"])
def test_odd_races_are_reported_too(case: str) -> None:
    page = report_html(odd_race(case))
    assert page.count("<section>") >= 9
    assert "nan" not in re.sub(r"<[^>]+>", " ", markup_of(page)).lower().split()


def test_nothing_is_invented_for_a_run_without_steps() -> None:
    page = report_html(odd_race("nothing"))
    assert figures_of(page) == {}
    assert "No step was trained by holdfast." in page
    assert "Nobody: every rank delivered" not in page


def hostile(result: RaceResult, peer: str) -> RaceResult:
    """Whatever a user may name, named badly."""
    runs = tuple(
        dataclasses.replace(
            run, peer=HOSTILE if run.peer == peer else run.peer, events=(Event(1.0, HOSTILE),), explain=(HOSTILE,)
        )
        for run in result.runs
    )
    named = dict.fromkeys(("task", "task_title", "profile", "profile_models"), HOSTILE)
    return dataclasses.replace(result, runs=runs, **named)


def odd_race(case: str) -> RaceResult:
    result = made_up_race("gloo-tuned", "holdfast", num_steps=60)
    nan = math.nan
    if case == "nobody":
        return made_up_race("gloo-tuned", "holdfast", num_steps=60, target=0.9999)
    if case == "nothing":
        return dataclasses.replace(result, runs=(without_training("holdfast", result),))
    if case == "no peer":
        return dataclasses.replace(result, runs=())
    if case == "one step":
        return made_up_race("holdfast", num_steps=1)
    lost = [dataclasses.replace(point, metric=nan, loss=nan, drift=nan) for point in result.runs[0].evaluations]
    broken = dataclasses.replace(
        result.runs[0], evaluations=tuple(lost), final_metric=nan, drift_max=nan, seconds_to_target=None
    )
    return dataclasses.replace(result, runs=(broken, result.runs[1]))
