"""The examples run as a user would run them: under plain torchrun. `train_digits.py` is run by the test of the demo."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _torchrun(num_ranks: int, script: str) -> str:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    done = subprocess.run(
        [*launcher, str(EXAMPLES / script)],
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
    assert len(re.findall(r"operation 20: [\d.]+% delivered in [\d.]+ of at most [\d.]+ ms", said)) == 2


def test_the_late_rank_is_named_and_its_shard_is_served() -> None:
    said = _torchrun(4, "late_rank.py")
    # In a late step all of rank 2's gradient is missing, and nothing of the shard it is responsible for.
    assert "rank 2: 0.0% of its contribution, 100.0% of its results" in said
    assert said.count("tensors differed from rank 0's") == 4
