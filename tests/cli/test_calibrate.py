"""`holdfast lab calibrate`: what it prints and returns."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.calibrate.instruments import needs_iperf3, needs_ping
from lab.lab_processes import needs_lab
from rich.console import Console
from rich.table import Table

from holdfast.cli.calibrate import calibrate_command, calibration_table, carried_table
from holdfast.errors import HoldfastError
from holdfast.lab.calibrate.calibration import Attempt, judge
from holdfast.lab.calibrate.carrying import Carried
from holdfast.lab.calibrate.finding import Finding

HOLDFAST = [sys.executable, "-c", "from holdfast.cli import main; main()"]
LIMIT_S = 90


def calibrate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "NO_COLOR": "1", **environment}
    command = [*HOLDFAST, "lab", "calibrate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=variables)


def printed(table: Table) -> list[list[str]]:
    text = io.StringIO()
    Console(file=text, width=140).print(table)
    return [line.split() for line in text.getvalue().splitlines()]


@needs_lab
@needs_iperf3
@needs_ping
def test_promise_and_finding_side_by_side(tmp_path: Path) -> None:
    """A network of the test's own, which breaks one of its promises.

    Six flows of iperf3 are opened: if that were not done without loss, one would fail in six of seven runs.
    """
    profile, rows_file = tmp_path / "own.toml", tmp_path / "rows.json"
    profile.write_text(
        "models = 'far apart'\n[path]\ndelay_ms = 5.0\nloss_ratio = 0.15\n[promise]\nrtt_ms = 10.0\nloss_ratio = 0.05\n"
    )
    run = calibrate("--quick", "--hosts", "3", "--profile", str(profile), "--json", str(rows_file))
    assert run.returncode == 1, run.stderr
    assert "1/2" in run.stderr
    assert "rtt_ms by ping" in run.stderr
    assert "loss_ratio by iperf3" in run.stderr
    rtt, loss = json.loads(rows_file.read_text())
    assert (rtt["figure"], rtt["instrument"], rtt["promise"]) == ("rtt_ms", "ping", 10.0)
    assert rtt["found"] >= 10
    assert rtt["kept"] == (rtt["found"] <= 12)
    assert (loss["figure"], loss["instrument"], loss["promise"], loss["kept"]) == ("loss_ratio", "iperf3", 0.05, False)
    assert loss["found"] == pytest.approx(0.15, abs=6 * (0.15 * 0.85 / loss["num_samples"]) ** 0.5)
    assert "rtt_ms" in run.stdout
    assert "not kept" in run.stdout


def test_the_table_says_what_was_found_and_how_sure_it_is() -> None:
    rows = [
        judge("clean", "loss_ratio", 0.0, [Attempt(Finding(0.0, 1e-5, 100_000), 0.4)]),
        judge("clean", "rtt_ms", 0.4, [Attempt(Finding(0.43, 0.002, 300), 0.4)]),
        judge("stalls", "longest_silence_ms", 500.0, [Attempt(Finding(301.0, None, 3000), late) for late in (9, 8, 7)]),
    ]
    lines = printed(calibration_table(rows))
    assert ["clean", "loss_ratio", "iperf3", "0.000%", "0.000%", "0.001%", "100,000", "-", "none", "0.40", "ms",
            "kept"] in lines  # fmt: skip
    assert ["rtt_ms", "ping", "0.4", "ms", "0.43", "ms", "0.002", "ms", "300", "+7.5%", "20%", "0.40", "ms",
            "kept"] in lines  # fmt: skip
    assert ["stalls", "longest_silence_ms", "ping", "500", "ms", "301", "ms", "-", "3,000", "-39.8%", "20%", "7.00",
            "ms*", "not", "kept"] in lines  # fmt: skip


def test_the_table_of_full_links() -> None:
    lines = printed(carried_table([Carried("udp", 4, 250e6, (0.95, 0.97, 0.96, 0.96), 0.12, 0.3, 0.5, 0.034)]))
    assert ["4", "x", "250", "Mbit/s", "UDP", "95.0%", "96.0%", "0.12", "ms", "0.30", "ms", "0.50", "ms",
            "3.4%", "kept"] in lines  # fmt: skip


def test_missing_programs_are_named_with_their_packages(tmp_path: Path) -> None:
    run = calibrate("--quick", PATH=str(tmp_path))
    assert run.returncode == 2
    (sentence,) = run.stderr.strip().splitlines()
    assert sentence.startswith("LabUnavailable: calibration measures with iperf3 and ping")
    assert "apt-get install iperf3 iputils-ping" in sentence


@needs_iperf3
@needs_ping
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"carry": True, "profile": "clean"}, "--carry takes no --profile"),
        ({"profile": "nowhere"}, "'nowhere' is neither a shipped file"),
        ({"profile": ","}, "nothing to calibrate"),
        ({"json_file": Path("/nowhere/rows.json")}, "cannot write /nowhere/rows.json"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_built(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(HoldfastError, match=complaint):
        calibrate_command(**options)
