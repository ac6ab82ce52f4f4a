"""What ranks announce is a line on a descriptor; outside the lab nothing happens."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.lab import events
from holdfast.lab.marks import EVENTS


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("step 12\n", ("step", 12)),
        ("epoch 3", ("epoch", 3)),
        ("step -1", None),
        ("step", None),
        ("step twelve", None),
        ("rm 12", None),
        ("step " + "9" * 19, None),
        ("", None),
    ],
)
def test_only_steps_and_epochs_are_events(line: str, event: tuple[str, int] | None) -> None:
    assert events.parse(line) == event


def test_outside_the_lab_nothing_happens() -> None:
    assert EVENTS not in os.environ
    events.step(1)
    events.epoch(1)
    events.straggle(1e9)
    assert events.slowness() == 1.0


def test_events_arrive_and_a_lab_that_does_not_read_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    monkeypatch.setenv(EVENTS, str(writing))
    events.step(7)
    events.epoch(2)
    assert os.read(reading, 100) == b"step 7\nepoch 2\n"
    for number in range(20_000):
        events.step(number)  # more than a pipe holds
    os.close(reading)
    events.step(8)
    os.close(writing)


def test_the_events_of_a_job_need_no_torch() -> None:
    code = "import sys; from holdfast.lab import events; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
