"""`holdfast demo`: turns, limits, nothing left behind, and one short run of the whole."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from holdfast.cli import demo

app = typer.Typer()
app.callback()(lambda: None)
demo.register(app)

# A run as the demo sees it: says that it is ready, and trains an epoch when it is its turn.
OBEDIENT = """
import json, pathlib, sys, time
turns, diary, epochs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
print("warming up")
print(json.dumps({"ready": "training"}), flush=True)
for epoch in range(epochs + 1):
    while int(turns.read_text()) <= epoch:
        time.sleep(0.001)
    if epoch < epochs:
        with diary.open("a") as file:
            file.write(f"begin {turns.stem} {epoch}\\n")
            file.flush()
            time.sleep(0.01)
            file.write(f"end {turns.stem} {epoch}\\n")
        print(json.dumps({"epoch": epoch + 1, "accuracy": 0.5, "loss": 1.0}), flush=True)
"""
FAILS = "import sys; print('the reason is here'); sys.exit(3)"
SILENT = "import time; time.sleep(60)"
# A launcher that ignores SIGTERM and whose worker lives in a session of its own, as torchrun's workers do.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print("up", flush=True)
time.sleep(60)
"""

MakeJob = Callable[..., demo.Job]


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[MakeJob]:
    jobs: list[demo.Job] = []

    def make(name: str, code: str, *arguments: str) -> demo.Job:
        turns = tmp_path / f"{name}.turns"
        jobs.append(demo.Job(name, [sys.executable, "-c", code, str(turns), *arguments], turns))
        return jobs[-1]

    yield make
    for job in jobs:
        job.stop()


def test_jobs_train_one_at_a_time_and_swap_who_goes_first(make_job: MakeJob, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    jobs = [make_job(name, OBEDIENT, str(diary), "3") for name in ("holdfast", "gloo")]
    demo.take_turns(jobs, 3, lambda job: None)
    order = [("holdfast", 0), ("gloo", 0), ("gloo", 1), ("holdfast", 1), ("holdfast", 2), ("gloo", 2)]
    expected = [f"{what} {name} {epoch}" for name, epoch in order for what in ("begin", "end")]
    assert diary.read_text().splitlines() == expected
    assert all(job.last["accuracy"] == 0.5 for job in jobs)


def test_a_run_that_fails_is_named_with_its_last_lines(make_job: MakeJob, tmp_path: Path) -> None:
    jobs = [make_job("holdfast", OBEDIENT, str(tmp_path / "diary"), "3"), make_job("gloo", FAILS)]
    with pytest.raises(demo.RunError, match=r"Gloo ended with code 3(.|\n)*the reason is here"):
        demo.take_turns(jobs, 3, lambda job: None)


def test_a_silent_run_is_given_up_at_its_limit(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "START_LIMIT_S", 0.5)
    with pytest.raises(demo.RunError, match=r"Gloo did not start within 0\.5 s"):
        demo.take_turns([make_job("gloo", SILENT)], 3, lambda job: None)


def test_stop_ends_orphans_and_those_that_ignore_it(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "STOP_LIMIT_S", 0.5)
    job = make_job("gloo", STUBBORN)
    _until(lambda: len(job.processes()) == 2)
    job.stop()
    assert job.processes() == []


def _run(step_ms: list[float], holdfast: dict[str, Any] | None) -> dict[str, Any]:
    agreed = {"ranks": 4, "epochs": 2, "seed": 0, "parameters": 10, "steps_per_epoch": 2}
    results = {"accuracy": 0.98, "test_loss": [1.0, 0.5], "step_ms": step_ms, "holdfast": holdfast}
    return {**agreed, **results}


def test_the_first_epoch_is_not_timed_and_a_loss_is_never_rounded_away(tmp_path: Path) -> None:
    told = {"delivered_ratio": 0.9999999, "deadline_ms": 20.0, "ended_at_bound": 1, "explain": ["bound: 20.0 ms"]}
    figures = {"holdfast": _run([500, 500, 1, 3], told), "gloo": _run([500, 500, 2, 2], None)}
    document = demo.summarise(figures, tmp_path / "picture.png")
    rows = {row["transport"]: row for row in document["rows"]}
    assert (rows["holdfast"]["step_p50_ms"], rows["holdfast"]["step_p99_ms"]) == (3, 3)
    assert (rows["gloo"]["step_p50_ms"], rows["gloo"]["delivered_ratio"]) == (2, 1.0)
    assert demo._share(rows["holdfast"]["delivered_ratio"]) == "99.999%"
    demo.draw(figures, document, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else real(name))
    result = CliRunner().invoke(app, ["demo", "--output", str(tmp_path)])
    assert result.exit_code == demo.BAD_INPUT
    assert result.output.strip() == "holdfast demo: the demo needs scikit-learn. Try: pip install 'holdfast[demo]'"


@pytest.mark.timeout(240)
def test_a_short_demo_ends_with_figures_and_a_picture(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--ranks", "2", "--epochs", "2", "--json", "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / demo.FIGURES).read_text())
    assert [row["transport"] for row in document["rows"]] == ["holdfast", "gloo"]
    for row in document["rows"]:
        assert 0.1 < row["accuracy"] <= 1
        assert 0 < row["step_p50_ms"] <= row["step_p99_ms"]
        assert 0.5 < row["delivered_ratio"] <= 1
    assert (tmp_path / demo.PICTURE).stat().st_size > 10_000


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    mark = f"INTERRUPTED_DEMO={secrets.token_hex(8)}"
    name, value = mark.split("=")
    main = "import typer; from holdfast.cli import demo; typer.run(demo.demo_command)"
    process = subprocess.Popen(
        [sys.executable, "-c", main, "--ranks", "2", "--output", str(tmp_path)],
        env={**os.environ, name: value},
        stderr=subprocess.DEVNULL,
        # Whoever runs the tests in the background of a script has it ignored, and Python then leaves it so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        _until(lambda: len(_marked(mark)) >= 5)  # this one, two launchers and the first workers
        process.send_signal(number)
        assert process.wait(60) != 0
        assert _marked(mark) == []
    finally:
        for left in _marked(mark):
            os.kill(left, signal.SIGKILL)
        process.wait(10)


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _until(condition: Callable[[], bool], limit_s: float = 60) -> None:
    ends = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends, "waited too long"
        time.sleep(0.02)
