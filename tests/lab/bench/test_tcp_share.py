"""`benchmarks/tcp_share.py`: what Holdfast carried over the two links that it shares with a flow of TCP."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.lab.bench.row import Measured
from lab.calibrate.instruments import needs_iperf3
from lab.lab_processes import needs_lab

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MS = 1_000_000


@pytest.fixture(scope="module")
def share() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("tcp_share")


def test_each_direction_counts_what_came(share: ModuleType) -> None:
    whole = [Measured(0, 40 * MS, 1.0, {}, 0)] * 3
    # Half of what host 0 sent to host 1 is missing, and a quarter of what host 2 sent to it.
    holed = [
        Measured(50 * MS, 90 * MS, 1.0, {}, 0), Measured(50 * MS, 110 * MS, 0.7, {0: 0.5, 2: 0.25}, 0),
        Measured(52 * MS, 90 * MS, 1.0, {}, 0),
    ]  # fmt: skip
    side = share.holdfast_side([whole, holed], bytes_per_rank=1_000_000, seconds=2.0)
    of_one = 8e6 / 2 * share.HOLDFAST_PACKET_TO_PAYLOAD
    assert side.out_bits_per_s == pytest.approx(of_one * (1 + 0.75))
    assert side.in_bits_per_s == pytest.approx(of_one * (1 + 0.625))
    assert side.p50_ms == pytest.approx(50)
    assert side.delivered_ratio == pytest.approx(0.95)


@needs_lab
@needs_iperf3
@pytest.mark.slow
@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(240)
def test_both_sides_are_measured_alone_and_together() -> None:
    command = [sys.executable, str(BENCHMARKS / "tcp_share.py"), "--hosts", "2", "--seconds", "2"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=220)
    assert run.returncode in (0, 1), run.stderr
    lines = run.stdout.splitlines()
    for begin in ("holdfast alone: out", "cubic alone:", "together: cubic", "bbr alone:", "together: bbr"):
        assert any(line.startswith(begin) for line in lines)
    assert run.stdout.count("of what each has alone") == 2
