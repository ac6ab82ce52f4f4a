"""Real ranks on a network with one slow host: what is late leaves in sixteen bits, and replicas are equal all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.lab_processes import needs_lab

pytestmark = needs_lab

HOLDFAST = [sys.executable, "-c", "from holdfast.cli import main; main()"]
LIMIT_S = 90


def said_by_ranks(**environment: str) -> list[dict[str, Any]]:
    job = [sys.executable, str(Path(__file__).parent / "late_wire_job.py")]
    run = subprocess.run(
        [*HOLDFAST, "lab", "run", "--hosts", "3", "--profile", "straggler", "--", *job],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    said = [json.loads(line[line.index("{") :]) for line in run.stdout.splitlines() if '"narrow_ratio"' in line]
    assert len(said) == 3, run.stdout
    return said


def test_what_is_late_comes_in_sixteen_bits_and_averages_are_the_same_on_all_ranks() -> None:
    said = said_by_ranks()
    assert max(rank["narrow_ratio"] for rank in said) > 0.05
    assert "lacks 20%" in said[0]["late"]
    compared = 0
    for of_step in zip(*(rank["averages"] for rank in said), strict=True):
        if all(complete for complete, _, _ in of_step) and any(narrow > 0 for _, narrow, _ in of_step):
            assert len({digest for _, _, digest in of_step}) == 1
            compared += 1
    assert compared > 0


def test_it_can_be_turned_off() -> None:
    said = said_by_ranks(HOLDFAST_LATE_WIRE="float32")
    assert all(rank["narrow_ratio"] == 0.0 for rank in said)
    assert said[0]["late"].endswith("(late_wire)")
