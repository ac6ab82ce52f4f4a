"""Whole races, short ones: on loopback against an oracle, and in the lab with a rank that dies."""

from __future__ import annotations

import copy
import dataclasses
import sys
from pathlib import Path

import pytest

from holdfast.errors import LabError
from holdfast.lab.fault import Fault
from holdfast.lab.peer import parse_peers
from holdfast.lab.profile import load_profile
from holdfast.lab.race import runner
from holdfast.lab.race.entry import Standing
from holdfast.lab.race.plan import Plan
from holdfast.lab.race.task import task_named
from holdfast.lab.switch_client import SwitchClient
from lab.lab_processes import needs_lab

pytestmark = [pytest.mark.xdist_group("programs"), pytest.mark.timeout(240)]

DIGITS = dataclasses.replace(task_named("digits"), steps_per_turn=4, steps_per_evaluation=2)
UNREACHABLE = 2.0


def test_peers_take_turns_and_train_what_one_process_would(tmp_path: Path) -> None:
    plan = Plan(DIGITS, parse_peers("gloo,holdfast"), 2, None, seed=3, target=UNREACHABLE, max_steps=10)
    standings: list[Standing] = []
    result = runner.run(plan, tmp_path, standings.append)
    turns = [(each.peer, each.steps) for each in standings if each.steps]
    assert turns == [
        ("gloo", 4), ("holdfast", 4), ("holdfast", 8), ("gloo", 8), ("gloo", 10), ("holdfast", 10)
    ]  # fmt: skip
    assert (result.parameters, result.profile, result.bits_per_s) == (138_794, "loopback", None)
    expected = _losses_of_one_process(plan)
    for run in result.runs:
        assert (run.steps, run.seconds_to_target, run.lateness) == (10, None, None)
        assert [each.steps for each in run.evaluations] == [0, 2, 4, 6, 8, 10]
        assert run.seconds == pytest.approx(sum(run.step_ms) / 1e3)
        assert 0 < run.step_p50_ms <= run.step_p99_ms == max(run.step_ms)
    gloo, holdfast = result.runs
    assert [each.loss for each in gloo.evaluations] == pytest.approx(expected, rel=1e-3)
    assert (gloo.delivered_ratio, gloo.drift_max, gloo.explain) == (1.0, 0.0, ())
    assert 0.5 < holdfast.delivered_ratio <= 1
    assert any(line.startswith("bound: ") for line in holdfast.explain)
    if holdfast.delivered_ratio == 1:
        assert [each.loss for each in holdfast.evaluations] == pytest.approx(expected, rel=5e-2)
    assert (tmp_path / runner.LOGS / "holdfast" / "rank-1.log").exists()


def _losses_of_one_process(plan: Plan) -> list[float]:
    """DDP by hand: gradients averaged over the ranks, BatchNorm's statistics those of rank 0."""
    import torch

    from holdfast.lab.race.tasks import training

    torch.set_num_threads(1)
    ranks = [training.begin("digits", training.Place(plan.seed, rank, plan.num_hosts, Path())) for rank in range(2)]
    first = ranks[0]
    losses = [first.evaluate(first.model).loss]
    for step in range(plan.max_steps):
        first.optimizer.zero_grad()
        elsewhere = copy.deepcopy(first.model)
        ranks[1].loss(elsewhere, step).backward()
        first.loss(first.model, step).backward()
        for own, other in zip(first.model.parameters(), elsewhere.parameters(), strict=True):
            assert own.grad is not None
            own.grad = (own.grad + other.grad) / 2
        first.optimizer.step()
        if step % 2 == 1:
            losses.append(first.evaluate(first.model).loss)
    return losses


@needs_lab
def test_in_the_lab_a_rank_dies_gloo_breaks_off_and_holdfast_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WARMUP_OPERATIONS", "2")  # exact operations could not go on without it
    kill = Fault("kill", host=2, at_step=5, at_s=None, for_s=None, ratio=1.0)
    plan = Plan(
        DIGITS, parse_peers("gloo-tuned,holdfast"), 3, load_profile("clean"), seed=0, target=UNREACHABLE,
        max_steps=12, faults=[kill],
    )  # fmt: skip
    drawn: list[int] = []
    monkeypatch.setattr(SwitchClient, "draw_anew", lambda _self, seed: drawn.append(seed))
    gloo, holdfast = runner.run(plan, tmp_path).runs
    # Both have their first and their second turn; the third is Holdfast's alone.
    assert drawn == [plan.turn_seed(turn) for turn in (1, 1, 2, 2, 3)]
    assert [event.what for event in holdfast.events] == ["kill on host 2 at step 5", "rank 2 ended by SIGKILL"]
    assert (holdfast.steps, holdfast.evaluations[-1].steps) == (12, 12)
    assert holdfast.delivered_ratio < 1
    assert 4 <= gloo.steps <= 6
    told = [event.what for event in gloo.events]
    assert told[:2] == ["kill on host 2 at step 5", "rank 2 ended by SIGKILL"]
    assert told[-1].startswith("broke off: rank ")
    for run in (gloo, holdfast):
        assert run.lateness is not None
        assert run.lateness.p50_us > 0


def test_a_peer_that_cannot_start_is_one_error_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'cannot find myself'; exit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    plan = Plan(DIGITS, parse_peers("gloo"), 2, None, seed=0, target=0.0, max_steps=1)
    with pytest.raises(
        LabError, match=r"gloo did not start: .*rank \d exit code 3; last lines:\n  cannot find"
    ) as raised:
        runner.run(plan, tmp_path)
    assert raised.value.what_to_try == f"the logs in {tmp_path / runner.LOGS / 'gloo'}"
