"""A command runs on every host by itself, knows its rank, and is heard."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from holdfast.lab import events
from holdfast.lab.cloud import Cloud
from holdfast.lab.launch import Workers
from holdfast.lab.marks import EVENTS
from lab.lab_processes import needs_lab, wait_until

pytestmark = needs_lab

LIMIT_S = 30.0


def shell(script: str) -> list[str]:
    return ["bash", "-c", script]


def test_ranks_know_who_and_where_they_are(cloud: Cloud) -> None:
    said: dict[int, str] = {}
    script = "import json, os; print(json.dumps([dict(os.environ), os.stat('/proc/self/ns/net').st_ino]))"
    with Workers(cloud, [sys.executable, "-S", "-c", script], on_line=said.__setitem__) as workers:
        endings = workers.wait(LIMIT_S)
    assert [(ending.rank, ending.code, ending.how) for ending in sorted(endings, key=lambda e: e.rank)] == [
        (0, 0, "done"),
        (1, 0, "done"),
    ]
    for rank, host in enumerate(cloud.hosts):
        variables, network = json.loads(said[rank])
        assert network == host.namespace.inode
        expected = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                    "GROUP_RANK": str(rank), "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"}  # fmt: skip
        assert {name: variables[name] for name in expected} == expected


def test_one_ranks_death_ends_no_other_and_the_first_bad_code_is_kept(cloud: Cloud) -> None:
    commands = [shell("kill -SEGV $$"), shell("sleep 0.3; exit 7")]
    with Workers(cloud, lambda rank: commands[rank]) as workers:
        endings = workers.wait(LIMIT_S)
    assert [(ending.rank, ending.code, ending.how) for ending in endings] == [
        (0, 128 + signal.SIGSEGV, "ended by SIGSEGV"),
        (1, 7, "exit code 7"),
    ]


def test_output_comes_by_rank_and_line_and_into_files(cloud: Cloud, tmp_path: Path) -> None:
    said: list[tuple[int, str]] = []
    script = "printf 'a\\nb '; sleep 0.05; printf 'c\\n'; echo oops >&2; printf unfinished"
    with Workers(
        cloud, shell(script), on_line=lambda rank, line: said.append((rank, line)), logs=tmp_path / "logs"
    ) as workers:
        workers.wait(LIMIT_S)
    for rank in (0, 1):
        assert [line for speaker, line in said if speaker == rank] == ["a", "b c", "oops", "unfinished"]
        assert (tmp_path / "logs" / f"rank-{rank}.log").read_bytes() == b"a\nb c\noops\nunfinished"


def test_a_line_without_an_end_is_handed_on_in_pieces(cloud: Cloud) -> None:
    pieces: list[str] = []
    script = "import sys; sys.stdout.write('x' * 300_000)"
    with Workers(
        cloud, [sys.executable, "-S", "-c", script], on_line=lambda rank, line: pieces.append(line) if rank else None
    ) as workers:
        workers.wait(LIMIT_S)
    assert len(pieces) > 1
    assert "".join(pieces) == "x" * 300_000


def test_what_a_rank_leaves_running_ends_with_it_and_holds_nothing_up(cloud: Cloud) -> None:
    said: dict[int, str] = {}
    with Workers(cloud, shell("sleep 60 & echo $!"), on_line=said.__setitem__) as workers:
        endings = workers.wait(LIMIT_S)
    assert [ending.code for ending in endings] == [0, 0]
    for process in said.values():
        wait_until(lambda process=process: _has_ended(int(process)), 5, "the end of a rank's child")  # type: ignore[misc]


def _has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


def test_steps_and_epochs_are_heard_also_from_a_shell(cloud: Cloud) -> None:
    heard: list[tuple[int, str, int]] = []
    script = f"echo epoch 2 >&${EVENTS}; echo nonsense >&${EVENTS}; echo step 5 >&${EVENTS}"
    with Workers(
        cloud, shell(script), on_event=lambda rank, name, number: heard.append((rank, name, number))
    ) as workers:
        workers.wait(LIMIT_S)
        assert (workers.position("epoch"), workers.position("step"), workers.position("moon")) == (2, 5, None)
    assert sorted(heard) == [(rank, name, number) for rank in (0, 1) for name, number in (("epoch", 2), ("step", 5))]


def test_a_rank_can_ask_how_slow_it_should_be(cloud: Cloud) -> None:
    said: dict[int, str] = {}
    script = (
        "import time; from holdfast.lab import events; events.step(1)\n"
        "while events.slowness() == 1.0: time.sleep(0.01)\n"
        "print(events.slowness())"
    )
    with Workers(cloud, [sys.executable, "-c", script], on_line=said.__setitem__) as workers:
        give_up = time.monotonic() + LIMIT_S
        while workers.position("step") is None and time.monotonic() < give_up:
            workers.pump(0.1)
        for worker, ratio in zip(workers.workers, (2.5, 4.0), strict=True):
            worker.set_slowness(ratio)
        workers.wait(LIMIT_S)
    assert said == {0: "2.5", 1: "4.0"}
    assert events.slowness() == 1.0


def test_stop_ends_stopped_and_deaf_ranks(cloud: Cloud) -> None:
    before = set(os.listdir("/proc/self/fd"))
    commands = [shell("kill -STOP $$; sleep 60"), shell("trap '' TERM; while :; do sleep 0.1; done")]
    workers = Workers(cloud, lambda rank: commands[rank])
    workers.wait(0.3)
    assert workers.alive == [0, 1]
    workers.stop(grace_s=0.2)
    workers.stop()
    assert {ending.how for ending in workers.endings.values()} <= {"ended by SIGKILL", "ended by SIGTERM"}
    assert len(workers.endings) == 2
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_signal_while_a_rank_is_collected_does_not_lose_it(cloud: Cloud) -> None:
    """What a handler raises can come at any line; here it comes in the middle of a rank's last words."""
    interrupted: list[int] = []

    def interrupt_once(rank: int, _line: str) -> None:
        if not interrupted:
            interrupted.append(rank)
            raise KeyboardInterrupt

    # The pipe stays open after the rank's end, so its last words are heard when it is collected and not before.
    workers = Workers(cloud, shell("printf last; setsid sleep 5 & exit 3"), on_line=interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        workers.wait(LIMIT_S)
    workers.stop(grace_s=0.5)
    assert sorted(workers.endings) == [0, 1]
    assert workers.endings[interrupted[0]].code == 3


def test_a_command_that_is_not_there_says_so(cloud: Cloud) -> None:
    said: dict[int, str] = {}
    with Workers(cloud, ["/no/such/command"], on_line=said.__setitem__) as workers:
        endings = workers.wait(LIMIT_S)
    assert [ending.code for ending in endings] == [127, 127]
    assert said[0] == "cannot run /no/such/command: No such file or directory"


def test_a_rank_keeps_the_descriptors_it_is_given(cloud: Cloud) -> None:
    reading, writing = os.pipe()
    with Workers(cloud, shell(f"echo $RANK >&{writing}"), inherited={0: [writing], 1: [writing]}) as workers:
        workers.wait(LIMIT_S)
    os.close(writing)
    with os.fdopen(reading) as heard:
        assert sorted(heard.read().split()) == ["0", "1"]
