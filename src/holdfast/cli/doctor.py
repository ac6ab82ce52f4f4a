"""`holdfast doctor`: is this host fit for a job, and if not, what to type.

Findings go to standard output, progress to standard error. Everything is imported when the command runs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from holdfast.doctor.facts import Facts, Peer
    from holdfast.doctor.finding import Finding

SCHEMA = 1
UNFIT = 1
_STYLES = {"problem": "bold red", "advice": "yellow", "ok": "green"}
# Where no terminal sets the width: a log or a pipe.
_WIDE = 120

Ranks = Annotated[int, typer.Option(min=1, max=1024, help="Ranks planned on this host.")]
Peers = Annotated[
    list[str] | None,
    typer.Option("--peer", metavar="HOST[:PORT]", help="Another host of the job; repeatable. Nothing is sent to it."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")]

_HELP = """Say whether this host is fit for a job, and what to type if not.

Looks at kernel, torch, cores, clock, processor, sealing speed, interface, routes, MTU, UDP, buffers and ports, under
the settings that `holdfast config` prints. Run it on every host. Exit code 1: something stops a job from running.

Example: holdfast doctor --ranks 4 --peer 10.0.0.2 --peer 10.0.0.3
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="doctor", help=_HELP)(doctor_command)


def doctor_command(ranks: Ranks = 1, peer: Peers = None, as_json: AsJson = False) -> None:
    from rich.console import Console

    from holdfast.config import resolve
    from holdfast.doctor.examination import gather, judge
    from holdfast.doctor.facts import Plan
    from holdfast.doctor.finding import Status, worst

    peers = tuple(parse_peer(text) for text in peer or ())
    plan = Plan(resolve().config, ranks, peers, os.environ.get("MASTER_ADDR") or None)
    with Console(stderr=True).status("looking") as status:
        facts = gather(plan, lambda what: status.update(f"looking at {what}"))
    findings = judge(facts)
    if as_json:
        typer.echo(json.dumps(document(facts, findings), indent=2))
    else:
        print_findings(Console() if sys.stdout.isatty() else Console(width=_width_of_a_pipe()), findings)
    if worst(findings) is Status.PROBLEM:
        raise typer.Exit(UNFIT)


def _width_of_a_pipe() -> int:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and int(columns) > 0 else _WIDE


def parse_peer(text: str) -> Peer:
    """HOST, HOST:PORT, an IPv6 address, or one in brackets with a port."""
    from holdfast.doctor.facts import Peer
    from holdfast.errors import ConfigError

    host, colon, port = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        host, colon, port = text[1:-1], "", ""
    elif host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif not colon or ":" in host:
        host, colon, port = text, "", ""
    if not host or (colon and not (port.isdigit() and 0 < int(port) <= 65_535)):
        raise ConfigError(f"{text!r} is not a peer", what_to_try="10.0.0.2, node2, node2:29600 or [fd00::2]:29600")
    return Peer(host, int(port) if colon else None)


def document(facts: Facts, findings: Sequence[Finding]) -> dict[str, Any]:
    """As docs/reference/doctor.md describes it."""
    from holdfast import __version__
    from holdfast.doctor.finding import by_urgency, worst

    return {
        "schema": SCHEMA,
        "holdfast": __version__,
        "status": worst(findings),
        "findings": [dataclasses.asdict(finding) for finding in by_urgency(findings)],
        "facts": dataclasses.asdict(facts),
    }


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """What needs action first, in full and with lines to copy; the rest in a table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from holdfast.doctor.finding import Status, by_urgency

    for finding in by_urgency(findings):
        if finding.status is not Status.OK:
            _print_action(console, finding)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for heading in ("", "check", "found"):
        table.add_column(heading, no_wrap=heading != "found", overflow="fold")
    for finding in findings:
        if finding.status is Status.OK:
            table.add_row(Text("ok", style=_STYLES["ok"]), finding.check, Text(finding.found))
    console.print(table)
    console.print(_summary(findings), highlight=False)


def _print_action(console: Console, finding: Finding) -> None:
    from rich.text import Text

    console.print(Text.assemble((finding.status.upper(), _STYLES[finding.status]), "  ", (finding.check, "bold")))
    for sentence in (f"{finding.found}.", f"So: {finding.consequence}."):
        wrapped = textwrap.wrap(sentence, console.width, initial_indent="  ", subsequent_indent="  ")
        console.print(Text("\n".join(wrapped)), soft_wrap=True)
    for line in finding.to_do.splitlines():
        # Never wrapped, so that a line is copied whole however narrow the terminal is.
        console.print(Text(f"    {line}", style="cyan"), soft_wrap=True)
    console.print()


def _summary(findings: Sequence[Finding]) -> str:
    from holdfast.doctor.finding import Status

    count = {status: sum(finding.status is status for finding in findings) for status in Status}
    if count[Status.PROBLEM]:
        verdict = "[bold red]A job will not run here as planned.[/]"
    elif count[Status.ADVICE]:
        verdict = "[yellow]A job will run here; see above for what could be better.[/]"
    else:
        verdict = "[green]All is well.[/]"
    problems = f"{count[Status.PROBLEM]} problem{'' if count[Status.PROBLEM] == 1 else 's'}"
    return f"\n{verdict} {problems}, {count[Status.ADVICE]} advice, {count[Status.OK]} ok."
