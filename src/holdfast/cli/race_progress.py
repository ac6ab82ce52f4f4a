"""How a race is watched: a line per peer that changes in place, or lines one after the other where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from holdfast.lab.race.entry import Standing
from holdfast.lab.race.plan import Plan
from holdfast.lab.race.units import milliseconds_text, seconds_text, share_text


@contextmanager
def watched(plan: Plan, console: Console) -> Iterator[Callable[[Standing], None]]:
    """What it gives takes the standings as they come."""
    if not console.is_terminal:
        yield lambda standing: console.print(_line(plan, standing), markup=False, soft_wrap=True)
        return
    standings = {peer.name: Standing(peer.name, "waiting") for peer in plan.peers}
    with Live(_table(plan, standings), console=console, transient=True) as live:

        def show(standing: Standing) -> None:
            standings[standing.peer] = standing
            live.update(_table(plan, standings))

        yield show


def _line(plan: Plan, standing: Standing) -> str:
    if standing.steps == 0 and not standing.finished:
        return f"{standing.peer}: {standing.state}"
    return (
        f"{standing.peer}: step {standing.steps}/{plan.max_steps}, loss {standing.loss:.4f}, "
        f"{_metric(plan, standing)}{milliseconds_text(standing.step_ms)} a step, "
        f"{share_text(standing.delivered_ratio)} delivered, {seconds_text(standing.seconds)}"
        + (f": {standing.state}" if standing.finished else "")
    )


def _metric(plan: Plan, standing: Standing) -> str:
    return f"accuracy {standing.metric:.2%}, " if plan.task.metric == "accuracy" else ""


def _table(plan: Plan, standings: dict[str, Standing]) -> Table:
    shows_accuracy = plan.task.metric == "accuracy"
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("peer")
    for heading in ("steps", "loss", *(["accuracy"] if shows_accuracy else []), "step", "delivered", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for each in standings.values():
        table.add_row(
            each.peer,
            f"{each.steps}/{plan.max_steps}",
            _number(f"{each.loss:.4f}"),
            *([_number(f"{each.metric:.2%}")] if shows_accuracy else []),
            milliseconds_text(each.step_ms),
            share_text(each.delivered_ratio),
            f"{each.seconds:.1f}",
            each.state,
        )
    return table


def _number(text: str) -> str:
    return "" if text.startswith("nan") else text
