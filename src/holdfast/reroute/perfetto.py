"""Plans as a trace for ui.perfetto.dev or chrome://tracing.

One process per schedule and pipeline, one thread per stage; arrows lead from a re-routed forward's input to it, so
the detour can be followed. A tick is shown as a microsecond, or as what the profile says it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.reroute.schedule import Operation, Schedule

_NAMES = {"F": "forward", "I": "input grad", "W": "weight grad", "B": "backward", "O": "all-reduce + optimizer"}
_COLOURS = {"F": "good", "I": "bad", "W": "terrible", "B": "yellow", "O": "grey"}


def perfetto_trace(schedules: Mapping[str, Schedule], tick_ns: int | None = None) -> dict[str, Any]:
    """A Chrome trace-event document of several schedules of one job."""
    tick_us = (tick_ns if tick_ns is not None else 1000) / 1000
    events: list[dict[str, Any]] = []
    for number, (name, schedule) in enumerate(schedules.items()):
        events += _schedule_events(number, name, schedule, tick_us)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _schedule_events(number: int, name: str, schedule: Schedule, tick_us: float) -> list[dict[str, Any]]:
    shape = schedule.job.shape
    base = number * shape.pipelines
    events: list[dict[str, Any]] = []
    for pipeline in range(shape.pipelines):
        label = f"{name}: pipeline {pipeline}"
        events.append(_named("process_name", base + pipeline, 0, {"name": label}))
        events.append(_named("process_sort_index", base + pipeline, 0, {"sort_index": base + pipeline}))
    for worker in shape.workers():
        label = f"stage {worker.stage}" + (" (dead)" if worker in schedule.job.failed else "")
        events.append(_named("thread_name", base + worker.pipeline, worker.stage, {"name": label}))
    forwards: dict[tuple[int, int | None, int], Operation] = {}
    for operation in schedule.operations():
        events.append(_slice(base, operation, tick_us))
        if operation.op == "F":
            forwards[operation.pipeline, operation.microbatch, operation.worker.stage] = operation
    for (pipeline, microbatch, stage), forward in forwards.items():
        if forward.is_rerouted and stage > 0:
            source = forwards[pipeline, microbatch, stage - 1]
            flow = len(events)
            events.append(_arrow("s", base, source, (source.end - 0.5) * tick_us, flow))
            events.append(_arrow("f", base, forward, (forward.start + 0.5) * tick_us, flow))
    return events


def _named(kind: str, process: int, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": args}


def _slice(base: int, operation: Operation, tick_us: float) -> dict[str, Any]:
    number = "" if operation.microbatch is None else f" {operation.pipeline}.{operation.microbatch}"
    return {
        "ph": "X",
        "name": f"{operation.op}{number}",
        "cat": "rerouted" if operation.is_rerouted else "own",
        "cname": _COLOURS[operation.op],
        "pid": base + operation.worker.pipeline,
        "tid": operation.worker.stage,
        "ts": operation.start * tick_us,
        "dur": operation.duration * tick_us,
        "args": {
            "operation": _NAMES[operation.op],
            "pipeline": operation.pipeline,
            "microbatch": operation.microbatch,
            "rerouted": operation.is_rerouted,
        },
    }


def _arrow(phase: str, base: int, operation: Operation, time: float, flow: int) -> dict[str, Any]:
    event: dict[str, Any] = {
        "ph": phase,
        "name": "re-routed",
        "cat": "reroute",
        "id": flow,
        "pid": base + operation.worker.pipeline,
        "tid": operation.worker.stage,
        "ts": time,
    }
    if phase == "f":
        event["bp"] = "e"
    return event
