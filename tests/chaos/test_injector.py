"""That the faults are what they say, hit the moment they name, and that the checks can fail."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rank_processes import Member

from chaos import cases
from chaos.cases import MOMENTS, SHAPES, Case
from chaos.expectations import check
from chaos.footprint import Footprint
from chaos.rank_in_a_case import Call, Report, take_part
from chaos.strikes import EXIT_CODE, Injector, Struck, attend, hold_gil, state_of, ticks_while

pytestmark = pytest.mark.chaos

CASES = cases.load()


def a_case(fault: str, moment: str = "joined", shape: str = "bounded") -> Case:
    return next(c for c in CASES if (c.fault.name, c.moment) == (fault, moment) and c.shape in (shape, c.shape))


# ---------------------------------------------------------------------------------------------------- the data


def test_every_moment_of_every_shape_is_hit_at_every_victim() -> None:
    killed = {(c.moment, c.victim, c.shape) for c in CASES if c.fault.name == "kill" and c.ranks == 3}
    assert killed == set(itertools.product(MOMENTS, range(3), SHAPES))


def test_every_fault_is_done_at_every_moment() -> None:
    faults = {case.fault.name for case in CASES} - {"exit", "exit-at-once"}
    assert {(c.fault.name, c.moment) for c in CASES} >= set(itertools.product(faults, MOMENTS))
    for name in ("exit", "exit-at-once"):  # before the first call, of joining and of an all-reduce
        exits = {(case.moment, case.shape) for case in CASES if case.fault.name == name}
        assert exits == set(itertools.product(("before-connect", "joined"), SHAPES))


# ---------------------------------------------------------------------------------------------------- what faults do


def be_struck(member: Member, case: Case, beats_file: str) -> dict[str, Any]:
    """A victim with a thread whose every beat its parent can see."""
    injector = Injector(member, dataclasses.replace(case, victim=0))
    with Path(beats_file).open("r+b") as file:
        beats = mmap.mmap(file.fileno(), 0)

    def beat() -> None:
        for number in itertools.count(1):
            beats[:8] = number.to_bytes(8, "little")
            time.sleep(0.005)

    threading.Thread(target=beat, daemon=True).start()
    time.sleep(0.1)
    injector.reached(case.moment)
    return {name: where.frames for name, where in injector.passed.items()}


@pytest.fixture
def beats_file(tmp_path: Path) -> Path:
    path = tmp_path / "beats"
    path.write_bytes(bytes(8))
    return path


def strike_alone(start_ranks: Callable[..., Any], case: Case, beats_file: Path) -> Struck:
    with start_ranks(be_struck, 1, case, str(beats_file)) as ranks:
        struck = attend(ranks, dataclasses.replace(case, victim=0))
        (passed,) = ranks.results(dead={0} if case.fault.is_fatal else ())
    assert struck.moment == case.moment
    assert "be_struck" in struck.frames
    assert case.fault.is_fatal or list(passed) == [case.moment]
    return struck


@pytest.mark.parametrize(
    ("fault", "exit_code"),
    [
        ("kill", -signal.SIGKILL),
        ("terminate", -signal.SIGTERM),
        ("segfault", -signal.SIGSEGV),
        ("exit", EXIT_CODE),
        ("exit-at-once", EXIT_CODE),
    ],
)
def test_a_fatal_fault_ends_the_process_as_it_says(
    start_ranks: Callable[..., Any], beats_file: Path, fault: str, exit_code: int
) -> None:
    case = a_case(fault)
    assert case.fault.exit_code == exit_code
    assert strike_alone(start_ranks, case, beats_file).exit_code == exit_code


def test_a_stopped_process_is_stopped_for_as_long_as_it_says(start_ranks: Callable[..., Any], beats_file: Path) -> None:
    case = dataclasses.replace(a_case("stop-700ms"), victim=0)
    with start_ranks(be_struck, 1, case, str(beats_file)) as ranks:
        seen: list[tuple[str, bytes]] = []
        watching = threading.Thread(target=lambda: seen.extend(watch(ranks.processes[0].pid, beats_file)))
        watching.start()
        struck = attend(ranks, case)
        watching.join()
        ranks.results()
    assert struck.paused_s >= 0.7
    stopped = [beat for state, beat in seen if state == "T"]
    assert len(stopped) > 10
    assert len(set(stopped)) == 1, "something ran in a stopped process"
    assert len({beat for state, beat in seen if state != "T"}) > 3, "nothing ran in one that was not"


def watch(pid: int, beats_file: Path) -> list[tuple[str, bytes]]:
    """Its state and its beats, until it has been stopped and goes on."""
    seen, ends = [], time.monotonic() + 10.0
    while time.monotonic() < ends:
        state = state_of(pid)
        beat = beats_file.read_bytes()
        # A beat read just after the process was continued is not one of the stop.
        seen.append((state if state == state_of(pid) else "?", beat))
        if state != "T" and any(earlier == "T" for earlier, _ in seen[:-3]):
            break
        time.sleep(0.01)
    return seen


def test_a_held_gil_lets_no_other_thread_run(start_ranks: Callable[..., Any], beats_file: Path) -> None:
    assert strike_alone(start_ranks, a_case("hold-gil-500ms"), beats_file).ticks <= 1


def test_a_gil_that_is_not_held_would_be_noticed() -> None:
    assert ticks_while(lambda: time.sleep(0.5)) > 10
    assert ticks_while(lambda: ctypes.CDLL(None).usleep(500_000)) > 10
    assert ticks_while(lambda: hold_gil(0.5)) <= 1


def join_and_exit(member: Member, case: Case) -> str:
    link = member.join(silence_limit_ms=1_000.0, heartbeat_ms=100.0)
    Injector(member, case).reached("joined")
    gives_up = time.monotonic() + 20.0
    while (state := link.snapshot().peers[0].state.name) in ("alive", "joining") and time.monotonic() < gives_up:
        time.sleep(0.01)
    return state


@pytest.mark.parametrize(("fault", "state"), [("exit", "left"), ("exit-at-once", "dead")])
def test_only_an_orderly_exit_says_goodbye(start_ranks: Callable[..., Any], fault: str, state: str) -> None:
    case = dataclasses.replace(a_case(fault), victim=1)
    with start_ranks(join_and_exit, 2, case) as ranks:
        attend(ranks, case)
        assert ranks.results(dead={1}) == [state, None]


# ---------------------------------------------------------------------------------------------------- where they hit

NOBODY = -1
IN_A_BUCKET = {"bounded": {"step", "starting"}, "exact": {"step", "starting"}, "ddp": {"step", "_hook", "starting"}}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_moment_is_passed_in_order_and_inside_what_it_names(start_ranks: Callable[..., Any], shape: str) -> None:
    case = dataclasses.replace(a_case("stop-100ms"), shape=shape, victim=NOBODY)
    with start_ranks(take_part, case.ranks, case, group=shape == "ddp") as ranks:
        ranks.say("over")  # nothing will happen
        reports = ranks.results()
    for report in reports:
        assert list(report.moments) == list(MOMENTS)
        inside = {moment: set(passed.frames) for moment, passed in report.moments.items()}
        assert not inside["before-connect"] & {"join", "attach"}
        assert inside["handshake"] >= {"join", "waiting_to_join"}
        for moment in ("first-bucket", "middle-bucket", "last-bucket"):
            assert inside[moment] >= IN_A_BUCKET[shape]
        assert "backward" in inside["first-bucket"] or shape != "ddp"
        assert not inside["optimizer"] & {"backward", "starting"}
        assert inside["hand-over"] >= {"hand_over", "equalise", "sending"}
        with_link = [moment for moment, passed in report.moments.items() if passed.has_socket]
        assert with_link == list(MOMENTS[1:])


# ---------------------------------------------------------------------------------------------------- checks can fail

STRUCK = Struck("middle-bucket", ("take_part",), exit_code=-9)


def killed_in_the_middle() -> tuple[Case, list[Report | None]]:
    case = next(c for c in CASES if c.name == "kill.middle-bucket.middle.bounded")
    step = Call("step", 0.3, 0.3)
    first = Report([step, Call("hand over", 0.1, 10.0, "PeerDead", (1,))], late={1}, dead={1}, late_at_last={1})
    return case, [first, None, Report([step], late={1}, dead={1}, late_at_last={1})]


def test_the_checks_accept_what_is_right() -> None:
    case, reports = killed_in_the_middle()
    check(case, STRUCK, reports)


@pytest.mark.parametrize(
    "wrong",
    [
        {"calls": [Call("step", 9.0, 0.3)]},
        {"calls": [Call("step", 0.3, 0.3, "PeerDead", (1,))]},
        {"calls": [Call("hand over", 0.1, 10.0, "PeerDead", (0,))]},
        {"calls": [Call("hand over", 0.1, 10.0, "PeerDead", ())]},
        {"dead": set()},
        {"dead": {0, 1}},
        {"late_at_last": set()},
        {"late_at_last": {0, 1}},
        {"left": ["1 x thread holdfast-io"]},
        {"grown_kib": 10_000},
    ],
    ids=lambda wrong: ",".join(wrong),
)
def test_the_checks_refuse_what_is_wrong(wrong: dict[str, Any]) -> None:
    case, reports = killed_in_the_middle()
    assert reports[2] is not None
    reports[2] = dataclasses.replace(reports[2], **wrong)
    with pytest.raises(AssertionError):
        check(case, STRUCK, reports)


@pytest.mark.parametrize("wrong", [{"moment": "last-bucket"}, {"exit_code": 0}, {"exit_code": None}])
def test_the_checks_refuse_a_strike_that_was_another(wrong: dict[str, Any]) -> None:
    case, reports = killed_in_the_middle()
    with pytest.raises(AssertionError):
        check(case, dataclasses.replace(STRUCK, **wrong), reports)


def test_a_footprint_shows_descriptors_threads_and_memory() -> None:
    before = Footprint.here()
    assert Footprint.here().left_since(before) == []
    reading, writing = os.pipe()
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    kept = bytearray(os.urandom(16 << 20))
    after = Footprint.here()
    over.set()
    thread.join()
    os.close(reading)
    os.close(writing)
    assert [text.split(" x ")[0] for text in after.left_since(before)] == ["2", "1"]
    assert after.grown_kib_since(before) > 12 << 10
    assert len(kept) == 16 << 20
