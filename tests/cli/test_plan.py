from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from holdfast.cli.plan import register
from holdfast.reroute import check_plan

SHAPE = ("--stages", "4", "--pipelines", "3", "--microbatches", "6")


@pytest.fixture
def app() -> typer.Typer:
    application = typer.Typer()
    register(application)
    return application


def run(app: typer.Typer, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_the_json_of_the_paper_example_is_pure_and_valid(app: typer.Typer) -> None:
    code, out, _ = run(app, *SHAPE, "--failed", "1:2", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["slots"]["staggered"] == 27
    assert check_plan(document) == []


def test_the_table_shows_the_four_schedules(app: typer.Typer) -> None:
    code, out, _ = run(app, *SHAPE, "--failed", "1:2")
    assert code == 0
    for expected in ("Fault-free 1F1B", "27", "Re-routed", "36", "33", "29", "Lower bound 30"):
        assert expected in out


def test_every_output_is_written(app: typer.Typer, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("plan.json", "plan.html", "trace.json")}
    code, out, _ = run(
        app, *SHAPE, "--failed", "1:2", "--solve-seconds", "0", "--text",
        "--save", str(files["plan.json"]), "--html", str(files["plan.html"]), "--trace", str(files["trace.json"]),
    )  # fmt: skip
    assert code == 0
    assert out.startswith("0F0,0F1")
    assert "traceEvents" in json.loads(files["trace.json"].read_text())
    assert "<html" in files["plan.html"].read_text()[:200]
    assert run(app, "--check", str(files["plan.json"]))[0] == 0
    document = json.loads(files["plan.json"].read_text())
    document["ops"].pop()
    files["plan.json"].write_text(json.dumps(document))
    code, out, _ = run(app, "--check", str(files["plan.json"]), "--json")
    assert code == 1
    assert json.loads(out)["valid"] is False


def test_normalising_moves_a_worker_first(app: typer.Typer) -> None:
    shape = ("--stages", "4", "--pipelines", "4", "--microbatches", "8", "--failed", "0:2,1:2", "--solve-seconds", "0")
    assert "see --normalise" in " ".join(run(app, *shape)[1].split())
    _, out, _ = run(app, *shape, "--normalise", "--json")
    document = json.loads(out)
    assert document["slots"]["staggered"] <= 34
    assert len(document["normalisation"]["moves"]) == 1


def test_times_profile_and_memory_change_the_plan(app: typer.Typer) -> None:
    shape = (*SHAPE, "--failed", "1:2", "--solve-seconds", "0", "--json")
    by_times = json.loads(run(app, *shape, "--times", "10,11,9,8,1")[1])
    by_profile = json.loads(run(app, *shape, "--profile", "uneven")[1])
    assert by_times["slots"] == by_profile["slots"]
    assert by_times["lower_bound"] == 9 * 30 + 8
    tight = json.loads(run(app, *shape, "--memory", "4")[1])
    assert max(tight["peak_memory"].values()) <= 4


def test_a_store_is_prepared_and_looked_up(app: typer.Typer, tmp_path: Path) -> None:
    store = str(tmp_path / "store.json")
    code, out, _ = run(app, *SHAPE, "--prepare", "2", "--store", store, "--solve-seconds", "0")
    assert code == 0
    assert "2 failures" in out
    code, out, _ = run(app, *SHAPE, "--store", store, "--failed", "0:1,2:1", "--json")
    assert code == 0
    assert len(json.loads(out)["permutation"]) == 4


def test_a_replay_prints_five_policies_and_a_picture(app: typer.Typer, tmp_path: Path) -> None:
    page = tmp_path / "replay.html"
    code, out, _ = run(app, "--replay", "spot-24", "--html", str(page))
    assert code == 0
    for name in ("Holdfast", "drop pipeline", "Oobleck", "Bamboo", "restart"):
        assert name in out
    assert page.stat().st_size > 1_000_000
    assert len(json.loads(run(app, "--replay", "spot-24", "--json")[1])["policies"]) == 5


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "ImpossibleShape"),
        ((*SHAPE[:4], "--microbatches", "0"), "ImpossibleShape"),
        ((*SHAPE, "--failed", "9:9"), "UnknownWorker"),
        ((*SHAPE, "--failed", "one"), "UnknownWorker"),
        ((*SHAPE, "--failed", "0:1,1:1,2:1"), "StageLost"),
        ((*SHAPE, "--times", "0,1,1,3"), "TimesNotPositive"),
        ((*SHAPE, "--times", "1,1,1,-3"), "TimesNotPositive"),
        ((*SHAPE, "--memory", "0"), "MemoryTooSmall"),
        ((*SHAPE, "--memory", "-5"), "TimesNotPositive"),
        ((*SHAPE, "--profile", "nowhere"), "BrokenProfile"),
        ((*SHAPE, "--profile", "paper", "--times", "1,1,1,3"), "BrokenProfile"),
        ((*SHAPE, "--prepare", "2"), "NoPlanStored"),
        (("--check", "/nowhere.json"), "InvalidPlan"),
        (("--replay", "nowhere"), "BrokenTrace"),
        (("--replay", "spot-24", "--pipelines", "2"), "BrokenTrace"),
        ((*SHAPE, "--solve-seconds", "0", "--html", "/nowhere/plan.html"), "Cannot write"),
    ],
)
def test_bad_input_is_named_and_says_what_to_try(app: typer.Typer, arguments: tuple[str, ...], error: str) -> None:
    code, out, err = run(app, *arguments)
    assert code == 2
    assert error in err
    assert "Try:" in err
    assert "Traceback" not in out + err


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys, typer; from typer.testing import CliRunner; from holdfast.cli.plan import register;"
        "app = typer.Typer(); register(app); assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "print([name for name in ('torch', 'ortools', 'plotly', 'numpy', 'pandas') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"
