"""Measure Holdfast's bounded all-reduce against Gloo in the lab, and print every figure beside what it should be.

python benchmarks/optireduce_bars.py --json bars.json            4 hosts, all networks, three runs: some hours
python benchmarks/optireduce_bars.py --hosts 4,8 --profiles clean,lossy-1 --json bars.json
python benchmarks/optireduce_bars.py --large --json bars.json    25 MiB instead: p50 and max of 20
python benchmarks/optireduce_bars.py --only-print --json bars.json
python benchmarks/optireduce_bars.py --quick                     a few operations each, to see that it works

With --json, what the file holds is not measured again: an interrupted run goes on. Needs root, as the lab does.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from optireduce_lines import STRAGGLER, print_large, print_rows, print_stages, print_straggler, print_table
from optireduce_verdicts import BARS

from holdfast.cli.signals import ended_by_signal
from holdfast.config import resolve
from holdfast.lab import privilege
from holdfast.lab.bench import grid, rows_file
from holdfast.lab.bench.row import Row
from holdfast.lab.peer import parse_peers
from holdfast.lab.profile import load_profile

PEERS = "gloo-cubic,gloo-bbr,gloo-tuned,gloo-tuned-bf16,holdfast,holdfast-bf16,holdfast-exact"
MIB = 1 << 20
LARGE_BYTES, LARGE_ITERATIONS = 25 * MIB, 20
QUICK_ITERATIONS = 10


def measure(options: argparse.Namespace, rows: list[Row]) -> None:
    """Adds to `rows` what they lack; cell by cell, the file follows."""
    for run in range(options.runs):
        for hosts in options.hosts:
            for profile in options.profiles:
                plan = grid.Plan(
                    parse_peers(PEERS), hosts, [profile], [options.bytes], options.iterations, resolve({}).config,
                    options.seed + run, options.attempts,
                )  # fmt: skip
                _measure_missing(plan, options, rows, f"run {run + 1}/{options.runs}, {hosts} hosts, {profile}")


def _measure_missing(plan: grid.Plan, options: argparse.Namespace, rows: list[Row], name: str) -> None:
    cells = grid.missing_cells(plan, [row for row in rows if _is_of(row, plan)])
    for of_cell in grid.run(plan, cells, on_failure=lambda where, why: _say(f"{where}: {why}")):
        first = of_cell[0]
        cell = first.profile, first.bytes
        rows[:] = [row for row in rows if not (_is_of(row, plan) and (row.profile, row.bytes) == cell)]
        rows += of_cell
        if options.json is not None:
            rows_file.write(options.json, rows)
        noise = "noisy " if any(row.noisy for row in of_cell) else ""
        _say(f"{name}: {noise}try {first.attempts}")


def _is_of(row: Row, plan: grid.Plan) -> bool:
    return (row.ranks, row.iterations, row.seed, row.deadline_ms) == (
        plan.num_ranks, plan.iterations, plan.seed, plan.config.deadline_ms
    )  # fmt: skip


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=_numbers, default=[4], help="comma list; default 4")
    parser.add_argument("--profiles", type=_names, help="comma list; default: all of the table, and straggler")
    parser.add_argument("--iterations", type=int, help="counted operations a row; default 200, with --large 20")
    parser.add_argument("--runs", type=int, help="each with a seed of its own; default 3, with --large 1")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--json", type=Path, help="rows; what it holds already is not measured again")
    parser.add_argument(
        "--retry-noisy", action="store_true", help="measure cells again in which the machine was too busy"
    )
    parser.add_argument("--attempts", type=int, help="at a cell that the machine disturbs; default 3, with --quick 1")
    parser.add_argument("--large", action="store_true", help="25 MiB instead of 1 MiB: no bars")
    parser.add_argument("--tables", action="store_true", help="also print every row of every run, Gloo's too")
    parser.add_argument("--only-print", action="store_true", help="measure nothing: print what the --json file holds")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ITERATIONS} operations, one run and attempt")
    options = parser.parse_args()
    options.profiles = options.profiles or [*BARS, STRAGGLER]
    options.bytes = LARGE_BYTES if options.large else MIB
    usual = QUICK_ITERATIONS if options.quick else LARGE_ITERATIONS if options.large else 200
    options.iterations = options.iterations or usual
    options.runs = options.runs or (1 if options.quick or options.large else 3)
    options.attempts = options.attempts or (1 if options.quick else grid.MAX_ATTEMPTS)
    return options


def _names(text: str) -> list[str]:
    return [load_profile(name.strip()).name for name in text.split(",")]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    options = _options()
    rows = [] if options.json is None else rows_file.read(options.json)
    if options.retry_noisy:
        rows = [row for row in rows if not row.noisy]
    if not options.only_print:
        if options.json is not None:
            rows_file.require_writable(options.json)
        privilege.ensure()
        with ended_by_signal():
            measure(options, rows)
    asked = [
        row
        for row in rows
        if (row.bytes, row.iterations) == (options.bytes, options.iterations)
        and options.seed <= row.seed < options.seed + options.runs
    ]
    good = True
    for hosts in options.hosts:
        if options.tables:
            print_rows(asked, hosts)
        if options.large:
            print_large(asked, hosts, options.profiles)
            continue
        good &= print_table(asked, hosts, options.profiles)
        good &= print_stages(asked, hosts, options.profiles)
        if STRAGGLER in options.profiles:
            print()
            good &= print_straggler(asked, hosts)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
