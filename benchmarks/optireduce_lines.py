"""The lines that `optireduce_bars.py` prints: every figure, what it should be, and how quiet the machine was."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from optireduce_verdicts import (
    BARS,
    LEAST_EARLY_OVER_BOUND,
    MOST_SPREAD,
    PROFILES_OWN_LOSS,
    SPREAD_PROFILES,
    STOCK,
    STRAGGLER_BAR,
    TUNED,
    Runs,
    early_over_bound,
    judge,
    judge_straggler,
    lost_ratio,
    missed_by_the_clock,
    stage_end,
)
from rich.console import Console

from holdfast.cli.bench_table import WIDE, tables
from holdfast.lab.bench.row import Row
from holdfast.lab.profile import load_profile

STRAGGLER = "straggler"
BOUNDED = ("holdfast", "holdfast-bf16")
FOR_COMPARISON = "holdfast-exact"


def causes_of(profile: str) -> frozenset[str]:
    """Of what the switch may lose there, the profile's own doing."""
    crossed = any(port.cross_traffic_share > 0 for port in load_profile(profile).conditions(2).ports)
    return PROFILES_OWN_LOSS | {"queue"} if crossed else PROFILES_OWN_LOSS


def host_rates(row: Row) -> list[float]:
    """Bytes per millisecond, of the slower direction."""
    ports = load_profile(row.profile).conditions(row.ranks, seed=row.seed).ports
    return [min(port.uplink_bits_per_s, port.downlink_bits_per_s) / 8e3 for port in ports]


def of_cell(rows: Sequence[Row], hosts: int, profile: str) -> list[Row]:
    return [row for row in rows if (row.ranks, row.profile) == (hosts, profile)]


def print_table(rows: Sequence[Row], hosts: int, profiles: Sequence[str]) -> bool:
    print(
        f"\n{hosts} hosts, 1 MiB: the figure over the better of {' and '.join(STOCK)}, and over {TUNED} (bf16: over "
        f"{TUNED}-bf16; stock TCP has 32 bits for all), medians over runs\n"
        "beyond: delivered (on stalls among hosts not frozen) plus the packets that the profile itself lost; 16 bit: of "
        "what came, because it was late; lost: of all "
        "packets; late: the switch at p99.9; woke: the last rank after the common start, p99; stolen: processor time; of the worst run\n"
        f"{'profile':<11}{'peer':<15}{'':<4}{'ms':>7}  {'/stock':<13}{'/tuned':<13}{'x cap':<12}{'p99/p50':<12}"
        f"{'delivered':>10}{'beyond':>9}{'16 bit':>8}{'lost':>7}{'late':>7}{'woke':>6}{'stolen':>7} runs"
    )
    good = True
    for profile in (name for name in profiles if name in BARS):
        bar = BARS[profile]
        for peer in (*BOUNDED, FOR_COMPARISON):
            runs = Runs(of_cell(rows, hosts, profile), peer)
            if not runs.rows:
                continue
            found = judge(runs, bar, profile, causes_of(profile))
            good = good and (found.kept or peer == FOR_COMPARISON)
            spread_bar = MOST_SPREAD if profile in SPREAD_PROFILES else None
            print(
                f"{profile:<11}{peer:<15}{bar.figure[:3]:<4}{runs.median(attrgetter(bar.figure)):>7.1f}  "
                f"{_against(found.over_stock, bar.stock):<13}{_against(found.over_tuned, bar.tuned):<13}"
                f"{_against(found.over_capacity, bar.capacity):<12}{_against(found.spread, spread_bar):<12}"
                f"{_share(found.delivered):>10}{_share(found.delivered_beyond_loss):>9}"
                f"{_share(runs.median(attrgetter('narrow_ratio')), 1):>8}{_share(found.lost):>7}"
                f"{_noise(runs)} {_word(peer, found.missed)}"
            )
    return good


def print_stages(rows: Sequence[Row], hosts: int, profiles: Sequence[str]) -> bool:
    print(
        f"\n{hosts} hosts, stages by the clock: ms after the t_B in force (p99.9 at most 5), what ended them, what came after "
        "the close (0.01 % to 0.1 % on shared-1.5)\n"
        f"{'profile':<11}{'peer':<15}{'p99.9':>8}{'max':>8} {'complete':>9}{'early':>9}{'limit':>9}{'bound':>9}{'late':>9}"
    )
    good = True
    for profile in profiles:
        for peer in BOUNDED:
            runs = Runs(of_cell(rows, hosts, profile), peer)
            if not runs.rows:
                continue
            missed = missed_by_the_clock(runs, profile)
            good = good and not missed
            p999, most = (runs.median(attrgetter(f"stage_over_bound_{name}_ms")) for name in ("p999", "max"))
            ends = [runs.median(stage_end(kind)) for kind in ("complete", "early", "limit", "bound")]
            late = runs.median(lambda row: row.late_ratio)
            shares = "".join(f"{_share(end):>9}" for end in ends)
            print(
                f"{profile:<11}{peer:<15}{_number(p999):>8}{_number(most):>8} {shares}{_share(late, 3):>9} "
                f"{_word(peer, missed)}"
            )
    for peer in BOUNDED:
        ratio = early_over_bound(Runs(of_cell(rows, hosts, profile), peer) for profile in profiles)
        missed = () if ratio is None or ratio >= LEAST_EARLY_OVER_BOUND else ("t_C before t_B",)
        good = good and not missed
        print(
            f"{peer}: over all networks t_C ended {_against(ratio, LEAST_EARLY_OVER_BOUND)} times as many stages as t_B: "
            f"{_word(peer, missed)}"
        )
    return good


def print_straggler(rows: Sequence[Row], hosts: int) -> bool:
    good = True
    for peer in BOUNDED[::-1]:
        runs = Runs(of_cell(rows, hosts, STRAGGLER), peer)
        if not runs.rows:
            continue
        found = judge_straggler(runs, host_rates, causes_of(STRAGGLER))
        counts = peer == "holdfast-bf16"
        good = good and not (counts and found.missed)
        print(
            f"{hosts} hosts, straggler, {peer}: p50 {_against(found.over_tuned, STRAGGLER_BAR if counts else None)} of {TUNED}'s, "
            f"{_number(found.over_tuned_bf16)} of {TUNED}-bf16's, {_number(found.over_bound)} times the least that any "
            f"division takes; delivered {_share(found.delivered)} (99 %); late, woke, stolen, runs:{_noise(runs)}: "
            f"{_word(peer, found.missed) if counts else 'for comparison'}"
        )
    return good


def print_large(rows: Sequence[Row], hosts: int, profiles: Sequence[str]) -> None:
    print(
        f"\n{hosts} hosts, 25 MiB, ms\n{'profile':<11}{'peer':<17}{'p50':>9}{'max':>9}{'/stock p50':>11}{'/tuned p50':>11}"
        f"{'delivered':>10}{'lost':>7}{'late':>7}{'woke':>6}{'stolen':>7} runs"
    )
    for profile in profiles:
        cell = of_cell(rows, hosts, profile)
        for peer in dict.fromkeys(row.peer for row in cell):
            runs = Runs(cell, peer)
            tuned = f"{TUNED}-bf16" if peer.endswith("-bf16") else TUNED
            print(
                f"{profile:<11}{peer:<17}{runs.median(lambda row: row.p50_ms):>9.1f}{max(row.max_ms for row in runs.rows):>9.1f}"
                f"{_number(runs.over(STOCK, 'p50_ms')):>11}{_number(runs.over([tuned], 'p50_ms')):>11}"
                f"{_share(runs.median(lambda row: row.unfrozen_delivered_ratio)):>10}{_share(runs.median(lost_ratio)):>7}"
                f"{_noise(runs)}"
            )


def print_rows(rows: Sequence[Row], hosts: int) -> None:
    out = Console(width=WIDE)
    for seed in sorted({row.seed for row in rows if row.ranks == hosts}):
        for table in tables([row for row in rows if (row.ranks, row.seed) == (hosts, seed)]):
            out.print(table)


def _noise(runs: Runs) -> str:
    late, stolen = max(row.late_p999_ms or 0.0 for row in runs.rows), max(row.stolen_ratio for row in runs.rows)
    num_noisy = sum(row.noisy for row in runs.rows)
    count = f"{len(runs.rows)}" + (f" ({num_noisy} noisy)" if num_noisy else "")
    woke = max(row.woke_late_p99_ms for row in runs.rows)
    return f"{late:>7.2f}{woke:>6.1f}{stolen:>7.1%} {count}"


def _against(value: float | None, bar: float | None) -> str:
    return _number(value) + ("" if bar is None else f" ({bar:g})")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _share(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}%}"


def _word(peer: str, missed: Sequence[str]) -> str:
    if peer == FOR_COMPARISON:
        return "for comparison"
    return "kept" if not missed else f"NOT KEPT: {', '.join(missed)}"
