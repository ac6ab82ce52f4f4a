"""`holdfast race`: the same training by several peers on the same network, to a target.

Progress goes to standard error, the table and the names of the files to standard output.
"""

from __future__ import annotations

import json
import math
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.lab.race.plan import Plan
    from holdfast.lab.race.result import RaceResult, Run

REPORT, PICTURE, FIGURES = "report.html", "race.png", "race.json"
BROKE_OFF = 1
_WIDE = 120
_LAB_PEERS, _LOOPBACK_PEERS = "gloo-tuned,holdfast", "gloo,holdfast"

_HELP = """Train the same model with several peers on the same network, to a target.

All peers are up at once and take turns, some seconds each. Ends with a table, an HTML report, a picture and a JSON file.
Needs root for the lab's hosts; --loopback does without.

Example: holdfast race --hosts 4 --profile shared-3 --task digits --peers gloo-tuned,holdfast
"""

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for report, picture, figures and logs.")]
Hosts = Annotated[int, typer.Option(min=2, max=64, help="Hosts, with one rank each.")]
Seed = Annotated[
    int, typer.Option(min=0, max=(1 << 63) - 1, help="Of the weights, the data's order, the network and the faults.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of the table.")]
MaxSteps = Annotated[int | None, typer.Option(min=1, help="Give up after so many steps; default: the task's own.")]
Loopback = Annotated[bool, typer.Option("--loopback", help="Plain processes of this machine: no lab, no root.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="race", help=_HELP)(race_command)


def race_command(
    task: Annotated[str, typer.Option(help="What to train: digits, fashion, text or finetune.")] = "digits",
    hosts: Hosts = 4,
    profile: Annotated[str, typer.Option(help="Network: a name of `holdfast lab profiles`, or a file.")] = "shared-3",
    peers: Annotated[
        str | None,
        typer.Option(help="Comma list. Default: gloo-tuned,holdfast; on loopback gloo,holdfast.", show_default=False),
    ] = None,
    seed: Seed = 0,
    target: Annotated[
        float | None, typer.Option(help="Accuracy or loss at which a peer has arrived; default: the task's own.")
    ] = None,
    max_steps: MaxSteps = None,
    fault: Annotated[
        list[str] | None, typer.Option("--fault", help="A fault file, shipped or own; repeatable.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="Let the network change as this says; an epoch lies between two evaluations.")
    ] = None,
    output: Output = Path("race-output"),
    as_json: AsJson = False,
    loopback: Loopback = False,
) -> None:
    from holdfast.lab import privilege
    from holdfast.lab.fault import load_faults
    from holdfast.lab.peer import parse_peers
    from holdfast.lab.profile import load_profile
    from holdfast.lab.race.plan import Plan
    from holdfast.lab.race.task import task_named
    from holdfast.lab.schedule import load_schedule

    chosen = task_named(task)
    plan = Plan(
        task=chosen,
        peers=parse_peers(peers or (_LOOPBACK_PEERS if loopback else _LAB_PEERS)),
        num_hosts=hosts,
        profile=None if loopback else load_profile(profile),
        seed=seed,
        target=chosen.target if target is None else target,
        max_steps=max_steps or chosen.max_steps,
        faults=[one for name in fault or () for one in load_faults(name).faults(hosts, seed)],
        schedule=None if schedule is None else load_schedule(schedule),
    )
    require(output)
    if not loopback:
        privilege.ensure()
    result = run(plan, output)
    present(result, output, as_json)
    if not plan.faults and any(broke_off(one) for one in result.runs):
        raise typer.Exit(BROKE_OFF)


def require(output: Path) -> None:
    """What the report needs, and a folder for it: said before a race of minutes."""
    missing = [name for name in ("plotly", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"a race needs {' and '.join(missing)}", what_to_try="pip install 'holdfast[demo]'")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {output}: {error.strerror}", what_to_try="another --output"
        ) from error
    if not os.access(output, os.W_OK):
        raise ConfigError(f"this user may not write to {output}", what_to_try="another --output")


def run(plan: Plan, output: Path) -> RaceResult:
    """The race, watched on standard error; a signal ends it in order."""
    from holdfast.cli.race_progress import watched
    from holdfast.cli.signals import ended_by_signal
    from holdfast.lab.race import runner

    with ended_by_signal(), watched(plan, _console(stderr=True)) as on_standing:
        return runner.run(plan, output, on_standing)


def present(result: RaceResult, output: Path, as_json: bool) -> None:
    """The files, and the table or the JSON document."""
    from holdfast.lab.race.headline import headline, remarks
    from holdfast.lab.race.picture import draw_picture
    from holdfast.lab.race.report import write_report

    document = json.dumps(_finite(result.to_json()), indent=2) + "\n"
    (output / FIGURES).write_text(document)
    write_report(result, output / REPORT)
    draw_picture(result, output / PICTURE)
    if as_json:
        sys.stdout.write(document)
        return
    console = _console()
    console.print(_table(result))
    console.print(headline(result), markup=False)
    for remark in remarks(result):
        console.print(remark.text, markup=False, style="yellow" if remark.is_alarm else "")
    console.print(
        f"Report: {output / REPORT}\nPicture: {output / PICTURE}\nFigures: {output / FIGURES}",
        markup=False,
        soft_wrap=True,
    )


def broke_off(run: Run) -> bool:
    return bool(run.events) and run.events[-1].what.startswith("broke off")


def _table(result: RaceResult) -> Any:
    from rich import box
    from rich.table import Table

    from holdfast.lab.race.units import drift_text, metric_text, milliseconds_text, seconds_text, share_text

    title = f"{result.task_title}: {result.hosts} hosts, {result.profile}, seed {result.seed}"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("peer")
    for heading in ("steps", "to target", result.metric, "step p50", "step p99", "delivered", "drift"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in result.runs:
        table.add_row(
            one.peer,
            str(one.steps),
            seconds_text(math.nan if one.seconds_to_target is None else one.seconds_to_target),
            metric_text(result, one.final_metric),
            milliseconds_text(one.step_p50_ms),
            milliseconds_text(one.step_p99_ms),
            share_text(one.delivered_ratio),
            drift_text(one.drift_max),
        )
    return table


def _finite(document: Any) -> Any:
    """JSON has no word for what is not a number: null."""
    if isinstance(document, dict):
        return {name: _finite(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else _WIDE)
