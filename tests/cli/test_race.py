"""`holdfast race`: what it prints, writes and returns, and that nothing of it stays."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path

import pytest
from lab.lab_processes import MISSING, needs_lab, wait_until

from cli.race_commands import Started, holdfast
from holdfast.cli import race

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(240)]

TABLE = [
    "task", "profile", "hosts", "peer", "seed", "steps", "seconds_to_target", "final_metric", "step_p50_ms",
    "step_p99_ms", "delivered_ratio", "drift_max",
]  # fmt: skip


@needs_lab
def test_a_short_race_in_the_lab_ends_with_table_report_picture_and_figures(tmp_path: Path) -> None:
    """Two hosts reach 20 % in twenty steps, in the midst of the first turn."""
    done = holdfast(
        "race", "--hosts", "2", "--profile", "lossy-1", "--task", "digits", "--peers", "gloo-tuned-bf16,holdfast",
        "--target", "0.2", "--max-steps", "30", "--output", str(tmp_path), HOLDFAST_WARMUP_OPERATIONS="2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / race.FIGURES).read_text())
    assert (document["profile"], document["bits_per_s"], document["target"]) == ("lossy-1", 500e6, 0.2)
    gloo, holdfast_run = document["runs"]
    for run in (gloo, holdfast_run):
        assert list(run)[: len(TABLE)] == TABLE
        assert run["final_metric"] >= 0.2
        assert run["seconds_to_target"] == run["seconds"] == run["evaluations"][-1]["seconds"] > 0
        assert 10 <= run["steps"] < 30
        assert run["lateness"]["losses"]["random"] > 0
    assert (gloo["peer"], gloo["delivered_ratio"], gloo["drift_max"]) == ("gloo-tuned-bf16", 1.0, 0.0)
    assert holdfast_run["delivered_ratio"] < 1
    assert "gloo-tuned-bf16: step " in done.stderr
    assert "reached the target" in done.stderr
    for word in ("gloo-tuned-bf16", "holdfast", "to target", "step p99", "drift", "20% accuracy"):
        assert word in done.stdout
    for name in (race.REPORT, race.PICTURE, race.FIGURES):
        assert str(tmp_path / name) in done.stdout
    assert (tmp_path / race.PICTURE).read_bytes().startswith(b"\x89PNG")
    assert "<html" in (tmp_path / race.REPORT).read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--loopback", "--peers", "gloo-tuned"), "ConfigError: gloo-tuned: TCP settings need hosts of their own"),
        (("--task", "chess"), "ConfigError: unknown task 'chess'"),
        (("--peers", "nccl"), "ConfigError: unknown peer 'nccl'"),
        (("--output", "/dev/null/below"), "ConfigError: cannot make the folder /dev/null/below"),
    ],
)
def test_what_cannot_be_raced_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = holdfast("race", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(sentence)
    assert "Traceback" not in done.stderr


def test_what_is_not_a_number_is_null_in_json() -> None:
    assert race._finite({"a": [math.nan, 1.0], "b": (math.inf, "x")}) == {"a": [None, 1.0], "b": [None, "x"]}


RACE = ("race", "--hosts", "2", "--peers", "holdfast", "--target", "2")


@pytest.mark.parametrize(
    ("number", "moment", "where"),
    [
        (signal.SIGTERM, "starting", ["--loopback"]),
        (signal.SIGKILL, "starting", ["--loopback"]),
        (signal.SIGINT, "step 40/", ["--loopback"] if MISSING else []),
    ],
)
def test_an_interrupted_race_leaves_nothing(
    number: signal.Signals, moment: str, where: list[str], tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run = Started(*RACE, *where, "--output", str(tmp_path), TMPDIR=str(scratch))
    try:
        run.wait_for_line(moment)
        wait_until(lambda: len(run.processes()) >= 3, 60, "the ranks")
        run.process.send_signal(number)
        assert run.process.wait(30) == (-number if number == signal.SIGKILL else 128 + number)
        wait_until(lambda: not run.processes(), 5, "the end of every process")
        if number != signal.SIGKILL:
            assert list(scratch.glob("holdfast-*")) == []
    finally:
        run.close()
