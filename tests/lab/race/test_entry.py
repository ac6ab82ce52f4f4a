"""Before each of its turns a peer's network is drawn anew, from the race's seed and the turn's number alone; and it has arrived
with the first model that is good enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.lab.cloud import Cloud
from holdfast.lab.peer import parse_peers
from holdfast.lab.profile import load_profile
from holdfast.lab.race.entry import Entry
from holdfast.lab.race.plan import Plan
from holdfast.lab.race.task import task_named
from lab.race.scripted_ranks import scripted

DIGITS = dataclasses.replace(task_named("digits"), steps_per_turn=10, steps_per_evaluation=4)
PLAN = Plan(DIGITS, parse_peers("gloo,holdfast"), 2, load_profile("stalls"), 7, target=9.0, max_steps=25)
REPORT = SimpleNamespace(lateness_counts=[], lateness_max_us=0.0, losses={})

Happened = list[tuple[Any, ...]]


@pytest.fixture
def happened() -> Happened:
    return []


@pytest.fixture
def entry(happened: Happened, tmp_path: Path) -> Iterator[Callable[..., Entry]]:
    """Makes entries whose ranks follow a script, on a network that writes down what it is told."""
    with ExitStack() as stack:

        def make(name: str, plan: Plan = PLAN, script: str = "pass") -> Entry:
            contender = stack.enter_context(scripted(script, tmp_path / name))
            contender.wait_ready()
            trained = contender.train

            def train(count: int, *others: Any) -> None:
                happened.append((name, "trains", count))
                trained(count, *others)

            contender.train = train  # type: ignore[method-assign]
            switch = SimpleNamespace(
                reset=lambda: happened.append((name, "counts anew")),
                draw_anew=lambda seed: happened.append((name, "is drawn anew", seed)),
                report=lambda: REPORT,
            )
            return Entry(plan, contender, cast(Cloud, SimpleNamespace(switch=switch)), None)

        yield make


def test_the_network_is_drawn_anew_right_before_every_turn(entry: Callable[..., Entry], happened: Happened) -> None:
    gloo = entry("gloo")
    gloo.begin()
    assert happened == []  # an evaluation needs no network
    for _ in range(3):
        gloo.take_turn()
    assert gloo.finished
    assert happened == [
        each
        for turn, count in ((1, 10), (2, 10), (3, 5))
        for each in (
            ("gloo", "counts anew"),
            ("gloo", "is drawn anew", PLAN.turn_seed(turn)),
            ("gloo", "trains", count),
        )
    ]


def test_every_peer_meets_the_same_network_in_its_turn(entry: Callable[..., Entry], happened: Happened) -> None:
    gloo, holdfast = entry("gloo"), entry("holdfast")
    for turn_of in (gloo, holdfast, holdfast, gloo, gloo, holdfast):
        turn_of.take_turn()
    drawn = {
        name: [each[2] for each in happened if each[:2] == (name, "is drawn anew")] for name in ("gloo", "holdfast")
    }
    assert drawn["gloo"] == drawn["holdfast"]
    assert len(set(drawn["gloo"])) == 3


def test_who_arrives_within_a_turn_has_arrived_then_not_at_its_end(entry: Callable[..., Entry]) -> None:
    """Scripted ranks have an accuracy of k/10 after k steps of a millisecond, and are judged after 4, 8, 10, 12, 16 ... steps."""
    gloo = entry("gloo", dataclasses.replace(PLAN, target=1.15))
    gloo.begin()
    while not gloo.finished:
        gloo.take_turn()
    run = gloo.run()
    assert (run.steps, run.seconds, run.seconds_to_target) == (12, 0.012, 0.012)
    assert [each.steps for each in run.evaluations] == [0, 4, 8, 10, 12]
    assert run.final_metric == 1.2


@pytest.mark.parametrize(("target", "arrived"), [(0.4, True), (0.5, False)])
def test_models_of_a_turn_that_broke_off_count(entry: Callable[..., Entry], target: float, arrived: bool) -> None:
    fails = "if verb == 'train': answer = Failed('RuntimeError: gone', [1.0] * 6, {4: Score(0.4, 1.0)})"
    gloo = entry("gloo", dataclasses.replace(PLAN, target=target), fails)
    gloo.begin()
    gloo.take_turn()
    run = gloo.run()
    assert gloo.finished
    assert gloo.state == ("reached the target" if arrived else "broke off: rank 0: RuntimeError: gone")
    assert (run.steps, run.seconds_to_target) == ((4, 0.004) if arrived else (6, None))
    assert (run.final_metric, [each.steps for each in run.evaluations]) == (0.4, [0, 4])
    # What happened after the target was reached is not part of the race.
    assert [event.what for event in run.events] == ([] if arrived else ["broke off: rank 0: RuntimeError: gone"])
    assert run.evaluations[-1].drift is None
