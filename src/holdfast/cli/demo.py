"""`holdfast demo`: a race over digits on a network that loses one packet in a hundred, tuned TCP against Holdfast."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import typer

from holdfast.cli import race

_HELP = """Race tuned Gloo against Holdfast on a lossy network, in the lab.

Four hosts train digits to 97.5 % accuracy; one packet in a hundred is lost. Ends with a table, a report and a picture.
Takes under three minutes. Where the lab is not to be had (it needs root), the race is run on plain loopback.

Example: holdfast demo --output demo-output
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="demo", help=_HELP)(demo_command)


def demo_command(
    output: race.Output = Path("demo-output"),
    hosts: race.Hosts = 4,
    seed: race.Seed = 0,
    max_steps: race.MaxSteps = None,
    as_json: race.AsJson = False,
    loopback: race.Loopback = False,
) -> None:
    from holdfast.errors import LabUnavailable
    from holdfast.lab import privilege
    from holdfast.lab.peer import parse_peers
    from holdfast.lab.profile import load_profile
    from holdfast.lab.race.plan import Plan
    from holdfast.lab.race.task import task_named

    task = task_named("digits")
    in_lab = Plan(
        task=task,
        peers=parse_peers("gloo-tuned,holdfast"),
        num_hosts=hosts,
        profile=load_profile("lossy-1"),
        seed=seed,
        target=task.target,
        max_steps=max_steps or task.max_steps,
    )
    on_loopback = dataclasses.replace(in_lab, peers=parse_peers("gloo,holdfast"), profile=None)
    race.require(output)
    try:
        if loopback:
            result = race.run(on_loopback, output)
        else:
            privilege.ensure()
            result = race.run(in_lab, output)
    except LabUnavailable as missing:
        typer.echo(
            f"holdfast demo: no lab here ({missing.message}), so the race is on plain loopback, where TCP cannot be tuned.",
            err=True,
        )
        result = race.run(on_loopback, output)
    race.present(result, output, as_json)
    if any(race.broke_off(one) for one in result.runs):
        raise typer.Exit(race.BROKE_OFF)
