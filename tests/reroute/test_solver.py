from __future__ import annotations

import sys

import pytest

from holdfast.reroute import Effort, Worker, plan, uniform_job, violations
from holdfast.reroute.search import Search


def test_the_solver_shortens_the_rerouted_schedule_to_its_optimum() -> None:
    """Spec 5.5: the figure's 36 is a list schedule; the optimum of the fused, synchronous problem is 33."""
    made = plan(uniform_job(4, 3, 6, [(1, 2)]), Effort(seconds=30))
    report = made.searches["rerouted_best"]
    assert (made.rerouted_best.slots, report.found_by, report.status) == (33, "cp-sat", "optimal")
    best = made.rerouted_best
    assert not violations(best.job, best.operations(), best.period, synchronous=True)


def test_the_solver_obeys_a_memory_limit() -> None:
    job = uniform_job(3, 2, 4, [(0, 1)], memory_limit=2)
    schedule, _ = Search(job, Effort(seconds=2, shuffles=0)).run("staggered", split=True, staggered=True)
    assert not violations(job, schedule.operations(), schedule.period, synchronous=False)
    assert max(schedule.peak_memory.values()) <= 2


def test_the_solver_is_never_worse_than_the_list_schedule() -> None:
    job = uniform_job(3, 3, 5, [(0, 1), (1, 2)], memory_limit=3)
    _, plain = Search(job, Effort(seconds=0, shuffles=0)).run("staggered", split=True, staggered=True)
    schedule, report = Search(job, Effort(seconds=1, shuffles=0)).run("staggered", split=True, staggered=True)
    assert report.greedy == plain.greedy
    assert report.bound <= schedule.period <= report.greedy


def test_without_or_tools_the_list_schedule_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    made = plan(uniform_job(4, 3, 6, [Worker(1, 2)]))
    assert made.searches["rerouted_best"].status == "not installed"
    assert made.staggered.slots == 27
