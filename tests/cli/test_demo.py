"""`holdfast demo`: a race that anybody can run; without the right to a lab it says so and goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.race_commands import holdfast
from holdfast.cli import race
from holdfast.lab import privilege

pytestmark = pytest.mark.xdist_group("programs")


@pytest.mark.timeout(240)
def test_without_a_lab_the_demo_says_so_and_races_on_loopback(tmp_path: Path) -> None:
    done = holdfast(
        "demo", "--hosts", "2", "--max-steps", "10", "--output", str(tmp_path),
        powerless=True, **{privilege.TRIED: "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("holdfast demo: no lab here (this process may not make a network namespace")
    assert "so the race is on plain loopback" in done.stderr.splitlines()[0]
    document = json.loads((tmp_path / race.FIGURES).read_text())
    assert (document["profile"], document["task"], document["target"]) == ("loopback", "digits", 0.975)
    assert [run["peer"] for run in document["runs"]] == ["gloo", "holdfast"]
    for run in document["runs"]:
        assert run["steps"] == 10
        assert 0.1 < run["final_metric"] < 0.975
    assert "Nobody reached 97.5% accuracy" in done.stdout
    assert "not whether it is faster" in " ".join(done.stdout.split())
    assert (tmp_path / race.PICTURE).stat().st_size > 10_000
    assert (tmp_path / race.REPORT).stat().st_size > 10_000


def test_a_missing_package_is_one_sentence(tmp_path: Path) -> None:
    """Python's own switch for it: a module that is None cannot be imported."""
    hide = "import sys; sys.modules['sklearn'] = None; from holdfast.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hide, "demo", "--output", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.strip() == "ConfigError: the task digits needs scikit-learn. Try: pip install 'holdfast[demo]'"
