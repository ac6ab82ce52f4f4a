"""`holdfast lab`: a shared cloud on this machine. Runs a command on its hosts, lists and measures its networks,
cleans up.

What the ranks print goes to standard output, what the lab says to standard error. Everything is imported when a command
runs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import calibrate
from holdfast.cli.signals import SIGNALLED, ended_by_signal
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.lab.cloud import Cloud
    from holdfast.lab.fault import Fault
    from holdfast.lab.run import Conductor
    from holdfast.lab.switch_client import Report
    from holdfast.lab.worker import Ending

OUT_OF_TIME = 124  # as of timeout(1)
_WIDE = 120

_RUN_HELP = """Run a command on every host of a cloud, one rank per host.

Ranks get torchrun's environment variables; one rank's death ends no other. Ends when all have ended, with the exit code
of the first that failed.

Example: holdfast lab run --hosts 4 --profile shared-3 -- python train.py
"""

Command = Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="What every host runs.", show_default=False)]
Hosts = Annotated[int, typer.Option(min=1, max=64, help="Hosts, with one rank each.")]
ProfileName = Annotated[str, typer.Option(help="Network: a name of `holdfast lab profiles`, or a file.")]
Seed = Annotated[
    int, typer.Option(min=0, max=(1 << 63) - 1, help="Decides everything that is random in network and faults.")
]
Rate = Annotated[
    float | None, typer.Option(min=0.1, help="Mbit/s of a host's link; default: 1,000 divided by the hosts.")
]
ScheduleName = Annotated[str | None, typer.Option(help="Let the network change as this schedule or file says.")]
UnitSeconds = Annotated[
    float | None, typer.Option(min=0.01, help="Length of a schedule's epoch or step, if the ranks announce none.")
]
FaultNames = Annotated[list[str] | None, typer.Option("--fault", help="A fault file, shipped or own; repeatable.")]
Logs = Annotated[Path | None, typer.Option(help="Also write each rank's output to rank-K.log in this folder.")]
MasterPort = Annotated[int, typer.Option(min=1, max=65535, help="MASTER_PORT of the job.")]
TimeLimit = Annotated[
    float | None, typer.Option(min=0.1, help="End the job after so many seconds, with exit code 124.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    verbs = typer.Typer(help="A shared cloud on this machine, for real TCP and UDP.", no_args_is_help=True)
    # Options after the first word of COMMAND are the command's own, also without `--`.
    verbs.command(name="run", help=_RUN_HELP, context_settings={"allow_interspersed_args": False})(run_command)
    verbs.command(name="profiles", help="List networks, schedules and faults, and what each stands for.")(
        profiles_command
    )
    verbs.command(name="calibrate", help=calibrate.HELP)(calibrate.calibrate_command)
    verbs.command(name="clean", help="End what labs left behind whose own process is gone.")(clean_command)
    app.add_typer(verbs, name="lab")


def run_command(
    command: Command,
    hosts: Hosts = 4,
    profile: ProfileName = "clean",
    seed: Seed = 0,
    rate: Rate = None,
    schedule: ScheduleName = None,
    unit_seconds: UnitSeconds = None,
    fault: FaultNames = None,
    logs: Logs = None,
    master_port: MasterPort = 29500,
    time_limit: TimeLimit = None,
) -> None:
    from rich.console import Console

    from holdfast.lab import privilege
    from holdfast.lab.cloud import Cloud
    from holdfast.lab.fault import load_faults
    from holdfast.lab.launch import Workers
    from holdfast.lab.profile import load_profile
    from holdfast.lab.run import run_job

    console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _WIDE)
    faults = [one for name in fault or () for one in load_faults(name).faults(hosts, seed)]
    network = load_profile(profile)
    _require_folder(logs)
    privilege.ensure()
    rate_of_links = None if rate is None else rate * 1e6
    with ended_by_signal(), Cloud(hosts, network, seed=seed, bits_per_s=rate_of_links) as cloud:
        console.print(_opening(cloud, faults))
        conductor = _conductor(cloud, schedule, unit_seconds, console)
        with Workers(cloud, _own_python(command), on_line=_print_line, logs=logs, master_port=master_port) as workers:
            endings = run_job(
                workers, faults=faults, on_fault=_announcer(console), conductor=conductor, limit_s=time_limit
            )
            overdue = workers.alive
        report = cloud.switch.report()
    _print_endings(console, cloud, endings, overdue, report)
    sys.exit(OUT_OF_TIME if overdue else next((ending.code for ending in endings if ending.code != 0), 0))


def profiles_command(as_json: AsJson = False) -> None:
    from rich.console import Console
    from rich.table import Table

    from holdfast.lab.fault import load_faults, shipped_faults
    from holdfast.lab.profile import load_profile, promised, shipped_profiles
    from holdfast.lab.schedule import load_schedule, shipped_schedules

    profiles = [load_profile(name) for name in shipped_profiles()]
    schedules = [load_schedule(name) for name in shipped_schedules()]
    faults = [load_faults(name) for name in shipped_faults()]
    if as_json:
        document = {
            "profiles": [{"name": p.name, "models": p.models, "promise": promised(p.promise)} for p in profiles],
            "schedules": [{"name": s.name, "models": s.models, "clock": s.clock} for s in schedules],
            "faults": [{"name": f.name, "models": f.models} for f in faults],
        }
        typer.echo(json.dumps(document, indent=2))
        return
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_WIDE)
    table = Table("profile", "models", "promises", title="--profile")
    for profile in profiles:
        promises = "\n".join(f"{name} {value:g}" for name, value in promised(profile.promise).items())
        table.add_row(profile.name, profile.models, promises)
    console.print(table)
    for title, entries in (("--schedule", schedules), ("--fault", faults)):
        table = Table("name", "models", title=title)
        for entry in entries:
            table.add_row(entry.name, entry.models)
        console.print(table)


def clean_command() -> None:
    from holdfast.lab import cleanup

    found = cleanup.leftovers()
    remaining = cleanup.end([leftover.process for leftover in found])
    for leftover in found:
        verdict = "would not end" if leftover.process in remaining else "ended"
        typer.echo(f"{verdict}: process {leftover.process} of lab {leftover.lab.unique}: {leftover.command}")
    if not found:
        typer.echo("nothing to clean: no process of a dead lab is left")
    sys.exit(1 if remaining else 0)


def _require_folder(logs: Path | None) -> None:
    """Said before anything is built."""
    try:
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {logs}: {error.strerror}", what_to_try="another --logs") from error


def _own_python(command: Sequence[str]) -> list[str]:
    """`python` is the interpreter that runs this, which has torch and Holdfast, whatever PATH says."""
    return [sys.executable if command[0] == "python" else command[0], *command[1:]]


def _print_line(rank: int, line: str) -> None:
    try:
        sys.stdout.write(f"[{rank}] {line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever listened has gone: end as a program without a handler would, and say nothing more into the void.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(SIGNALLED + signal.SIGPIPE) from None


def _opening(cloud: Cloud, faults: Sequence[Fault]) -> str:
    rate = f"{cloud.bits_per_s / 1e6:g} Mbit/s"
    lines = [f"lab: {len(cloud.hosts)} hosts at {rate}, profile {cloud.profile.name}, seed {cloud.seed}"]
    return "\n".join([*lines, *(f"lab: will {fault}" for fault in faults)])


def _conductor(cloud: Cloud, schedule: str | None, unit_s: float | None, console: Console) -> Conductor | None:
    if schedule is None:
        return None
    from holdfast.lab.run import Conductor
    from holdfast.lab.schedule import load_schedule

    loaded = load_schedule(schedule)
    return Conductor(
        loaded,
        cloud,
        unit_s=unit_s,
        on_phase=lambda phase: console.print(f"lab: {loaded.name} from {loaded.clock} {phase.at:g}"),
    )


def _announcer(console: Console) -> Callable[[Fault, bool], None]:
    return lambda fault, begins: console.print(f"lab: {fault}" if begins else f"lab: over: {fault}")


def _print_endings(
    console: Console, cloud: Cloud, endings: Sequence[Ending], overdue: Sequence[int], report: Report
) -> None:
    from rich import box
    from rich.table import Table

    table = Table("rank", "host", "ended", "after s", box=box.SIMPLE_HEAD)
    for ending in sorted(endings, key=lambda ending: ending.rank):
        address, style = cloud.hosts[ending.rank].address, "green" if ending.code == 0 else "red"
        table.add_row(str(ending.rank), address, f"[{style}]{ending.how}[/]", f"{ending.after_s:.1f}")
    for rank in overdue:
        table.add_row(str(rank), cloud.hosts[rank].address, "[red]out of time[/]", "-")
    console.print(table)
    lost = ", ".join(f"{cause} {count}" for cause, count in report.losses.items() if count) or "nothing"
    late = f"p99 {report.lateness_p99_us / 1e3:.2f} ms, p99.9 {report.lateness_p999_us / 1e3:.2f} ms"
    console.print(f"lab: the switch was late by {late}; packets lost: {lost}")
