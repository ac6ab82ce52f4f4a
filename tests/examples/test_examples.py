"""The examples run as a user would run them: under plain torchrun."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _torchrun(num_ranks: int, script: str, *arguments: str) -> str:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    done = subprocess.run(
        [*launcher, str(EXAMPLES / script), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_minimal_ends_with_an_outcome_on_every_rank() -> None:
    said = _torchrun(2, "minimal.py")
    assert len(re.findall(r"operation 40: [\d.]+% delivered in [\d.]+ of at most [\d.]+ ms", said)) == 2


def test_the_late_rank_is_named_and_its_shard_is_served() -> None:
    said = _torchrun(4, "late_rank.py")
    # In a late step all of rank 2's gradient is missing, and nothing of the shard it is responsible for.
    assert "rank 2: 0.0% of its contribution, 100.0% of its results" in said
    assert said.count("tensors differed from rank 0's") == 4


def test_digits_are_learnt_and_the_figures_written(tmp_path: Path) -> None:
    said = _torchrun(2, "train_digits.py", "--epochs", "2", "--json", str(tmp_path / "figures.json"))
    assert re.search(r"^epoch 2  loss [\d.]+  accuracy 0\.[89]\d*$", said, re.MULTILINE), said
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert len(figures["step_ms"]) == 2 * figures["steps_per_epoch"]
    assert figures["accuracy"] > 0.8
    assert figures["holdfast"]["operations"] > 0
