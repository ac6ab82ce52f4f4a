"""Replicas stay equal under real DDP: what a rank missed, what nobody can explain, a rank that was away."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from rank_processes import Member
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast.bridge import way_back
from holdfast.bridge.equality import _digest, model_state
from holdfast.control.replica_vote import NUM_SLICES
from holdfast.errors import LossBudgetExceeded
from holdfast.outcome import Outcome
from holdfast.reduce.pending import Pending

AMPLE = {"deadline_ms": 20_000.0, "early_wait_floor_ms": 5_000.0, "join_timeout_s": 20.0}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}
WIDTH = 160  # the state has more than one block


class Training:
    def __init__(self, member: Member, optimizer: str = "adamw", *, norm: bool = True, **settings: Any) -> None:
        torch.manual_seed(5)
        layers = [nn.Linear(8, WIDTH), *([nn.BatchNorm1d(WIDTH)] if norm else []), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
        self.model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 3)))
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.handle = holdfast.attach(self.model, **{**AMPLE, **settings})
        self.rank = member.rank
        self.digests: dict[int, bytes] = {}
        self._drawn = torch.Generator().manual_seed(member.rank)

    def step(self, *, clip: bool = False) -> None:
        self.optimizer.zero_grad()
        self.model(torch.randn(16, 8, generator=self._drawn)).square().mean().backward()
        if clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.digests[self.handle.step] = b"".join(map(_digest, model_state(self.model.module, [self.optimizer])))

    def lose_results(self, share: float, *, contributions: float = 0.0) -> None:
        """The next bucket ends as if so much of its result had not arrived on this rank."""
        reducer = self.handle.reducer
        finish = reducer.finish

        def lossy(pending: Pending) -> Outcome:
            outcome = finish(pending)
            if pending.bucket is None:
                return outcome
            reducer.finish = finish  # type: ignore[method-assign]
            bucket = pending.memory.owner
            assert isinstance(bucket, torch.Tensor)
            end = int(share * bucket.numel())
            bucket[:end] = 0
            arrived = outcome.delivered_ratio * (1 - share) * (1 - contributions)
            missing = ((0, end),) if end else ()
            return replace(outcome, missing=missing, not_received_elements=end, delivered_ratio=arrived)

        reducer.finish = lossy  # type: ignore[method-assign]

    def settle(self) -> None:
        """Long enough for notes of this step to be read: nobody else waits for them."""
        time.sleep(0.1)


def equal_after(results: list[dict[int, bytes]]) -> dict[int, bool]:
    common = set.intersection(*(set(digests) for digests in results))
    return {step: len({digests[step] for digests in results}) == 1 for step in sorted(common)}


def miss_a_part(member: Member, optimizer: str, norm: bool) -> tuple[dict[int, bytes], Any]:
    training = Training(member, optimizer, norm=norm)
    for step in range(1, 9):
        if step == 3 and member.rank == 1:
            training.lose_results(0.3)
        training.step(clip=True)
        training.settle()
    figures = training.handle.summary().replicas
    training.handle.detach()
    return training.digests, figures


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batchnorm"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_rank_that_missed_results_is_mended_before_the_next_step(run_ranks, optimizer: str, norm: bool) -> None:
    results = run_ranks(miss_a_part, 3, optimizer, norm, group=True)
    equal = equal_after([digests for digests, _ in results])
    assert [step for step, is_equal in equal.items() if not is_equal] == [3]
    figures = results[1][1]
    assert figures.dirty_steps >= 1
    assert figures.mended_bytes > 0
    assert figures.worst_drift > 0
    for rank in (0, 2):
        assert results[rank][1].mended_bytes == 0
    assert all(of_rank.corruptions == () for _, of_rank in results)


def withdraw(member: Member) -> tuple[dict[int, bytes], Any]:
    training = Training(member)
    for step in range(1, 9):
        if step == 3 and member.rank == 0:
            training.lose_results(0.6)
        before = [parameter.detach().clone() for parameter in training.model.parameters()]
        training.step()
        if step == 3:
            unchanged = all(map(torch.equal, before, training.model.parameters()))
            assert unchanged is (member.rank == 0)
        training.settle()
    figures = training.handle.summary().replicas
    training.handle.detach()
    return training.digests, figures


def test_a_rank_that_received_less_than_half_applies_nothing_and_pulls_everything(run_ranks) -> None:
    results = run_ranks(withdraw, 3, group=True)
    equal = equal_after([digests for digests, _ in results])
    assert [step for step, is_equal in equal.items() if not is_equal] == [3]
    assert results[0][1].withdrawn_steps == 1
    # A half from each: from one alone it would take more steps, and delay that one's gradients.
    state_bytes = results[0][1].mended_bytes
    for rank in (1, 2):
        assert 0.3 * state_bytes < results[rank][1].bytes_sent < 0.8 * state_bytes


def everybody_misses(member: Member) -> dict[int, bytes]:
    training = Training(member)
    for step in range(1, 12):
        if step == 3:
            training.lose_results(0.1 + 0.1 * member.rank)
        training.step()
        training.settle()
    training.handle.detach()
    return training.digests


def test_where_nobody_is_sure_all_become_equal_nevertheless(run_ranks) -> None:
    equal = equal_after(run_ranks(everybody_misses, 3, group=True))
    assert not equal[3]
    assert all(is_equal for step, is_equal in equal.items() if step > 7)


def flip_a_bit(member: Member) -> tuple[dict[int, bytes], tuple[str, ...]]:
    training = Training(member, norm=False)
    for step in range(1, 4 + NUM_SLICES + 4):
        training.step()
        if step == 3 and member.rank == 2:
            with torch.no_grad():
                training.model.module[2].weight.view(torch.int32)[3, 7] ^= 1 << 20
        training.settle()
    found = training.handle.summary().replicas.corruptions
    explained = training.handle.explain()
    training.handle.detach()
    assert "no loss explains" in explained
    return training.digests, found


def test_a_flipped_bit_is_found_named_and_mended_within_a_round(run_ranks) -> None:
    results = run_ranks(flip_a_bit, 3, group=True)
    for _, found in results:
        assert found
        assert found[0].startswith("rank 2 after step ")
        assert int(found[0].split()[4].rstrip(":")) <= 3 + NUM_SLICES
        assert "2.weight" in found[0]
    equal = equal_after([digests for digests, _ in results])
    assert not equal[4]
    assert equal[max(equal)]


def be_away(member: Member) -> tuple[dict[int, bytes], Any]:
    training = Training(member, deadline_ms=150.0, early_wait_floor_ms=5.0)
    stopping, number = None, 0
    while stopping is None or number < stopping:
        training.step()
        number += 1
        if number == 5:
            member.say(f"going/{member.rank}")
        if stopping is None and member.store.check(["said/stop"]):
            stopping = number + 30
    figures = training.handle.summary().replicas
    training.handle.detach()
    return training.digests, figures


def test_a_rank_that_stood_still_goes_on_with_the_others_and_is_equal_again(start_ranks) -> None:
    with start_ranks(be_away, 3, group=True) as ranks:
        for rank in range(3):
            ranks.hear(f"going/{rank}")
        with ranks.stopped(1):
            time.sleep(2.0)
        time.sleep(1.0)
        ranks.say("stop")
        results = ranks.results()
    equal = equal_after([digests for digests, _ in results])
    assert results[1][1].skipped_operations > 0
    assert results[1][1].mended_bytes > 0
    # What its socket had kept it did first; then it went on with the others.
    steps = sorted(results[1][0])
    back = max(itertools.pairwise(steps), key=lambda pair: pair[1] - pair[0])[1]
    assert any(is_equal for step, is_equal in equal.items() if back <= step <= back + 25)


LOOP = 140


def loop_with_a_pause(member: Member) -> tuple[int, int, Any, bytes]:
    """Rank 2 sets the pace: the others' own work is short, so what they missed they can make quickly."""
    way_back.makes_up_for = lambda _missed, _ratio: True  # type: ignore[assignment]
    # A socket that keeps little: else all is there when the rank goes on, and it has missed nothing.
    training = Training(member, deadline_ms=80.0, early_wait_floor_ms=5.0, receive_buffer_bytes=64 << 10)
    applied = 0
    for number in range(LOOP):
        if member.rank == 2:
            time.sleep(0.01)
        before = training.model.module[0].weight.detach().clone()
        training.step()
        applied += not torch.equal(before, training.model.module[0].weight)
        if number == 5:
            member.say(f"going/{member.rank}")
    step, figures = training.handle.step, training.handle.summary().replicas
    training.handle.detach()
    state = model_state(training.model.module, [training.optimizer])
    return step, applied, figures, b"".join(map(_digest, state))


@pytest.mark.parametrize("paused_rank", [0, 1])
def test_a_rank_that_passes_what_it_missed_ends_its_loop_with_the_others(start_ranks, paused_rank: int) -> None:
    """The sampler and the schedule of the learning rate count the loop's steps; the end of the epoch is the loop's."""
    with start_ranks(loop_with_a_pause, 3, group=True) as ranks:
        for rank in range(3):
            ranks.hear(f"going/{rank}")
        with ranks.stopped(paused_rank):
            time.sleep(0.8)
        results = ranks.results()
    assert [step for step, _, _, _ in results] == [LOOP, LOOP, LOOP]
    assert len({state for *_, state in results}) == 1
    _, applied, paused, _ = results.pop(paused_rank)
    assert paused.skipped_operations > 0
    assert paused.passed_steps > 0
    assert applied <= LOOP - paused.passed_steps  # in those nothing was applied
    assert [figures.passed_steps for _, _, figures, _ in results] == [0, 0]


def one_misses_more(member: Member) -> tuple[dict[int, bytes], int]:
    training = Training(member)
    for step in range(1, 10):
        if step == 3:
            training.lose_results(0.4 if member.rank == 0 else 0.2)
        training.step()
        training.settle()
    mended = training.handle.summary().replicas.mended_bytes
    training.handle.detach()
    return training.digests, mended


def test_where_nobody_is_sure_those_that_missed_the_same_are_right(run_ranks) -> None:
    """Rank 0 is the lowest, and alone: a rank that stood still must not give its state to those that went on."""
    results = run_ranks(one_misses_more, 3, group=True)
    assert results[0][1] > 0
    assert [mended for _, mended in results[1:]] == [0, 0]
    equal = equal_after([digests for digests, _ in results])
    assert all(is_equal for step, is_equal in equal.items() if step > 6)


def lose_too_much(member: Member, over_budget: str) -> tuple[dict[int, bytes], int, list[str]]:
    heard: list[str] = []
    training = Training(member, norm=False, over_budget=over_budget, snapshot=lambda: heard.append("snapshot"))
    for step in range(1, 6):
        if step == 3:
            training.lose_results(0.0, contributions=0.4)
        before = [parameter.detach().clone() for parameter in training.model.parameters()]
        try:
            training.step()
        except LossBudgetExceeded as error:
            heard.append(str(error))
            break
        assert all(map(torch.equal, before, training.model.parameters())) is (step == 3)
        training.settle()
    skipped = training.handle.summary().skipped_steps
    training.handle.detach()
    return training.digests, skipped, heard


def test_an_update_that_lost_too_much_is_left_out_on_all_ranks_alike(run_ranks) -> None:
    results = run_ranks(lose_too_much, 3, "skip", group=True)
    assert all(equal_after([digests for digests, _, _ in results]).values())
    assert [skipped for _, skipped, _ in results] == [1, 1, 1]
    assert all(heard == [] for _, _, heard in results)


def test_or_training_halts_after_a_snapshot(run_ranks) -> None:
    for _, _, heard in run_ranks(lose_too_much, 2, "halt", group=True):
        assert heard[0] == "snapshot"
        assert "40% of the contributions" in heard[1]
        assert "loss_budget" in heard[1]


def no_comparison(member: Member) -> Any:
    training = Training(member, compare_replicas=False)
    training.step()
    told = training.handle.summary().replicas, training.handle.explain()
    training.handle.detach()
    return told


def test_replicas_are_left_alone_where_that_is_asked_for(run_ranks) -> None:
    for figures, explained in run_ranks(no_comparison, 2, group=True):
        assert figures is None
        assert "synchronize() alone" in explained
