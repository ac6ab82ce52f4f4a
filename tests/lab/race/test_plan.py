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


def test_every_turn_of_every_race_has_a_network_of_its_own() -> None:
    races = [dataclasses.replace(LAB, seed=seed) for seed in (0, 1, 10, 11, 2**63 - 1)]
    seeds = [race.turn_seed(turn) for race in races for turn in range(1, 101)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_the_network_of_a_turn_knows_nothing_of_the_peers() -> None:
    others = dataclasses.replace(LAB, peers=parse_peers("gloo-cubic"), profile=load_profile("stalls"))
    assert [others.turn_seed(turn) for turn in (1, 2)] == [LAB.turn_seed(turn) for turn in (1, 2)]
    # Published races stay what they were: these come from SHA-512 and the Mersenne Twister, on every machine.
    assert LAB.turn_seed(1) == 3300182112143309697


def test_accuracy_is_reached_from_below_and_loss_from_above() -> None:
    assert [LAB.reached(metric) for metric in (0.899, 0.9, 0.95, float("nan"))] == [False, True, True, False]
    text = dataclasses.replace(LAB, task=task_named("text"), target=2.0)
    assert [text.reached(metric) for metric in (2.1, 2.0, 1.5, float("nan"))] == [False, True, True, False]
