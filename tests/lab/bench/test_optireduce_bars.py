"""The verdicts of `benchmarks/optireduce_bars.py`: ratios within a run, medians over runs, what the profile may lose."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast.lab.bench.row import Operation, Row, Setting, Tally, summarise
from holdfast.lab.peer import peer_named
from holdfast.lab.profile import shipped_profiles
from lab.lab_processes import needs_lab

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
OWN = frozenset({"random", "burst"})


@pytest.fixture(scope="module")
def bars() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("optireduce_verdicts")


def row(peer: str, p50_ms: float, p99_ms: float, seed: int = 0, **changes: Any) -> Row:
    setting = Setting("lossy-1", 4, 1 << 20, seed, None, 250e6)
    made = summarise(peer_named(peer), setting, Tally([Operation(p50_ms / 1e3, 1.0, 0, None)], sent=1000), 1)
    return dataclasses.replace(made, p99_ms=p99_ms, **changes)


def rivals(seed: int = 0, cubic: float = 400, bbr: float = 300, tuned: float = 100, bf16: float = 50) -> list[Row]:
    return [
        row("gloo-cubic", 60, cubic, seed), row("gloo-bbr", 62, bbr, seed), row("gloo-tuned", 61, tuned, seed),
        row("gloo-tuned-bf16", 31, bf16, seed),
    ]  # fmt: skip


def test_ratios_are_taken_within_a_run_and_then_the_median(bars: ModuleType) -> None:
    rows = [
        *rivals(0, tuned=100), row("holdfast", 60, 50, 0), *rivals(1, tuned=200), row("holdfast", 60, 180, 1),
        *rivals(2, tuned=90), row("holdfast", 60, 63, 2),
    ]  # fmt: skip
    runs = bars.Runs(rows, "holdfast")
    # 0.5, 0.9, 0.7; the ratio of the medians would be 0.63.
    assert runs.over(["gloo-tuned"], "p99_ms") == pytest.approx(0.7)


def test_the_best_stock_is_the_best_of_that_run(bars: ModuleType) -> None:
    rows = [*rivals(0, cubic=400, bbr=300), row("holdfast", 60, 90, 0), *rivals(1, cubic=200, bbr=500)]
    assert bars.Runs([*rows, row("holdfast", 60, 60, 1)], "holdfast").over(bars.STOCK, "p99_ms") == pytest.approx(0.3)
    assert bars.Runs([row("gloo-bbr", 60, 300), row("holdfast", 60, 90)], "holdfast").over(bars.STOCK, "p99_ms") is None


def test_half_the_bits_are_held_against_half_the_bits(bars: ModuleType) -> None:
    found = bars.judge(
        bars.Runs([*rivals(), row("holdfast-bf16", 32, 45)], "holdfast-bf16"), bars.BARS["lossy-1"], "lossy-1", OWN
    )
    assert found.over_tuned == pytest.approx(0.9)
    assert found.missed == ("/tuned",)


@pytest.mark.parametrize(("bound_p99_ms", "missed"), [(290.0, ()), (200.0, ("/stock", "/tuned"))])
def test_the_capacity_bound_may_stand_in_for_both(
    bars: ModuleType, bound_p99_ms: float, missed: tuple[str, ...]
) -> None:
    mine = row("holdfast", 250, 310, capacity_bound_p99_ms=bound_p99_ms)
    found = bars.judge(bars.Runs([*rivals(), mine], "holdfast"), bars.BARS["shared-3"], "shared-3", OWN)
    assert found.missed == missed


def test_only_what_the_profile_lost_is_added_to_what_was_delivered(bars: ModuleType) -> None:
    mine = row("holdfast", 50, 60, unfrozen_delivered_ratio=0.975, lost_packets={"random": 10, "burst": 2, "queue": 40})
    assert bars.delivered_beyond_loss(mine, OWN) == pytest.approx(0.987)
    assert bars.delivered_beyond_loss(mine, OWN | {"queue"}) == 1.0
    assert bars.lost_ratio(mine) == pytest.approx(0.052)
    found = bars.judge(bars.Runs([*rivals(), mine], "holdfast"), bars.BARS["lossy-1"], "lossy-1", OWN)
    assert found.missed == ("delivered",)
    assert found.delivered == pytest.approx(0.975)


def test_loopback_knows_no_losses_and_keeps_nothing(bars: ModuleType) -> None:
    assert bars.delivered_beyond_loss(row("holdfast", 50, 60, sent_packets=None), OWN) is None


def test_incast_also_counts_what_it_loses(bars: ModuleType) -> None:
    rows = [*rivals(), row("holdfast", 50, 60, lost_packets={"queue": 10})]
    assert bars.judge(bars.Runs(rows, "holdfast"), bars.BARS["incast"], "incast", OWN).missed == ("lost",)


def test_the_tail_has_a_bar_of_its_own_under_shared_3_and_stalls(bars: ModuleType) -> None:
    runs = bars.Runs([*rivals(), row("holdfast", 30, 46)], "holdfast")
    assert bars.judge(runs, bars.BARS["stalls"], "stalls", OWN).missed == ("p99/p50",)
    assert bars.judge(runs, bars.BARS["lossy-1"], "lossy-1", OWN).kept


def test_what_was_not_measured_is_not_kept(bars: ModuleType) -> None:
    found = bars.judge(bars.Runs([row("holdfast", 30, 31)], "holdfast"), bars.BARS["clean"], "clean", OWN)
    assert found.missed == ("/stock", "/tuned")


def test_a_straggler_is_held_against_what_any_division_takes(bars: ModuleType) -> None:
    mine = row("holdfast-bf16", 84, 90, unfrozen_delivered_ratio=0.995)
    rows = [row("gloo-tuned", 120, 130), mine]
    # One host at a quarter of 31,250 bytes a millisecond: its own 512 KiB alone take 67.1 ms.
    rates = [31_250.0, 31_250.0, 31_250.0, 7_812.5]
    found = bars.judge_straggler(bars.Runs(rows, "holdfast-bf16"), lambda _row: rates, OWN)
    assert found.over_tuned == pytest.approx(0.7)
    assert found.over_bound == pytest.approx(84 / 67.1, rel=0.001)
    assert found.missed == ()


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, ()),
        ({"stage_over_bound_p999_ms": 5.1}, ("over t_B",)),
        ({"late_ratio": 0.0011}, ("x band",)),
        ({"late_ratio": 0.00009}, ("x band",)),
    ],
)
def test_stages_by_the_clock(bars: ModuleType, changes: dict[str, Any], missed: tuple[str, ...]) -> None:
    usual = {
        "stage_over_bound_p999_ms": 4.9,
        "stage_ends": {"complete": 0.8, "early": 0.19, "bound": 0.01},
        "late_ratio": 0.0005,
    }
    runs = bars.Runs([row("holdfast", 30, 31, **{**usual, **changes})], "holdfast")
    assert bars.missed_by_the_clock(runs, "shared-1.5") == missed


def test_who_ends_stages_is_counted_over_all_networks(bars: ModuleType) -> None:
    def runs(early: float, bound: float) -> object:
        return bars.Runs([row("holdfast", 30, 31, stage_ends={"early": early, "bound": bound})], "holdfast")

    assert bars.early_over_bound([runs(0.0, 0.02), runs(0.98, 0.0)]) == pytest.approx(49)
    assert bars.early_over_bound([runs(0.0, 0.02), runs(0.02, 0.0)]) == pytest.approx(1)
    assert bars.early_over_bound([runs(0.1, 0.0)]) is None


def test_every_bar_is_on_a_network_that_there_is(bars: ModuleType) -> None:
    assert set(bars.BARS) | {bars.BAND_PROFILE, *bars.SPREAD_PROFILES} <= set(shipped_profiles())


@needs_lab
@pytest.mark.slow
@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(300)
def test_the_script_prints_every_row_and_measures_none_of_them_twice(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    command = [
        sys.executable, str(BENCHMARKS / "optireduce_bars.py"), "--quick", "--iterations", "2", "--hosts", "2",
        "--profiles", "straggler,clean", "--json", str(file),
    ]  # fmt: skip
    first = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert first.returncode in (0, 1), first.stderr
    rows = json.loads(file.read_text())
    assert len(rows) == 2 * 7
    assert all(row["sent_packets"] > 0 for row in rows)
    assert all(bool(row["stage_ends"]) == (row["peer"] in ("holdfast", "holdfast-bf16")) for row in rows)
    for said in ("holdfast-exact", "straggler, holdfast-bf16: p50"):
        assert said in first.stdout
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert json.loads(file.read_text()) == rows
