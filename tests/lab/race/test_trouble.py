"""Faults and schedules hold during the turns of the peer they are meant for, and at no other time."""

from __future__ import annotations

import time
from pathlib import Path

from holdfast.lab.cloud import Cloud
from holdfast.lab.fault import Fault
from holdfast.lab.launch import Workers
from holdfast.lab.marks import EVENTS
from holdfast.lab.race.trouble import Trouble
from holdfast.lab.schedule import Phase, Schedule
from lab.lab_processes import needs_lab

pytestmark = needs_lab

SLEEP = ["sleep", "60"]
SLOW = Fault("slow_nic", host=1, at_step=None, at_s=1.0, for_s=2.0, ratio=4.0)
STAIRS = Schedule("stairs", "", "epoch", (Phase(1, delay_ms=1.0), Phase(3, delay_ms=5.0)))


def rate(cloud: Cloud) -> float:
    return cloud.conditions.ports[1].uplink_bits_per_s


def test_a_slow_card_is_slow_only_in_the_peers_own_turns(cloud: Cloud) -> None:
    told: list[str] = []
    with Workers(cloud, SLEEP) as workers:
        trouble = Trouble(workers, [SLOW], None, told.append)
        trouble.begin_turn(0.0)
        assert trouble.advance(0.5) == 1.0
        trouble.advance(1.5)
        assert rate(cloud) == 25e6
        trouble.end_turn()
        assert rate(cloud) == 100e6  # another peer's turn
        trouble.begin_turn(1.5)
        assert rate(cloud) == 25e6
        trouble.advance(3.6)
        assert rate(cloud) == 100e6
        trouble.end_turn()
        trouble.begin_turn(3.6)
        assert rate(cloud) == 100e6
    assert told == ["slow_nic x4 on host 1 at 1.00 s for 2 s", "over: slow_nic x4 on host 1 at 1.00 s for 2 s"]


def test_a_slowed_process_runs_freely_between_turns(cloud: Cloud) -> None:
    """Or it would never come to the end of its evaluation."""
    fault = Fault("slow_cpu", host=0, at_step=None, at_s=0.0, for_s=None, ratio=3.0)
    with Workers(cloud, SLEEP) as workers:
        trouble = Trouble(workers, [fault], None, lambda _what: None)
        trouble.begin_turn(0.0)
        trouble.advance(0.0)
        assert is_stopped(workers)
        trouble.end_turn()
        assert not is_stopped(workers)
        trouble.begin_turn(0.0)
        trouble.advance(1.0)
        assert is_stopped(workers)


def is_stopped(workers: Workers) -> bool:
    time.sleep(0.05)  # a signal takes effect a moment after it was sent
    return Path(f"/proc/{workers.workers[0].process.pid}/stat").read_text().rpartition(") ")[2][0] == "T"


def delays(cloud: Cloud) -> set[float]:
    return {path.delay_ms for path in cloud.conditions.paths.values()}


def test_every_peer_is_in_its_own_phase(cloud: Cloud) -> None:
    told: list[str] = []
    script = f"for epoch in 1 2 3; do echo epoch $epoch >&${EVENTS}; done; sleep 60"
    with Workers(cloud, ["bash", "-c", script]) as ahead, Workers(cloud, SLEEP) as behind:
        give_up = time.monotonic() + 20
        while ahead.position("epoch") != 3 and time.monotonic() < give_up:
            ahead.pump(0.1)
        troubles = [Trouble(workers, [], STAIRS, told.append) for workers in (ahead, behind)]
        for _ in range(2):
            for trouble, expected in zip(troubles, (5.0, 1.0), strict=True):
                trouble.begin_turn(0.0)
                assert delays(cloud) == {expected}
                trouble.end_turn()
                assert delays(cloud) == {expected}  # whoever waits keeps measuring: nothing changes for no peer's sake
    assert told == ["stairs from epoch 3", "stairs from epoch 1"]
