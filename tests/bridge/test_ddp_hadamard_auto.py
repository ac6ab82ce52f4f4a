"""The Hadamard transform that switches itself: real ranks, operations that lack something, and a missed agreement."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
import torch
from missed_answers import hear_answers_again, miss_every_answer
from rank_processes import Member
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast
from holdfast.bridge.handle import Handle
from holdfast.control.hadamard_switch import NUM_CALM
from holdfast.reduce.agreement import INTERVAL, LEAD

# Short, since ranks at odds wait for each other that long; a busy machine only adds to the loss.
DEADLINE_MS = 80.0
SETTINGS: dict[str, Any] = {"deadline_ms": DEADLINE_MS, "join_timeout_s": 20.0}
UNTIL_SWITCHED = INTERVAL + LEAD + 1


class Training:
    """One bucket of 22,540 float32 elements, every step another one; notes which operations are encoded."""

    def __init__(self, member: Member, **settings: Any) -> None:
        torch.manual_seed(7)
        self.member = member
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 140), nn.Linear(140, 147, bias=False)))
        self.handle = holdfast.attach(self.model, **SETTINGS, **settings)
        self.tolerance = 2e-2 if "wire" in settings else 1e-5
        self.encoded: list[int] = []
        if (hadamard := self.handle.hadamard) is not None:
            encode = hadamard.encode

            def note(gradient: torch.Tensor, seed: int) -> None:
                self.encoded.append(seed)
                encode(gradient, seed)

            hadamard.encode = note  # type: ignore[method-assign]

    def local(self, rank: int, step: int) -> torch.Tensor:
        inputs = torch.randn(8, 12, generator=torch.Generator().manual_seed(977 * step + rank))
        gradients = torch.autograd.grad(self.model.module(inputs).square().sum(), list(self.model.parameters()))
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    def step(self, step: int, late_s: float = 0.0) -> tuple[holdfast.Outcome, torch.Tensor]:
        """The outcome, and the gradient as the optimizer would find it. All ranks at once: none is to miss an exchange."""
        self.member.barrier()
        time.sleep(late_s)
        self.model.zero_grad()
        inputs = torch.randn(8, 12, generator=torch.Generator().manual_seed(977 * step + self.member.rank))
        self.model(inputs).square().sum().backward()
        gradient = torch.cat([parameter.grad.reshape(-1) for parameter in self.model.parameters()])
        return self.handle.outcomes()[-1], gradient

    def is_the_average(self, gradient: torch.Tensor, step: int) -> bool:
        wanted = torch.stack([self.local(rank, step) for rank in range(self.member.num_ranks)]).double().mean(0)
        return bool((gradient - wanted).norm() < self.tolerance * wanted.norm())


def hadamard_line(handle: Handle) -> str:
    (line,) = [line for line in handle.explain().splitlines() if line.startswith("hadamard: ")]
    return line


def lose_five(member: Member, settings: dict[str, Any]) -> tuple[list[int], int]:
    """Rank 1 is so late for five operations of sixteen that nobody waits for it: one more than may lose what they like.
    And they are told that it was the network's doing."""
    training = Training(member, **settings)
    switch = training.handle.reducer.hadamard_switch
    assert switch is not None
    observe = switch.observe
    bad = (3, 5, 7, 9, 11)
    numbers = itertools.count()
    switch.observe = lambda _, count: observe(count // 2 * (next(numbers) in bad), count)  # type: ignore[method-assign]
    assert "off, elements travel as they are; it comes on" in hadamard_line(training.handle)
    num_complete = 0
    for step in range(UNTIL_SWITCHED + 8):
        outcome, gradient = training.step(step, 3 * DEADLINE_MS / 1e3 if step in bad and member.rank == 1 else 0.0)
        if outcome.complete:
            assert outcome.missing_coefficients == ()
            assert training.is_the_average(gradient, step)
            num_complete += outcome.operation in training.encoded
    assert "hadamard: on, float32 gradients travel as coefficients" in hadamard_line(training.handle)
    assert "of all gradient entries were dropped, more than 2%" in hadamard_line(training.handle)
    member.barrier()
    training.handle.detach()
    return training.encoded, num_complete


@pytest.mark.parametrize(
    ("num_ranks", "settings"), [(2, {}), (2, {"wire": "bf16"}), (3, {"deterministic": True})], ids=str
)
def test_a_loss_switches_it_on_for_the_same_operations_everywhere(
    run_ranks, num_ranks: int, settings: dict[str, Any]
) -> None:
    results = run_ranks(lose_five, num_ranks, settings, group=True)
    for encoded, _ in results:
        assert encoded == results[0][0]
        assert len(encoded) >= 8
        assert encoded[0] > LEAD
    assert sum(num_complete for _, num_complete in results) > 0


def no_loss(member: Member) -> list[int]:
    """As far as the ranks know: a busy machine may lose something all the same."""
    training = Training(member)
    switch = training.handle.reducer.hadamard_switch
    assert switch is not None
    observe, lost_ratio = switch.observe, 0.1
    switch.observe = lambda _lost, count: observe(round(count * lost_ratio), count)  # type: ignore[method-assign]
    for step in range(UNTIL_SWITCHED):
        training.step(step)
    assert training.encoded
    lost_ratio = 0.0
    for step in range((NUM_CALM + 1) * INTERVAL + LEAD + 2):
        training.step(step)
    last = training.encoded[-1]
    assert "hadamard: off, elements travel as they are; less than 0.5% was dropped" in hadamard_line(training.handle)
    outcome, _ = training.step(0)
    assert outcome.operation > last + 1
    assert outcome.missing_coefficients == ()
    member.barrier()
    training.handle.detach()
    return training.encoded


def test_it_goes_again_when_the_loss_is_over(run_ranks) -> None:
    results = run_ranks(no_loss, 2, group=True)
    assert results[0] == results[1]


def miss_the_agreement(member: Member) -> tuple[list[float], list[int], int]:
    training = Training(member)
    handle = training.handle
    switch = handle.reducer.hadamard_switch
    assert switch is not None
    observe = switch.observe
    switch.observe = lambda _lost, count: observe(round(count * 0.1), count)  # type: ignore[method-assign]
    if member.rank == 0:
        miss_every_answer(handle.reducer)
    delivered = []
    for step in range(UNTIL_SWITCHED + 2):
        outcome, gradient = training.step(step)
        delivered.append(outcome.delivered_ratio)
        if outcome.complete:
            assert training.is_the_average(gradient, step)
        elif member.rank == 0 and outcome.delivered_ratio == 0:
            assert outcome.missing_elements == gradient.numel()
            assert not gradient.any()
        elif member.rank != 0 and outcome.operation in training.encoded:
            others = training.local(1, step) + training.local(2, step)
            assert torch.nn.functional.cosine_similarity(gradient, others, dim=0) > 0.5 or not outcome.delivered_ratio
    num_unlike = handle.summary().dropped_datagrams.get("other_encoding", 0)
    hear_answers_again(handle.reducer)
    for step in range(INTERVAL + LEAD):
        training.step(step)
    num_right = 0
    for step in range(20):
        outcome, gradient = training.step(step)
        assert outcome.operation in training.encoded
        if outcome.complete:
            assert training.is_the_average(gradient, step)
            num_right += 1
    member.barrier()
    handle.detach()
    assert num_unlike > 0
    return delivered, training.encoded, num_right


def test_a_rank_that_misses_the_agreement_is_not_heard_until_the_next_one_and_nobody_stops(run_ranks) -> None:
    results = run_ranks(miss_the_agreement, 3, group=True)
    assert results[1][1] == results[2][1]
    assert set(results[0][1]) < set(results[1][1]), "rank 0 begins later, and with the others from then on"
    assert 0.0 in results[0][0]
    assert sum(num_right for _, _, num_right in results) > 0


def feedback(member: Member) -> str:
    training = Training(member, wire="bf16", rounding="feedback")
    assert training.handle.hadamard is None
    assert training.handle.reducer.hadamard_switch is None
    line = hadamard_line(training.handle)
    training.handle.detach()
    return line


def test_with_feedback_it_stays_off(run_ranks) -> None:
    assert set(run_ranks(feedback, 2, group=True)) == {"hadamard: off, elements travel as they are"}
