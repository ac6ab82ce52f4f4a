"""Gantt page, replay page, Perfetto trace and torch's text form say what the schedules say."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter

import pytest

from holdfast.errors import PlanError
from holdfast.reroute import Effort, Plan, plan, uniform_job
from holdfast.reroute.action_text import action_rows, action_text
from holdfast.reroute.availability import load_trace
from holdfast.reroute.gantt import MAX_WORKERS, gantt_figure, gantt_html, shown_workers
from holdfast.reroute.perfetto import perfetto_trace
from holdfast.reroute.replay import replay
from holdfast.reroute.replay_picture import replay_figure, replay_html, windowed

FETCHES = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="')


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(uniform_job(4, 3, 6, [(1, 2)]))


def test_the_gantt_page_has_every_operation_and_marks_detours_and_the_dead(made: Plan) -> None:
    figure = gantt_figure(made)
    counts = Counter()
    for bar in figure.data:
        counts[bar.name] += len(bar.y)
    steps = made.steps.values()
    assert counts["forward"] + counts["forward, re-routed"] == 4 * 72
    assert counts["forward, re-routed"] == 3 * 6
    assert counts["dead worker"] == 3
    assert counts["all-reduce + optimizer"] == sum(len(step.work.workers) for step in steps)
    titles = " ".join(annotation.text for annotation in figure.layout.annotations)
    assert all(f"{step.slots} slots" in titles for step in steps)


def test_pages_need_no_network(made: Plan) -> None:
    played = replay(load_trace("spot-24"), uniform_job(4, 6, 5))
    for page in (gantt_html(made), replay_html(played)):
        assert "<title>Holdfast" in page
        assert not FETCHES.search(page)


def test_a_large_plan_shows_the_workers_that_matter() -> None:
    big = plan(uniform_job(8, 12, 8, [(3, 5)]), Effort(seconds=0, shuffles=0, fuse=False))
    shown = shown_workers(big)
    assert len(shown) <= MAX_WORKERS < 96
    assert big.job.failed <= set(shown)


def test_the_replay_page_draws_every_policy() -> None:
    played = replay(load_trace("spot-24"), uniform_job(4, 6, 5))
    names = {trace.name for trace in replay_figure(played).data}
    assert {run.name for run in played.runs} <= names
    for run in played.runs:
        points = windowed(run)
        mean = sum(rate for _, rate in points) / len(points)
        whole = sum((one.end_s - one.begin_s) * one.rate for one in run.stretches) / played.trace.seconds
        assert mean == pytest.approx(whole)


def test_without_plotly_the_error_says_what_to_install(made: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(PlanError, match="pip install"):
        gantt_html(made)


def test_the_perfetto_trace_holds_every_operation_once(made: Plan) -> None:
    events = json.loads(json.dumps(perfetto_trace(made.steps)))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == sum(len(list(step.operations())) for step in made.steps.values())
    arrows = Counter(event["ph"] for event in events if event["ph"] in "sf")
    assert arrows["s"] == arrows["f"] == 3 * 6
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert "staggered: pipeline 1" in names
    dead = [event for event in events if event["name"] == "thread_name" and "dead" in event["args"]["name"]]
    assert len(dead) == 3
    assert max(event["ts"] + event["dur"] for event in slices) == 39.0
    longer = perfetto_trace({"staggered": made.staggered}, tick_ns=5000)["traceEvents"]
    assert max(event["ts"] for event in longer if event["ph"] == "X") == 5 * 29


def test_the_text_form_has_every_action_of_every_worker(made: Plan) -> None:
    rows = action_rows(made.staggered)
    assert len(action_text(made.staggered).splitlines()) == 12
    assert [row for worker, row in rows.items() if worker in made.job.failed] == [[]]
    actions = [action for row in rows.values() for action in row]
    assert all(re.fullmatch(r"[0-3][FIWB]\d+", action) for action in actions)
    forwards = Counter(action for action in actions if "F" in action)
    assert forwards == Counter(f"{stage}F{number}" for stage in range(4) for number in range(18))


@pytest.mark.slow
def test_torch_reads_the_text_form(made: Plan) -> None:
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    for row in action_rows(made.staggered).values():
        for action in row:
            assert str(schedules._Action.from_str(action)) == action
