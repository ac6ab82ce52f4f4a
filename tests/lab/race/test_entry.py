"""Before each of its turns a peer's network is drawn anew, from the race's seed and the turn's number alone."""

from __future__ import annotations

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

PLAN = Plan(task_named("digits"), parse_peers("gloo,holdfast"), 2, load_profile("stalls"), 7, target=1.0, max_steps=25)
REPORT = SimpleNamespace(lateness_counts=[], lateness_max_us=0.0, losses={})

Happened = list[tuple[Any, ...]]


@pytest.fixture
def happened() -> Happened:
    return []


@pytest.fixture
def entry(happened: Happened, tmp_path: Path) -> Iterator[Callable[[str], Entry]]:
    """Makes entries whose ranks follow a script, on a network that writes down what it is told."""
    with ExitStack() as stack:

        def make(name: str) -> Entry:
            contender = stack.enter_context(scripted("pass", tmp_path / name))
            trained = contender.train

            def train(turn: int, *others: Any) -> None:
                happened.append((name, "trains", turn))
                trained(turn, *others)

            contender.train = train  # type: ignore[method-assign]
            switch = SimpleNamespace(
                reset=lambda: happened.append((name, "counts anew")),
                draw_anew=lambda seed: happened.append((name, "is drawn anew", seed)),
                report=lambda: REPORT,
            )
            return Entry(PLAN, contender, cast(Cloud, SimpleNamespace(switch=switch)), None)

        yield make


def test_the_network_is_drawn_anew_right_before_every_turn(entry: Callable[[str], Entry], happened: Happened) -> None:
    gloo = entry("gloo")
    gloo.begin()
    assert happened == []  # an evaluation needs no network
    for _ in range(3):
        gloo.take_turn()
    assert gloo.finished
    assert happened == [
        each
        for turn in (1, 2, 3)
        for each in (
            ("gloo", "counts anew"),
            ("gloo", "is drawn anew", PLAN.turn_seed(turn)),
            ("gloo", "trains", turn),
        )
    ]


def test_every_peer_meets_the_same_network_in_its_turn(entry: Callable[[str], Entry], happened: Happened) -> None:
    gloo, holdfast = entry("gloo"), entry("holdfast")
    for turn_of in (gloo, holdfast, holdfast, gloo, gloo, holdfast):
        turn_of.take_turn()
    drawn = {
        name: [each[2] for each in happened if each[:2] == (name, "is drawn anew")] for name in ("gloo", "holdfast")
    }
    assert drawn["gloo"] == drawn["holdfast"]
    assert len(set(drawn["gloo"])) == 3
