"""Random jobs for property tests, and a slow second opinion on schedules that shares nothing with the package."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st

from holdfast.reroute import Effort, Job, Shape, StageCost, Worker

# Enough for a plan, too little for the solver to matter: property tests are about validity.
QUICK = Effort(seconds=0, shuffles=4)


@st.composite
def jobs(draw: st.DrawFn, max_stages: int = 4, max_pipelines: int = 4, max_microbatches: int = 5) -> Job:
    """Any shape, uneven times and memory, failures that leave every stage one worker."""
    stages = draw(st.integers(1, max_stages))
    pipelines = draw(st.integers(1, max_pipelines))
    microbatches = draw(st.integers(1, max_microbatches))
    costs = tuple(draw(stage_costs()) for _ in range(stages))
    failed = set()
    for stage in range(stages):
        survivor = draw(st.integers(0, pipelines - 1))
        others = [k for k in range(pipelines) if k != survivor]
        failed |= {Worker(k, stage) for k in (draw(st.lists(st.sampled_from(others), unique=True)) if others else [])}
    return Job(Shape(stages, pipelines, microbatches), costs, frozenset(failed))


@st.composite
def stage_costs(draw: st.DrawFn) -> StageCost:
    activation, stash = draw(st.integers(1, 4)), draw(st.integers(0, 5))
    state = draw(st.integers(0, 3))
    limit = draw(st.none() | st.integers(max(activation, stash), 4 * max(activation, stash)))
    return StageCost(
        forward=draw(st.integers(1, 5)),
        input_grad=draw(st.integers(1, 5)),
        weight_grad=draw(st.integers(1, 5)),
        optimizer=draw(st.integers(1, 6)),
        transfer=draw(st.integers(0, 3)),
        activation=activation,
        weight_stash=stash,
        state=state,
        memory_limit=None if limit is None else limit + state,
    )


def second_opinion(document: dict[str, Any]) -> list[str]:
    """Everything wrong with a plan's JSON, found by walking through three iterations tick by tick.

    Knows nothing but the JSON. Slow and simple on purpose.
    """
    wrong: list[str] = []
    shape, costs, period = document["shape"], document["costs"], document["period"]
    stages, pipelines, microbatches = shape["stages"], shape["pipelines"], shape["microbatches"]
    dead = {tuple(worker) for worker in document["failed"]}
    counts: Counter[tuple[Any, ...]] = Counter()
    done: dict[tuple[Any, ...], tuple[int, tuple[int, int]]] = {}
    doing: Counter[tuple[tuple[int, int], int]] = Counter()
    holding: Counter[tuple[tuple[int, int], int]] = Counter()
    begun: dict[tuple[Any, ...], int] = {}
    for op in document["ops"]:
        worker, kind = tuple(op["worker"]), op["op"]
        if worker in dead:
            wrong.append(f"dead {worker}")
        stage, end = worker[1], op["start"] + op["duration"]
        for parts in {"B": "IW"}.get(kind, kind):
            key = (parts, worker if kind == "O" else (op["pipeline"], op["microbatch"]), stage)
            counts[key] += 1
            done[key] = (end, worker)
            begun[key] = op["start"]
        for iteration in range(3):
            for tick in range(op["start"], end):
                doing[worker, tick + iteration * period] += 1
    wrong += [f"{worker} does two things at {tick}" for (worker, tick), count in doing.items() if count > 1]
    keys = [(x, (k, m), s) for x in "FIW" for k in range(pipelines) for m in range(microbatches) for s in range(stages)]
    if wrong_counts := [key for key in keys if counts[key] != 1]:
        return [*wrong, f"not once: {wrong_counts}"]
    for k in range(pipelines):
        for m in range(microbatches):
            for s in range(stages):
                f, i, w = (("F", (k, m), s), ("I", (k, m), s), ("W", (k, m), s))
                if len({done[key][1] for key in (f, i, w)}) > 1 or done[f][1][1] != s:
                    wrong.append(f"{(k, m, s)} on {[done[key][1] for key in (f, i, w)]}")
                if s and begun[f] < done["F", (k, m), s - 1][0] + costs[s - 1]["transfer"]:
                    wrong.append(f"forward {(k, m, s)} too early")
                needs = done[f][0] if s == stages - 1 else done["I", (k, m), s + 1][0] + costs[s]["transfer"]
                if begun[i] < max(needs, done[f][0]):
                    wrong.append(f"gradient {(k, m, s)} too early")
                fused = begun[i] == begun[w]
                if not fused and begun[w] < done[i][0]:
                    wrong.append(f"weight gradient {(k, m, s)} too early")
                for tick in range(begun[f], done[i][0]):
                    holding[done[f][1], tick] += costs[s]["activation"]
                for tick in range(done[i][0], done[w][0]):
                    holding[done[f][1], tick] += costs[s]["weight_stash"]
    for (worker, tick), held in holding.items():
        limit = costs[worker[1]]["memory_limit"]
        if limit is not None and held + costs[worker[1]]["state"] > limit:
            wrong.append(f"{worker} holds {held} at {tick}")
    for k in range(pipelines):
        for s in range(stages):
            if (k, s) in dead:
                continue
            ends = [end for (kind, _, at), (end, _) in done.items() if kind != "O" and at == s]
            if counts["O", (k, s), s] != 1 or begun["O", (k, s), s] < max(ends):
                wrong.append(f"optimizer of {(k, s)}")
            firsts = [op["start"] for op in document["ops"] if tuple(op["worker"]) == (k, s)]
            steps = [end for (kind, _, at), (end, _) in done.items() if kind == "O" and at == s]
            if min(firsts) + period < max(steps):
                wrong.append(f"{(k, s)} starts the next iteration before its stage's step")
    return wrong
