"""`holdfast bench allreduce`: Holdfast and its rivals in one run, on loopback or on a network of the lab."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.lab.bench.grid import Plan
    from holdfast.lab.bench.row import Row
    from holdfast.lab.peer import Peer

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_INSECURE = "holdfast-insecure"
_KIN = "holdfast-bf16,holdfast-exact"
_RIVALS_IN_LAB = "gloo-cubic,gloo-bbr,gloo-tuned"
_RIVALS_ON_LOOPBACK = "gloo"
_HELP = """Time an all-reduce: all peers in one run, taking turns.

On plain loopback, or, with --profile, on the hosts of a lab, where TCP and Holdfast meet the very same network.

Example: holdfast bench allreduce --hosts 4 --profile clean,lossy-1 --sizes 8K,1M --peers gloo-cubic,gloo-bbr,gloo-tuned
"""


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(help="Measure.", no_args_is_help=True)
    verbs.command(name="allreduce", help=_HELP)(_allreduce)
    app.add_typer(verbs, name="bench")


def _allreduce(
    ranks: Annotated[
        int, typer.Option("--ranks", "--hosts", min=1, max=64, help="Processes on loopback, or hosts of the lab.")
    ] = 4,
    profile: Annotated[
        str | None,
        typer.Option(help="Networks of the lab, comma list; see `holdfast lab profiles`. Default: plain loopback."),
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="Bytes of float32, comma list; K, M and G are powers of 1,024.")
    ] = "1M,25M",
    peers: Annotated[
        str | None,
        typer.Option(
            help="Peers beside Holdfast, comma list. Default: holdfast-bf16, holdfast-exact and gloo; in a lab instead of "
            "gloo: gloo-cubic, gloo-bbr, gloo-tuned."
        ),
    ] = None,
    iterations: Annotated[int, typer.Option(min=1, help="Counted operations per row.")] = 60,
    seed: Annotated[
        int, typer.Option(min=0, max=(1 << 63) - 1, help="Of everything that is random in the lab's network.")
    ] = 0,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Also run Holdfast without any protection (loopback only).")
    ] = False,
    deadline_ms: Annotated[
        float | None, typer.Option(help="Bound of an operation; default: measured per size.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows to this file as they come.")] = None,
    trace_slowest: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write each Holdfast peer's slowest operation there: who came when, as text and picture.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the --json file of an interrupted run: measure what it lacks.")
    ] = False,
) -> None:
    from holdfast.cli.bench_table import WIDE, tables
    from holdfast.cli.signals import ended_by_signal
    from holdfast.config import resolve
    from holdfast.lab import privilege
    from holdfast.lab.bench import grid, rows_file
    from holdfast.lab.profile import load_profile

    profiles = [] if profile is None else [load_profile(name).name for name in _listed(profile, "profile")]
    if profiles:
        privilege.ensure()
    if json_file is not None:
        rows_file.require_writable(json_file)
    if trace_slowest is not None:
        _require_folder(trace_slowest)
    config = resolve({} if deadline_ms is None else {"deadline_ms": deadline_ms}).config
    plan = grid.Plan(
        chosen_peers(peers, insecure, in_lab=bool(profiles)), ranks, profiles,
        list(dict.fromkeys(parse_size(size) for size in sizes.split(","))), iterations, config, seed,
        trace_folder=trace_slowest,
    )  # fmt: skip
    rows = _earlier_rows(plan, json_file, resume)
    cells = grid.missing_cells(plan, rows)
    if insecure:
        Console(stderr=True).print("[yellow]holdfast-insecure: datagrams are neither encrypted nor authenticated[/]")
    total = len(cells) * (iterations + grid.WARMUP_ITERATIONS)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    console = Console(stderr=True)
    failures: list[str] = []
    try:
        with ended_by_signal(), Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
            task = progress.add_task("starting", total=total)
            for of_cell in grid.run(
                plan,
                cells,
                on_progress=lambda what, done: progress.update(task, description=what, completed=done),
                on_failure=lambda profile, failure: failures.append(f"{profile}: {failure}"),
            ):
                cell = (of_cell[0].profile, of_cell[0].bytes)
                rows = [row for row in rows if (row.profile, row.bytes) != cell] + of_cell
                if json_file is not None:
                    rows_file.write(json_file, rows)
    finally:  # what was measured is shown, also if the rest was interrupted
        out = Console() if sys.stdout.isatty() else Console(width=WIDE)
        for table in tables(rows):
            out.print(table)
        if json_file is not None and rows:
            out.print(f"rows written to {json_file}", soft_wrap=True)
        if trace_slowest is not None:
            out.print(f"slowest operations written to {trace_slowest}", soft_wrap=True)
        for failure in failures:
            console.print(failure, style="red", markup=False, soft_wrap=True)
    if failures:
        raise typer.Exit(1)


def _listed(names: str, what: str) -> list[str]:
    listed = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not listed:
        raise ConfigError(f"--{what} names none", what_to_try=f"a comma list, or no --{what} at all")
    return listed


def chosen_peers(peers: str | None, insecure: bool, in_lab: bool) -> list[Peer]:
    """Who takes turns, in the order of the table."""
    from holdfast.lab.peer import parse_peers, peer_named

    always = ["holdfast"] if in_lab else ["holdfast", "holdfast-authenticated"]
    if peers is None:
        peers = f"{_KIN},{_RIVALS_IN_LAB if in_lab else _RIVALS_ON_LOOPBACK}"
    if insecure and in_lab:
        raise ConfigError(
            "between hosts, also the lab's, Holdfast never runs without protection", what_to_try="no --insecure"
        )
    chosen = parse_peers(peers)
    if not insecure and any(peer.name == _INSECURE for peer in chosen):
        raise ConfigError(f"{_INSECURE} has no protection at all", what_to_try="--insecure, to say you mean it")
    if in_lab and any(peer.shared_memory for peer in chosen):
        raise ConfigError(
            "the lab's ranks are on hosts of their own and share no memory", what_to_try="no --profile, or another peer"
        )
    if not in_lab:
        needy = [peer.name for peer in chosen if peer.tcp is not None]
        if needy:
            raise ConfigError(
                f"{', '.join(needy)}: TCP settings need hosts of their own",
                what_to_try="--profile clean for a lab, or --peers gloo on loopback",
            )
    first = [*always, *([_INSECURE] if insecure else [])]
    return list(dict.fromkeys([*(peer_named(name) for name in first), *chosen]))


def parse_size(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?\s*", text, re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size < 4:
        raise ConfigError(f"{text!r} is not a size", what_to_try="for example 8K, 1M or 25M; at least 4 bytes")
    return size


def _earlier_rows(plan: Plan, file: Path | None, resume: bool) -> list[Row]:
    from holdfast.lab.bench import rows_file

    if not resume:
        return []
    if file is None:
        raise ConfigError("--resume needs the file of the interrupted run", what_to_try="--json FILE --resume")
    rows = rows_file.read(file)
    asked = (plan.num_ranks, plan.iterations, plan.seed, plan.config.deadline_ms)
    for row in rows:
        if (row.ranks, row.iterations, row.seed, row.deadline_ms) != asked:
            bound = "a measured bound" if row.deadline_ms is None else f"a bound of {row.deadline_ms:g} ms"
            raise ConfigError(
                f"{file} was measured with {row.ranks} ranks, {row.iterations} iterations, seed {row.seed} and {bound}",
                what_to_try="the same --hosts, --iterations, --seed and --deadline-ms, or another --json file",
            )
    return [row for row in rows if not row.noisy]  # those are worth another try


def _require_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror}", what_to_try="another --trace-slowest") from error
