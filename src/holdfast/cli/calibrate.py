"""`holdfast lab calibrate`: promise and finding side by side. The table is the output, progress goes to standard error.

Everything is imported when the command runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from holdfast.lab.calibrate.calibration import Beginning, Row
    from holdfast.lab.calibrate.carrying import Carried
    from holdfast.lab.profile import Profile

HELP = """Measure what each network profile promises, with ping, iperf3 and Gloo inside the lab's hosts.

Prints promise and finding side by side; ends with 1 if a promise is not kept. Wants a quiet machine: rows in which the
switch itself was late are repeated, and marked if that does not help.

Example: holdfast lab calibrate --profile lossy-1,shared-3
"""
NOT_KEPT = 1
# Where no terminal sets the width: wide enough for every column.
_WIDE = 140
# Profiles can be files with long paths.
_NAME_WIDTH = 24
_CARRY_S = 10.0
_QUICK_CARRY_S = 2.0

Profiles = Annotated[str | None, typer.Option(help="Only these, comma list of names or files; default: all shipped.")]
Hosts = Annotated[int, typer.Option(min=2, max=64, help="Hosts of the lab.")]
Quick = Annotated[bool, typer.Option("--quick", help="Short measurements with large errors, to see that it works.")]
Carry = Annotated[
    bool, typer.Option("--carry", help="Measure instead whether the switch carries 4 x 250 and 8 x 125 Mbit/s.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the rows to this file.")]
Seed = Annotated[int, typer.Option(min=0, max=(1 << 63) - 1, help="Decides everything that is random in the networks.")]


def calibrate_command(
    profile: Profiles = None,
    hosts: Hosts = 4,
    quick: Quick = False,
    carry: Carry = False,
    json_file: JsonFile = None,
    seed: Seed = 0,
) -> None:
    from rich.console import Console

    from holdfast.cli.signals import ended_by_signal
    from holdfast.lab import privilege
    from holdfast.lab.calibrate import programs

    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    output = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_WIDE)
    if carry and profile is not None:
        raise ConfigError(
            "--carry takes no --profile: it fills the links of a clean network", what_to_try="one of them"
        )
    programs.require("iperf3", *([] if carry else ["ping"]))
    profiles = [] if carry else _load(profile)
    _require_writable(json_file)
    privilege.ensure()
    measured = _carry(quick, progress) if carry else _calibrate(profiles, hosts, seed, quick, progress)
    rows: list[Any] = []
    with ended_by_signal(), closing(measured):
        try:
            rows.extend(measured)
        finally:  # minutes were spent on what was found before an error or a signal
            if rows:
                output.print(carried_table(rows) if carry else calibration_table(rows))
            if rows and json_file is not None:
                json_file.write_text(json.dumps([row.to_json() for row in rows], indent=2) + "\n")
                progress.print(f"rows written to {json_file}")
    sys.exit(0 if all(row.kept for row in rows) else NOT_KEPT)


def calibration_table(rows: Sequence[Row]) -> Table:
    table = _table(
        "what the profiles promise, and what was found",
        "±: one standard error. late: the switch's own lateness. *: three attempts, and the machine was busy in each",
        ["profile", "promise", "by"],
        ["promised", "found", "±", "samples", "deviation", "tolerance", "late p99.9", "verdict"],
    )
    previous = None
    for row in rows:
        if row.profile != previous:
            table.add_section()
        error = "-" if row.standard_error is None else _figure(row.figure, row.standard_error)
        deviation = "-" if row.deviation is None else f"{row.deviation:+.1%}"
        late = f"{row.late_p999_ms:.2f} ms" + ("" if row.quiet else "*")
        table.add_row(
            "" if row.profile == previous else row.profile, row.figure, row.instrument,
            _figure(row.figure, row.promise), _figure(row.figure, row.found), error, f"{row.num_samples:,}", deviation,
            "none" if row.promise == 0 else f"{row.tolerance:.0%}", late, _verdict(row.kept),
        )  # fmt: skip
        previous = row.profile
    return table


def carried_table(rows: Iterable[Carried]) -> Table:
    table = _table(
        "all links full at once, on a clean network",
        "share of the link, IP and TCP or UDP headers included; each host sends to the next.\n"
        "stolen: of all processor time, what the hypervisor gave to others meanwhile",
        ["links", "protocol"],
        ["least share", "mean share", "late p50", "late p99", "late p99.9", "stolen", "verdict"],
    )
    for row in rows:
        lateness = (f"{late:.2f} ms" for late in (row.late_p50_ms, row.late_p99_ms, row.late_p999_ms))
        table.add_row(
            f"{row.num_hosts} x {row.bits_per_s / 1e6:g} Mbit/s", row.protocol.upper(),
            f"{row.least_share:.1%}", f"{row.mean_share:.1%}", *lateness, f"{row.stolen_ratio:.1%}", _verdict(row.kept),
        )  # fmt: skip
    return table


def _load(names: str | None) -> list[Profile]:
    from holdfast.lab.profile import load_profile, promised, shipped_profiles

    chosen = [name.strip() for name in names.split(",") if name.strip()] if names is not None else shipped_profiles()
    profiles = [load_profile(name) for name in dict.fromkeys(chosen)]
    if not any(promised(profile.promise) for profile in profiles):
        raise ConfigError("nothing to calibrate", what_to_try="a profile with a [promise] table")
    return profiles


def _calibrate(
    profiles: Sequence[Profile], num_hosts: int, seed: int, quick: bool, progress: Console
) -> Generator[Row, None, None]:
    from holdfast.lab.calibrate.calibration import calibrate
    from holdfast.lab.calibrate.measures import FULL, QUICK
    from holdfast.lab.profile import promised

    total = sum(len(promised(profile.promise)) for profile in profiles)
    done = 0

    def begin(about: Beginning) -> None:
        nonlocal done
        done += about.attempt == 1
        again = f", attempt {about.attempt}: the machine was busy" if about.attempt > 1 else ""
        progress.print(f"lab: {done}/{total} {about.profile}: {about.figure} by {about.instrument}{again}")

    effort = QUICK if quick else FULL
    for profile in profiles:
        yield from calibrate(profile, num_hosts=num_hosts, seed=seed, effort=effort, on_begin=begin)


def _carry(quick: bool, progress: Console) -> Generator[Carried, None, None]:
    from holdfast.lab.calibrate.carrying import carry_all

    def begin(protocol: str, num_hosts: int, attempt: int) -> None:
        again = f", attempt {attempt}" if attempt > 1 else ""
        progress.print(f"lab: {num_hosts} hosts, {protocol.upper()}{again}")

    yield from carry_all(_QUICK_CARRY_S if quick else _CARRY_S, begin)


def _require_writable(json_file: Path | None) -> None:
    """Said before anything is measured."""
    try:
        if json_file is not None:
            json_file.open("a").close()
    except OSError as error:
        raise ConfigError(f"cannot write {json_file}: {error.strerror}", what_to_try="another --json") from error


def _figure(name: str, value: float) -> str:
    if name.endswith("_ms"):
        return f"{value:.3g} ms" if value < 1000 else f"{value:.0f} ms"
    return f"{value:.3%}" if name == "loss_ratio" else f"{value:.3g}"


def _verdict(kept: bool) -> str:
    return "[green]kept[/]" if kept else "[red]not kept[/]"


def _table(title: str, caption: str, left: Sequence[str], right: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in left:
        table.add_column(name, no_wrap=True, max_width=_NAME_WIDTH)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table
