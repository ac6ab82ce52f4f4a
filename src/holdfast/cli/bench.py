"""`holdfast bench allreduce`: Holdfast and its rivals in one run, in the columns of nccl-tests."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.lab.allreduce_bench import Row

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Where no terminal sets the width: wide enough for every column.
_WIDE = 132
_ALWAYS = ("holdfast", "holdfast-authenticated")


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(help="Measure.", no_args_is_help=True)
    verbs.command(name="allreduce", help="Time an all-reduce over loopback: all peers in one run, taking turns.")(
        _allreduce
    )
    app.add_typer(verbs, name="bench")


def _allreduce(
    ranks: Annotated[int, typer.Option(min=1, max=64, help="Processes on this machine.")] = 4,
    sizes: Annotated[
        str, typer.Option(help="Bytes of float32, comma list; K, M and G are powers of 1,024.")
    ] = "1M,25M",
    peers: Annotated[str, typer.Option(help="Rivals beside Holdfast, comma list: gloo, holdfast-exact.")] = "gloo",
    iterations: Annotated[int, typer.Option(min=1, help="Counted operations per row.")] = 60,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Also run Holdfast without any protection (loopback only).")
    ] = False,
    deadline_ms: Annotated[
        float | None, typer.Option(help="Bound of an operation; default: measured per size.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows to this file.")] = None,
) -> None:
    from holdfast.config import resolve
    from holdfast.lab import allreduce_bench

    contestants = _contestants(peers, insecure)
    config = resolve({} if deadline_ms is None else {"deadline_ms": deadline_ms}).config
    plan = allreduce_bench.Plan(contestants, ranks, [parse_size(size) for size in sizes.split(",")], iterations, config)
    console = Console() if sys.stdout.isatty() else Console(width=_WIDE)
    if insecure:
        Console(stderr=True).print("[yellow]holdfast-insecure: datagrams are neither encrypted nor authenticated[/]")
    total = len(plan.sizes) * (iterations + allreduce_bench.WARMUP_ITERATIONS)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"starting {ranks} ranks", total=total)
        rows = allreduce_bench.run(plan, lambda what, done: progress.update(task, description=what, completed=done))
    console.print(_table(rows))
    if json_file is not None:
        json_file.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2) + "\n")
        console.print(f"rows written to {json_file}")


def _contestants(peers: str, insecure: bool) -> list[str]:
    from holdfast.lab import contestant

    rivals = [peer.strip() for peer in peers.split(",") if peer.strip()]
    for rival in rivals:
        if rival not in contestant.NAMES:
            raise ConfigError(f"unknown peer {rival!r}", what_to_try=f"one of {', '.join(contestant.NAMES)}")
        if rival == "holdfast-insecure" and not insecure:
            raise ConfigError(
                "holdfast-insecure has no protection at all", what_to_try="--insecure, to say you mean it"
            )
    chosen = [*_ALWAYS, *(["holdfast-insecure"] if insecure else []), *rivals]
    return list(dict.fromkeys(chosen))


def parse_size(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?\s*", text, re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size < 4:
        raise ConfigError(f"{text!r} is not a size", what_to_try="for example 8K, 1M or 25M; at least 4 bytes")
    return size


def _table(rows: Sequence[Row]) -> Table:
    gloo_p50 = {row.bytes: row.p50_ms for row in rows if row.peer == "gloo"}
    table = Table(
        title=f"all-reduce, float32, {rows[0].ranks} ranks, {rows[0].profile}",
        caption="times in ms, of the slowest rank; bandwidths in GB/s, as nccl-tests counts them",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    names = ["size", "count", "peer", "p50", "p95", "p99", "max", "algbw", "busbw", "delivered", "#wrong", "p50/gloo"]
    for name in names:
        table.add_column(name, justify="left" if name == "peer" else "right", no_wrap=True)
    for row in rows:
        algorithm_bandwidth = row.bytes / row.p50_ms / 1e6
        bus_bandwidth = algorithm_bandwidth * 2 * (row.ranks - 1) / row.ranks
        ratio = f"{row.p50_ms / gloo_p50[row.bytes]:.2f}" if row.bytes in gloo_p50 else "-"
        times = (f"{value:.2f}" for value in (row.p50_ms, row.p95_ms, row.p99_ms, row.max_ms))
        table.add_row(
            str(row.bytes), str(row.bytes // 4), row.peer, *times, f"{algorithm_bandwidth:.2f}", f"{bus_bandwidth:.2f}",
            f"{row.delivered_ratio:.4%}", str(row.wrong), ratio,
        )  # fmt: skip
    return table
