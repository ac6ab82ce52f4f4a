"""Ranks that wait for a dead one while joining blame it, and not each other for waiting too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from rank_processes import Member

from holdfast.errors import JoinError
from holdfast.link.link import Link

pytestmark = pytest.mark.chaos

VICTIM = 1
Blame = tuple[str, tuple[int, ...]]


def blame_of(member: Member, **settings: Any) -> Blame:
    with pytest.raises(JoinError) as caught:
        member.join(heartbeat_ms=100.0, **settings)
    return type(caught.value).__name__, caught.value.peers


def one_gives_up_earlier(member: Member) -> Blame:
    """Rank 0 says goodbye while rank 2 still waits for a rank that nobody ever hears."""
    if member.rank == VICTIM:
        Link.__init__ = lambda *_args, **_options: die()  # type: ignore[assignment, misc, method-assign]
    return blame_of(member, join_timeout_s=4.0 if member.rank == 2 else 2.0)


def one_has_heard_it(member: Member) -> Blame:
    """Rank 0 hears the victim and goes on to the last exchange; rank 2 is too late to hear it, and stays behind."""
    start, wait_joined = Link.__init__, Link.wait_joined

    def start_too_late(*args: Any, **options: Any) -> None:
        member.hear("dying")
        time.sleep(0.1)
        start(*args, **options)

    def die_when_heard(link: Link, timeout_s: float) -> None:
        member.hear("hears the victim")
        member.say("dying")
        die()

    def tell_when_heard(link: Link, timeout_s: float) -> None:
        while link.snapshot().peers[0].state.name == "joining":
            time.sleep(0.01)
        member.say("hears the victim")
        wait_joined(link, timeout_s)

    if member.rank == 2:
        Link.__init__ = start_too_late  # type: ignore[assignment, method-assign]
    else:
        Link.wait_joined = die_when_heard if member.rank == VICTIM else tell_when_heard  # type: ignore[method-assign]
    return blame_of(member, join_timeout_s=5.0, silence_limit_ms=2_000.0)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still here")


@pytest.mark.parametrize(
    ("job", "errors"),
    [
        (one_gives_up_earlier, ["PeerUnreachable", "PeerUnreachable"]),
        (one_has_heard_it, ["PeerNeverJoined", "PeerUnreachable"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_dead_rank_is_named_and_no_other(
    start_ranks: Callable[..., Any], job: Callable[[Member], Blame], errors: list[str]
) -> None:
    with start_ranks(job, 3) as ranks:
        first, _, last = ranks.results(dead={VICTIM})
    assert [first, last] == [(error, (VICTIM,)) for error in errors]
