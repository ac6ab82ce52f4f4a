"""Stolen processor time: the right column, of the right total, between two readings."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.lab.stolen import ProcessorTime

STAT = "cpu  100 10 50 800 5 1 4 30 90 9\ncpu0 50 5 25 400 2 0 2 15 45 4\nintr 12345\n"


def test_steal_is_counted_once_and_guests_not_twice() -> None:
    assert ProcessorTime.parse(STAT) == ProcessorTime(stolen=30, total=1000)


def test_the_share_of_a_span() -> None:
    before, after = ProcessorTime.parse(STAT), ProcessorTime(stolen=55, total=1100)
    assert (after - before).stolen_ratio == pytest.approx(0.25)
    assert ((after - before) + ProcessorTime(5, 20)).stolen_ratio == pytest.approx(0.25)


@pytest.mark.parametrize("span", [ProcessorTime(), ProcessorTime(-1, 100)])
def test_no_time_and_time_taken_back_are_nothing_stolen(span: ProcessorTime) -> None:
    assert span.stolen_ratio == 0


@pytest.mark.parametrize("text", ["cpu0 1 2 3 4 5 6 7 8\n", "cpu 1 2 3 4\n"])
def test_another_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="/proc/stat"):
        ProcessorTime.parse(text)


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc/stat")
def test_this_machine_has_one() -> None:
    now = ProcessorTime.now()
    assert 0 <= now.stolen <= now.total
