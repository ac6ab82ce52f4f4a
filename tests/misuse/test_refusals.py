"""What spinning found, one by one: each is refused by name."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast.bridge import rendezvous
from holdfast.bridge.tensors import memory_of
from holdfast.config import Config
from holdfast.errors import ConfigError, DeadlineExceeded, HandleClosed
from holdfast.link.barrier import Barrier
from holdfast.link.link import Link
from holdfast.reduce.transpose import TransposeAllReduce

VERBS: dict[str, Callable[[Link], Any]] = {
    "wait_joined": lambda link: link.wait_joined(0.1),
    "snapshot": lambda link: link.snapshot(),
    "gone_peers": lambda link: link.gone_peers(),
    "require_open": lambda link: link.require_open(),
    "publish": lambda link: link.publish(from_operation=0, stage_ms=1.0, usual_stage_ms=1.0, credit=0),
    "send_note": lambda link: link.send_note(1, 5, b"x", 0.1),
    "finish_note": lambda link: link.finish_note(1, 1, 0.1),
    "receive_note": lambda link: link.receive_note(5, 0.1),
    "discard_notes": lambda link: link.discard_notes(5),
    "reduce": lambda link: TransposeAllReduce(link).start(memory_of(torch.ones(8))),
}


@pytest.fixture
def links() -> Iterator[list[Link]]:
    """Two ranks of one job in this process."""
    store = dist.HashStore()

    def join(rank: int) -> Link:
        config = Config(join_timeout_s=30.0, silence_limit_ms=30_000.0)
        return rendezvous.join(store, rank=rank, num_ranks=2, config=config, step_bytes=0)

    with ThreadPoolExecutor(2) as threads:
        joined = list(threads.map(join, range(2)))
    yield joined
    for link in joined:
        link.close()


@pytest.mark.parametrize("verb", VERBS)
def test_a_closed_link_refuses_everything_by_name(links: list[Link], verb: str) -> None:
    links[0].close()
    with pytest.raises(HandleClosed):
        VERBS[verb](links[0])


def test_closing_ends_the_waits_of_other_threads_by_name(links: list[Link]) -> None:
    link = links[0]
    reducer = TransposeAllReduce(link)
    pending = reducer.start(memory_of(torch.ones(1_000)), exact=True)  # the other rank never calls
    waits = [
        lambda: link.receive_note(5, 30.0),
        lambda: link.finish_note(1, 12_345, 30.0),
        lambda: reducer.finish(pending),
        lambda: Barrier(link).wait(30_000.0),
    ]
    under_way = threading.Barrier(len(waits) + 1)

    def begin(wait: Callable[[], Any]) -> Any:
        under_way.wait(30)
        return wait()

    with ThreadPoolExecutor(len(waits)) as threads:
        answers = [threads.submit(begin, wait) for wait in waits]
        under_way.wait(30)
        link.close()
        for answer in answers:
            assert isinstance(answer.exception(timeout=30), HandleClosed)


@pytest.mark.parametrize("duration", [math.nan, math.inf, -math.inf])
def test_a_wait_without_an_end_is_refused(links: list[Link], duration: float) -> None:
    link = links[0]
    for call in (
        lambda: link.wait_joined(duration),
        lambda: link.send_note(1, 5, b"x", duration),
        lambda: link.finish_note(1, 1, duration),
        lambda: link.receive_note(5, duration),
        lambda: link.publish(from_operation=0, stage_ms=duration, usual_stage_ms=1.0, credit=0),
        lambda: Barrier(link).wait(duration),
    ):
        with pytest.raises(ValueError, match="finite"):
            call()


def test_a_ticket_never_given_out_runs_into_its_deadline(links: list[Link]) -> None:
    with pytest.raises(DeadlineExceeded):
        links[0].finish_note(1, 12_345, -1.0)


# ------------------------------------------------------------------------------------- the state of a handle


def load(member: Any, state: Any) -> str:
    model = DistributedDataParallel(nn.Linear(2, 2))
    handle = holdfast.attach(model)
    try:
        handle.load_state_dict(state)
    except ConfigError as error:
        return str(error)
    finally:
        handle.detach()
    return "taken"


WRONG_STATES = [None, [], {}, {"version": 3}] + [
    {"version": 2, "stage_ms": value, "num_bytes": 0} for value in (math.nan, math.inf, 0.0, -1.0, "50", [], True)
]


def load_all(member: Any) -> list[str]:
    return [load(member, state) for state in WRONG_STATES]


def test_a_state_that_no_handle_gave_is_refused(run_ranks: Callable[..., list[Any]]) -> None:
    answers = run_ranks(load_all, 1, group=True)[0]
    for state, answer in zip(WRONG_STATES, answers, strict=True):
        assert "this state" in answer, state


def test_a_state_without_a_bound_is_taken(run_ranks: Callable[..., list[Any]]) -> None:
    assert run_ranks(load, 1, {"version": 2, "stage_ms": None, "num_bytes": 0}, group=True) == ["taken"]


@pytest.mark.parametrize("deadline_ms", [0.0, -1.0])
def test_a_barrier_whose_deadline_has_passed_is_refused(links: list[Link], deadline_ms: float) -> None:
    with pytest.raises(ValueError, match="passed"):
        Barrier(links[0]).wait(deadline_ms)


def test_a_wait_ends_by_the_clock_beside_threads_that_hold_the_interpreter(links: list[Link]) -> None:
    over = threading.Event()

    def busy() -> None:
        while not over.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=busy) for _ in range(6)]
    for thread in threads:
        thread.start()
    started = time.monotonic()
    try:
        assert links[0].receive_note(77, 2.0) is None
    finally:
        over.set()
        for thread in threads:
            thread.join(10)
    # Counted in slices it took twice as long; one slice and a few turns of the interpreter are fair.
    assert time.monotonic() - started < 3.5
