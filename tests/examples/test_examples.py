"""The examples run as a user would run them: with all that torchrun tells its ranks.

torchrun itself costs ten seconds a launch; `bridge/test_ddp.py` starts a script with it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from rank_processes import HOST, Member

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def agent_store() -> dist.TCPStore:
    """Where ranks meet: under torchrun its agent hosts it, here the test does."""
    return dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)


def run_example(member: Member, store_port: int, script: str, *arguments: str) -> str:
    """What it prints when it finds torchrun's variables."""
    os.environ.update(
        RANK=str(member.rank),
        WORLD_SIZE=str(member.num_ranks),
        LOCAL_RANK=str(member.rank),
        LOCAL_WORLD_SIZE=str(member.num_ranks),
        MASTER_PORT=str(store_port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    sys.argv = [script, *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return said.getvalue()


def test_minimal_ends_with_an_outcome_on_every_rank(run_ranks: Any, agent_store: dist.TCPStore) -> None:
    for said in run_ranks(run_example, 2, agent_store.port, "minimal.py"):
        assert re.fullmatch(r"operation \d+: [\d.]+% delivered in [\d.]+ of at most [\d.]+ ms.*\n", said), said


def test_the_late_rank_is_named_and_its_shard_is_served(run_ranks: Any, agent_store: dist.TCPStore) -> None:
    said = "".join(run_ranks(run_example, 4, agent_store.port, "late_rank.py"))
    # In a late step all of rank 2's gradient is missing, and nothing of the shard it is responsible for.
    assert "rank 2: 0.0% of its contribution, 100.0% of its results" in said
    assert said.count("tensors differed from rank 0's") == 4


def test_digits_are_learnt_and_the_figures_written(run_ranks: Any, agent_store: dist.TCPStore, tmp_path: Path) -> None:
    arguments = ("--epochs", "2", "--json", str(tmp_path / "figures.json"))
    said, _ = run_ranks(run_example, 2, agent_store.port, "train_digits.py", *arguments)
    assert re.search(r"^epoch 2  loss [\d.]+  accuracy 0\.[89]\d*$", said, re.MULTILINE), said
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert len(figures["step_ms"]) == 2 * figures["steps_per_epoch"]
    assert figures["accuracy"] > 0.8
    assert figures["holdfast"]["operations"] > 0
