"""A race as it is watched: what a terminal shows, and what a log gets."""

from __future__ import annotations

import io

from rich.console import Console

from holdfast.cli.race_progress import watched
from holdfast.lab.peer import parse_peers
from holdfast.lab.profile import load_profile
from holdfast.lab.race.entry import Standing
from holdfast.lab.race.plan import Plan
from holdfast.lab.race.task import task_named

DIGITS = Plan(task_named("digits"), parse_peers("gloo-tuned,holdfast"), 4, load_profile("clean"), 0, 0.9, 100)
TEXT = Plan(task_named("text"), parse_peers("holdfast"), 4, load_profile("clean"), 0, 2.0, 100)
STARTING = Standing("gloo-tuned", "starting")
UNDER_WAY = Standing("holdfast", "training", False, 20, 1.25, 0.875, 0.4321, 61.7, 0.98765)
ARRIVED = Standing("holdfast", "reached the target", True, 30, 1.9, 0.9, 0.4, 60.0, 1.0)


def shown(plan: Plan, *standings: Standing, is_terminal: bool) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=120, color_system=None, highlight=False)
    with watched(plan, console) as on_standing:
        for standing in standings:
            on_standing(standing)
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines() if line.strip()]


def test_a_log_gets_a_line_for_every_turn() -> None:
    assert shown(DIGITS, STARTING, UNDER_WAY, ARRIVED, is_terminal=False) == [
        "gloo-tuned: starting",
        "holdfast: step 20/100, loss 0.4321, accuracy 87.50%, 61.7 ms a step, 98.76% delivered, 1.2 s",
        "holdfast: step 30/100, loss 0.4000, accuracy 90.00%, 60.0 ms a step, 100% delivered, 1.9 s: reached the target",
    ]


def test_where_the_loss_is_the_metric_it_is_told_once() -> None:
    (line,) = shown(TEXT, UNDER_WAY, is_terminal=False)
    assert line == "holdfast: step 20/100, loss 0.4321, 61.7 ms a step, 98.76% delivered, 1.2 s"


def test_a_terminal_shows_every_peer_with_what_is_known_of_it() -> None:
    lines = shown(DIGITS, STARTING, UNDER_WAY, is_terminal=True)
    assert "peer steps loss accuracy step delivered seconds" in lines
    assert "gloo-tuned 0/100 \N{EN DASH} \N{EN DASH} 0.0 starting" in lines
    assert "holdfast 20/100 0.4321 87.50% 61.7 ms 98.76% 1.2 training" in lines
