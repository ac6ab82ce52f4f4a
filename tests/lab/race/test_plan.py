"""What cannot be raced is refused before anything is built; the target is reached on the right side."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.lab.fault import load_faults
from holdfast.lab.peer import parse_peers
from holdfast.lab.profile import load_profile
from holdfast.lab.race.plan import Plan
from holdfast.lab.race.task import task_named
from holdfast.lab.schedule import load_schedule

LAB = Plan(task_named("digits"), parse_peers("gloo-tuned,holdfast"), 4, load_profile("clean"), 0, 0.9, 100)
LOOPBACK = dataclasses.replace(LAB, peers=parse_peers("gloo,holdfast"), profile=None)


@pytest.mark.parametrize(
    ("plan", "change", "sentence"),
    [
        (LAB, {"peers": []}, "a race without peers"),
        (LAB, {"peers": parse_peers("holdfast-exact")}, "holdfast-exact averages single tensors"),
        (LAB, {"peers": parse_peers("holdfast-insecure")}, "a job without protection stays on one host"),
        (LAB, {"peers": parse_peers("holdfast-shared")}, "hosts of their own share no memory"),
        (LOOPBACK, {"peers": parse_peers("gloo,gloo-tuned")}, "gloo-tuned: TCP settings need hosts of their own"),
        (LOOPBACK, {"faults": load_faults("kill-one").faults(4, 0)}, "faults and schedules need the lab's hosts"),
        (LOOPBACK, {"schedule": load_schedule("c1")}, "faults and schedules need the lab's hosts"),
    ],
)
def test_refusals(plan: Plan, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        dataclasses.replace(plan, **change)


def test_accuracy_is_reached_from_below_and_loss_from_above() -> None:
    assert [LAB.reached(metric) for metric in (0.899, 0.9, 0.95, float("nan"))] == [False, True, True, False]
    text = dataclasses.replace(LAB, task=task_named("text"), target=2.0)
    assert [text.reached(metric) for metric in (2.1, 2.0, 1.5, float("nan"))] == [False, True, True, False]
