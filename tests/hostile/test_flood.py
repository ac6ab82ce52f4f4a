"""The flood of `benchmarks/hostile_flood.py`, small: at line rate, with every kind at once, accounted for to the last."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from attacker import ROOT

NUM_DATAGRAMS = 200_000


@pytest.mark.slow  # the same flood is part of `test_outsider.py`; here the benchmark itself is run
@pytest.mark.xdist_group("processes")
def test_a_flood_at_line_rate_neither_stops_the_job_nor_grows_it() -> None:
    command = [sys.executable, "benchmarks/hostile_flood.py", "--datagrams", str(NUM_DATAGRAMS), "--json"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ended.stdout, ended.stderr
    figures = json.loads(ended.stdout)
    assert sum(figures["sent"].values()) == NUM_DATAGRAMS
    assert figures["verdicts"] == dict.fromkeys(figures["verdicts"], True), figures
    assert ended.returncode == 0
