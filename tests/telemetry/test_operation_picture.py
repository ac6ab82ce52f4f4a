"""The picture: well-formed, a bar per peer and stage, everything on one axis."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from holdfast.outcome import Outcome
from holdfast.telemetry.operation_picture import Seen, draw
from telemetry.operations import ALONE, CALLED_LATE, CUT_OFF, DEAD, GIVEN_UP, QUIET

SVG = "{http://www.w3.org/2000/svg}"


def of_class(svg: str, tag: str, name: str) -> list[ElementTree.Element]:
    return [each for each in ElementTree.fromstring(svg).iter(SVG + tag) if name in each.get("class", "").split()]


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(svg).iter(SVG + "text")]


@pytest.mark.parametrize(
    ("outcome", "contributions", "results"),
    [(QUIET, 2, 2), (CUT_OFF, 2, 1), (GIVEN_UP, 2, 2), (DEAD, 1, 1), (CALLED_LATE, 2, 2), (ALONE, 0, 0)],
)
def test_whatever_came_has_a_bar(outcome: Outcome, contributions: int, results: int) -> None:
    svg = draw([Seen(outcome)])
    bars = of_class(svg, "rect", "bar")
    assert [sum(stage in bar.get("class", "") for bar in bars) for stage in ("contributions", "results")] == [
        contributions,
        results,
    ]
    assert len(of_class(svg, "path", "call")) == 2, "the own call, and its meaning"


def test_what_is_missing_stands_out() -> None:
    svg = draw([Seen(CUT_OFF)])
    assert len(of_class(svg, "rect", "hole")) == 2
    assert len(of_class(svg, "rect", "partial")) == 1
    assert [each.text for each in of_class(svg, "text", "alarm")] == ["75.0% missing", "nothing came"]
    assert of_class(draw([Seen(QUIET)]), "rect", "hole") == []


def test_a_lost_packet_is_no_alarm() -> None:
    svg = draw([Seen(GIVEN_UP)])
    assert of_class(svg, "text", "alarm") == []
    assert "0.4% missing" in texts(svg)


def test_bars_lie_where_their_times_are() -> None:
    svg = draw([Seen(QUIET)])
    first, *_, last = of_class(svg, "rect", "bar")
    ticks = {
        each.text: float(each.get("x", "nan")) for each in of_class(svg, "text", "soft") if each.text in ("0", "40")
    }
    pixels_per_ms = (ticks["40"] - ticks["0"]) / 40
    assert float(first.get("x", "nan")) == pytest.approx(ticks["0"] + 1.0 * pixels_per_ms, abs=0.1)
    assert float(last.get("x", "nan")) + float(last.get("width", "nan")) == pytest.approx(ticks["40"], abs=0.1)


def test_all_ranks_of_one_operation_share_an_axis() -> None:
    other = dataclasses.replace(QUIET, rank=0)
    svg = draw([Seen(QUIET, opened_ms=7.0), Seen(other, opened_ms=2.0)], "a < b")
    assert "a < b" in texts(svg)
    assert [each.text for each in of_class(svg, "text", "panel")] == ["rank 0", "rank 1"]
    bars = of_class(svg, "rect", "bar")
    assert len(bars) == 8
    ticks = {
        each.text: float(each.get("x", "nan")) for each in of_class(svg, "text", "soft") if each.text in ("0", "40")
    }
    shift = float(bars[4].get("x", "nan")) - float(bars[0].get("x", "nan"))
    assert shift == pytest.approx(5.0 * (ticks["40"] - ticks["0"]) / 40, abs=0.1)


def test_an_outcome_draws_itself(tmp_path: Path) -> None:
    CUT_OFF.draw(tmp_path / "slow.svg")
    assert ElementTree.parse(tmp_path / "slow.svg").getroot().tag == SVG + "svg"


def test_somebody_must_have_seen_it() -> None:
    with pytest.raises(ValueError, match="no rank"):
        draw([])
