"""Every kind of fault does what it says to real processes and a real network, when it says so, and is undone."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.lab.cloud import Cloud
from holdfast.lab.fault import Fault
from holdfast.lab.injector import CPU_PERIOD_S, Injector
from holdfast.lab.launch import Workers
from holdfast.lab.marks import EVENTS
from lab.lab_processes import needs_lab

pytestmark = needs_lab

SLEEP = ["sleep", "60"]
FREEZE = Fault("freeze", host=1, at_step=None, at_s=1.0, for_s=2.0, ratio=1.0)


def is_stopped(workers: Workers, rank: int) -> bool:
    """By the kernel's word. A signal takes effect a moment after it was sent."""
    stat = Path(f"/proc/{workers.workers[rank].process.pid}/stat")
    time.sleep(0.05)
    return stat.read_text().rpartition(") ")[2][0] == "T"


def network_of(cloud: Cloud, host: int) -> tuple[bool, bool, float]:
    port = cloud.conditions.ports[host]
    return port.down, port.frozen, port.uplink_bits_per_s


@pytest.mark.parametrize(
    ("kind", "ratio", "during"),
    [
        ("freeze", 1.0, (False, True, 100e6)),
        ("link_down", 1.0, (True, False, 100e6)),
        ("slow_nic", 8.0, (False, False, 12.5e6)),
    ],
)
def test_a_network_fault_begins_and_ends_on_its_host(cloud: Cloud, kind: str, ratio: float, during: object) -> None:
    told: list[tuple[str, bool]] = []
    with Workers(cloud, SLEEP) as workers:
        fault = replace(FREEZE, kind=kind, ratio=ratio)  # type: ignore[arg-type]
        injector = Injector([fault], workers, lambda fault, begins: told.append((fault.kind, begins)))
        before = network_of(cloud, 1)
        for now_s, expected, following in ((0.9, before, 1.0), (1.1, during, 3.1), (3.0, during, 3.1)):
            injector.advance(now_s)
            assert network_of(cloud, 1) == expected, now_s
            assert injector.next_s() == pytest.approx(following)
        assert network_of(cloud, 0) == (False, False, 100e6)
        injector.advance(3.2)
        assert network_of(cloud, 1) == before
        assert injector.next_s() is None
    assert told == [(kind, True), (kind, False)]


def test_a_stopped_process_goes_on_only_when_nothing_holds_it(cloud: Cloud) -> None:
    stop = Fault("stop", host=0, at_step=None, at_s=0.0, for_s=1.0, ratio=1.0)
    with Workers(cloud, SLEEP) as workers:
        injector = Injector([stop, replace(stop, at_s=0.5)], workers)
        for now_s, stopped in ((0.0, True), (0.5, True), (1.1, True), (1.6, False)):
            injector.advance(now_s)
            assert is_stopped(workers, 0) == stopped, now_s
        assert not is_stopped(workers, 1)


def test_a_slow_processor_runs_its_share_of_every_period(cloud: Cloud) -> None:
    slow = Fault("slow_cpu", host=1, at_step=None, at_s=0.0, for_s=1.0, ratio=3.0)
    with Workers(cloud, SLEEP) as workers:
        injector = Injector([slow], workers)
        stopped_s = 0.0
        now_s, halves = 0.0, []
        while now_s < 0.9:
            injector.advance(now_s)
            next_s = injector.next_s()
            assert next_s is not None
            stopped = "slow_cpu-1" in injector._holds[1]
            stopped_s += (next_s - now_s) * stopped
            halves.append(stopped)
            now_s = next_s
        assert stopped_s / now_s == pytest.approx(2 / 3, abs=0.05)
        assert halves[:4] == [True, False, True, False]
        assert len(halves) == pytest.approx(0.9 / CPU_PERIOD_S * 2, abs=2)
        injector.advance(1.1)
        assert not is_stopped(workers, 1)


def test_a_fault_at_a_step_waits_for_that_hosts_own_step(cloud: Cloud) -> None:
    script = f"echo step $((10 + RANK)) >&${EVENTS}; sleep 60"
    kill = Fault("kill", host=1, at_step=11, at_s=None, for_s=None, ratio=1.0)
    with Workers(cloud, ["bash", "-c", script]) as workers:
        injector = Injector([kill, replace(kill, host=0)], workers)
        pump_until(workers, lambda: all(worker.position for worker in workers.workers), 10)
        injector.advance(0.0)
        pump_until(workers, lambda: 1 in workers.endings, 10)
        assert workers.endings[1].how == "ended by SIGKILL"
        assert workers.alive == [0]  # which is at step 10 yet
        injector.advance(1.0)


def test_a_slow_backward_pass_is_told_to_its_rank_alone(cloud: Cloud) -> None:
    slow = Fault("slow_backward", host=0, at_step=None, at_s=0.0, for_s=1.0, ratio=3.0)
    with Workers(cloud, SLEEP) as workers:
        injector = Injector([slow], workers)
        paces = []
        for now_s in (0.0, 1.1):
            injector.advance(now_s)
            paces.append([_pace(workers, rank) for rank in (0, 1)])
    assert paces == [[3.0, 1.0], [1.0, 1.0]]


def _pace(workers: Workers, rank: int) -> float:
    return float(struct.unpack("d", os.pread(workers.workers[rank]._pace, 8, 0))[0])


def pump_until(workers: Workers, holds: Callable[[], bool], limit_s: float) -> None:
    give_up = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < give_up
        workers.pump(0.1)
