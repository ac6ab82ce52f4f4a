"""Ranks that answer, fail, die and fall silent: what becomes of their peer's race."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.lab.race import contender as contender_module
from holdfast.lab.race.contender import TICK_S, BrokeOff, Contender
from lab.race.scripted_ranks import scripted

pytestmark = pytest.mark.xdist_group("processes")

DIES = "if verb == 'train' and rank == 1: os.kill(os.getpid(), signal.SIGKILL)"
FAILS = "if verb == 'train' and rank == 0: answer = Failed('RuntimeError: the other is gone', [7.0])"


def train(contender: Contender, count: int = 3) -> None:
    contender.train(count, 2, lambda _waited_s: TICK_S)


def told(contender: Contender) -> list[str]:
    return [event.what for event in contender.record.events]


def test_ranks_train_are_judged_and_go(tmp_path: Path) -> None:
    with scripted("pass", tmp_path, num_ranks=3) as contender:
        assert contender.wait_ready() == 2
        train(contender)
        contender.evaluate()
        assert contender.record.step_ms == [2.0] * 3
        # After n steps rank k's second parameter is n k/4.
        assert [(each.steps, each.drift) for each in contender.record.evaluations] == [(2, 1.0), (3, 1.5)]
        contender.end()
        assert {ending.how for ending in contender.crew.endings.values()} == {"done"}


def test_survivors_go_on_without_a_dead_rank(tmp_path: Path) -> None:
    with scripted(DIES, tmp_path, num_ranks=3) as contender:
        contender.wait_ready()
        train(contender)
        contender.evaluate()
        assert told(contender) == ["rank 1 ended by SIGKILL"]
        assert contender.record.step_ms == [2.0] * 3
        train(contender)
        assert contender.record.steps == 6


def test_when_survivors_cannot_go_on_the_race_breaks_off_and_the_dead_are_named(tmp_path: Path) -> None:
    with scripted(f"{FAILS}\n    {DIES}", tmp_path) as contender:
        contender.wait_ready()
        with pytest.raises(BrokeOff, match="rank 0: RuntimeError: the other is gone"):
            train(contender)
        assert told(contender) == ["rank 1 ended by SIGKILL"]
        assert contender.record.step_ms == [7.0]


def test_nobody_left(tmp_path: Path) -> None:
    with scripted("if verb == 'train': sys.exit(3)", tmp_path) as contender:
        contender.wait_ready()
        with pytest.raises(BrokeOff, match=r"no rank is left; rank \d exit code 3"):
            train(contender)
        assert sorted(told(contender)) == ["rank 0 exit code 3", "rank 1 exit code 3"]


def test_a_rank_that_dies_before_it_is_ready_is_not_waited_for(tmp_path: Path) -> None:
    with (
        scripted("if rank == 1: sys.exit(3)\n    time.sleep(60)", tmp_path) as contender,
        pytest.raises(BrokeOff, match="rank 1 exit code 3"),
    ):
        contender.wait_ready()


def test_silence_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contender_module, "STEP_LIMIT_S", 0.1)
    with scripted("if verb == 'train' and rank == 1: time.sleep(60)", tmp_path) as contender:
        contender.wait_ready()
        with pytest.raises(BrokeOff, match=r"rank 1 did not train within 0\.3 s"):
            train(contender)


def test_who_is_deaf_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contender_module, "END_LIMIT_S", 0.2)
    monkeypatch.setattr("holdfast.lab.race.crew.STOP_GRACE_S", 0.2)
    deaf = "if verb == 'evaluate': signal.signal(signal.SIGTERM, signal.SIG_IGN); orders.send(answer); time.sleep(60)"
    with scripted(deaf, tmp_path) as contender:
        contender.wait_ready()
        contender.evaluate()
        contender.end()
        assert {ending.how for ending in contender.crew.endings.values()} == {"ended by SIGKILL"}


def test_what_is_due_meanwhile_is_done_while_ranks_train(tmp_path: Path) -> None:
    asked: list[float] = []

    def meanwhile(waited_s: float) -> float:
        asked.append(waited_s)
        return 0.02

    with scripted("time.sleep(0.3 * (verb == 'train'))", tmp_path) as contender:
        contender.wait_ready()
        began = time.monotonic()
        contender.train(1, 1, meanwhile)
        assert len(asked) > 5
        assert asked == sorted(asked)
        assert asked[-1] < time.monotonic() - began
