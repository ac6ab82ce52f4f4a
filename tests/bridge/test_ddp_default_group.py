"""A steady-state step over Holdfast: it touches no default group, and a rank that is late holds nobody."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_models import AMPLE, SLACK_MS, inputs_of, normalised, perceptron, wrapped
from rank_processes import Member

import holdfast


@contextlib.contextmanager
def poisoned_group() -> Iterator[list[str]]:
    """Every collective of the default group, from Python or from DDP's C++ side, is noted and refused."""
    called: list[str] = []

    def refuse(name: str) -> Callable[..., Any]:
        def refused(*_args: Any, **_options: Any) -> Any:
            called.append(name)
            raise AssertionError(f"{name} was called")

        return refused

    names = ["all_reduce", "broadcast", "all_gather", "reduce", "barrier", "_broadcast_coalesced"]
    saved = {name: getattr(dist, name) for name in names}
    try:
        for name in names:
            setattr(dist, name, refuse(name))
        yield called
    finally:
        for name, function in saved.items():
            setattr(dist, name, function)


def collectives_of_a_step(member: Member, attach: bool) -> list[str]:
    """What the profiler saw of the process group in a steady-state step: it sees C++ calls too."""
    model = wrapped(normalised)
    handle = holdfast.attach(model, **AMPLE) if attach else None
    for step in range(2):
        model(inputs_of(member.rank, step)).sum().backward()
    poison = poisoned_group() if attach else contextlib.nullcontext()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, poison:
        for step in range(2):
            model(inputs_of(member.rank, step)).sum().backward()
    if handle is not None:
        handle.detach()
    names = {event.key for event in profile.key_averages()}
    return sorted(name for name in names if name.startswith(("gloo:", "c10d::", "record_param_comms")))


@pytest.mark.parametrize("attach", [True, False], ids=["attached", "plain-ddp-is-seen"])
def test_no_steady_state_step_touches_the_default_group(run_ranks, attach: bool) -> None:
    for names in run_ranks(collectives_of_a_step, 2, attach, group=True):
        assert bool(names) is not attach, names


def train_beside_a_stall(member: Member, deadline_ms: float) -> list[float]:
    model = wrapped(normalised)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = holdfast.attach(
        model, deadline_ms=deadline_ms, exact_deadline_ms=10_000.0, silence_limit_ms=8_000.0, join_timeout_s=20.0
    )
    elapsed_ms, steps_left, step = [], 3, 0
    while steps_left > 0:
        started = time.monotonic()
        optimizer.zero_grad()
        model(inputs_of(member.rank, step)).square().mean().backward()
        optimizer.step()
        elapsed_ms.append((time.monotonic() - started) * 1e3)
        step += 1
        if step == 3:
            member.say(f"going/{member.rank}")
        steps_left -= member.store.check(["said/stop"])
    handle.detach()
    return elapsed_ms


def test_a_batchnorm_model_with_a_stalled_rank_keeps_its_deadlines(start_ranks) -> None:
    deadline_ms, stall_s = 100.0, 1.5
    with start_ranks(train_beside_a_stall, 3, deadline_ms, group=True) as ranks:
        for rank in range(3):
            ranks.hear(f"going/{rank}")
        with ranks.stopped(1):
            time.sleep(stall_s)
        ranks.say("stop")
        results = ranks.results()
    for rank in (0, 2):
        # A step waits for the buffers of the step before and for its own bucket: two bounded operations.
        assert max(results[rank]) <= 2 * deadline_ms + SLACK_MS
        # Once: whoever leaves the others without an answer for a stage is not waited for again until it gives one. Some of
        # that stage may have passed in the step before.
        both_ms = [before + after for before, after in itertools.pairwise(results[rank])]
        assert max(both_ms) >= deadline_ms / 2, "the stall was not felt"


def late_backward(member: Member, deadline_ms: float) -> tuple[float, list[tuple[tuple[int, int], ...]]]:
    model = wrapped(perceptron)
    handle = holdfast.attach(model, deadline_ms=deadline_ms, join_timeout_s=20.0)
    model(inputs_of(member.rank, 0)).sum().backward()
    member.barrier()
    loss = model(inputs_of(member.rank, 1)).sum()
    if member.rank == 1:
        time.sleep(1.0)
    started = time.monotonic()
    loss.backward()
    elapsed_ms = (time.monotonic() - started) * 1e3
    missing = [outcome.missing for outcome in handle.outcomes()[-1:]]
    member.barrier()
    handle.detach()
    return elapsed_ms, missing


def test_a_backward_pass_one_second_late_does_not_hold_the_others(run_ranks) -> None:
    results = run_ranks(late_backward, 3, 150.0, group=True)
    for elapsed_ms, missing in results:
        assert elapsed_ms < 150.0 + SLACK_MS
        assert missing == [()]
