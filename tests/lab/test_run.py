"""A job with faults and a schedule, from start to end."""

from __future__ import annotations

from holdfast.lab.cloud import Cloud
from holdfast.lab.fault import Fault
from holdfast.lab.launch import Workers
from holdfast.lab.marks import EVENTS
from holdfast.lab.run import Conductor, run_job
from holdfast.lab.schedule import Phase, Schedule
from lab.lab_processes import needs_lab

pytestmark = needs_lab

STAIRS = Schedule("stairs", "", "epoch", (Phase(1, delay_ms=1.0), Phase(3, delay_ms=5.0, rate_ratio=0.5)))


def delays(cloud: Cloud) -> set[float]:
    return {path.delay_ms for path in cloud.conditions.paths.values()}


def test_the_network_follows_the_epochs_that_ranks_announce(cloud: Cloud) -> None:
    seen: list[tuple[float, set[float], float]] = []
    conductor = Conductor(
        STAIRS, cloud, on_phase=lambda phase: seen.append((phase.at, delays(cloud), cloud.hosts[0].bits_per_s))
    )
    script = f"for epoch in 1 2 3; do echo epoch $epoch >&${EVENTS}; sleep 0.15; done"
    with Workers(cloud, ["bash", "-c", script]) as workers:
        endings = run_job(workers, conductor=conductor, limit_s=20)
    assert [ending.code for ending in endings] == [0, 0]
    assert seen == [(1, {1.0}, 100e6), (3, {5.0}, 50e6)]


def test_epochs_by_the_clock_for_commands_that_announce_none(cloud: Cloud) -> None:
    seen: list[float] = []
    conductor = Conductor(STAIRS, cloud, unit_s=0.1, on_phase=lambda phase: seen.append(phase.at))
    with Workers(cloud, ["sleep", "0.6"]) as workers:
        run_job(workers, conductor=conductor, limit_s=20)
    assert seen == [1, 3]


def test_faults_strike_and_the_limit_ends_the_rest(cloud: Cloud) -> None:
    kill = Fault("kill", host=1, at_step=None, at_s=0.1, for_s=None, ratio=1.0)
    with Workers(cloud, ["sleep", "60"]) as workers:
        endings = run_job(workers, faults=[kill], limit_s=0.6)
        assert [(ending.rank, ending.how) for ending in endings] == [(1, "ended by SIGKILL")]
        assert workers.alive == [0]
