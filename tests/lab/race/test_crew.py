"""Processes of plain loopback: their ends are noticed, and they end with whoever started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from holdfast.lab.race.crew import LoopbackCrew
from lab.lab_processes import wait_until

ORPHANS = """
import sys, time
from pathlib import Path
from holdfast.lab.race.crew import LoopbackCrew
crew = LoopbackCrew(2, lambda rank: ["bash", "-c", "echo $$; sleep 60; true"], {0: (), 1: ()}, Path(sys.argv[1]))
time.sleep(60)
"""


def test_ranks_know_who_they_are_and_how_they_ended_is_known(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['RANK'], os.environ['WORLD_SIZE']); sys.exit(int(os.environ['RANK']) * 3)"
    crew = LoopbackCrew(2, lambda _rank: [sys.executable, "-c", code], {0: (), 1: ()}, tmp_path / "logs")
    give_up = time.monotonic() + 20
    while crew.alive and time.monotonic() < give_up:
        crew.pump(1.0)
    assert {rank: ending.how for rank, ending in crew.endings.items()} == {0: "done", 1: "exit code 3"}
    assert (tmp_path / "logs" / "rank-1.log").read_text() == "1 2\n"
    crew.stop()


def test_ranks_end_with_a_killed_race(tmp_path: Path) -> None:
    race = subprocess.Popen([sys.executable, "-c", ORPHANS, str(tmp_path)])
    logs = [tmp_path / f"rank-{rank}.log" for rank in (0, 1)]
    try:
        wait_until(lambda: all(log.exists() and log.read_text().endswith("\n") for log in logs), 30, "the ranks")
    finally:
        race.kill()
        race.wait(10)
    for log in logs:
        wait_until(lambda log=log: not _lives(int(log.read_text())), 5, "the end of a rank")  # type: ignore[misc]


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def test_stop_twice_is_harmless(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    crew = LoopbackCrew(2, lambda _rank: ["sleep", "60"], {0: (), 1: ()}, tmp_path)
    crew.stop()
    crew.stop()
    assert {ending.how for ending in crew.endings.values()} == {"ended by SIGTERM"}
    assert set(os.listdir("/proc/self/fd")) == before
