"""The loss budget: what counts as lost, when an update is left out, and when training halts."""

from __future__ import annotations

import pytest

from holdfast.control.safeguard import LossBudget, StepLosses


def lost(ratio: float, *, num_elements: int = 1000, contributors: int = 4, peers: tuple[int, ...] = ()) -> StepLosses:
    losses = StepLosses()
    losses.add(
        num_elements=num_elements,
        not_received_elements=0,
        ownerless_elements=0,
        contributed_elements=(1 - ratio) * num_elements * contributors,
        contributors=contributors,
        incomplete_peers=peers,
    )
    return losses


def test_a_rank_that_did_not_take_part_is_no_loss() -> None:
    losses = StepLosses()
    losses.add(
        num_elements=100,
        not_received_elements=0,
        ownerless_elements=0,
        contributed_elements=300,
        contributors=3,
        incomplete_peers=[3],
    )
    assert losses.lost_ratio == 0


def test_what_did_not_arrive_here_is_not_what_was_not_contributed() -> None:
    losses = StepLosses()
    losses.add(
        num_elements=100,
        not_received_elements=25,
        ownerless_elements=0,
        contributed_elements=300,
        contributors=4,
        incomplete_peers=[],
    )
    assert losses.lost_ratio == 0
    assert losses.not_received_elements == 25
    assert not losses.withdrawn


def test_the_shard_of_a_dead_rank_is_missed_by_all_and_no_loss() -> None:
    losses = StepLosses()
    losses.add(
        num_elements=90,
        not_received_elements=0,
        ownerless_elements=30,
        contributed_elements=120,
        contributors=2,
        incomplete_peers=[1],
    )
    assert losses.lost_ratio == 0
    assert not losses.withdrawn


def test_buckets_count_by_their_elements() -> None:
    losses = lost(0.5, num_elements=100)
    losses.add(
        num_elements=900,
        not_received_elements=0,
        ownerless_elements=0,
        contributed_elements=3600,
        contributors=4,
        incomplete_peers=[],
    )
    assert losses.lost_ratio == pytest.approx(0.05)


def test_less_than_half_of_one_operation_is_not_applied() -> None:
    losses = StepLosses()
    for missing, withdrawn in ((0, False), (50, False), (51, True), (0, True)):
        losses.add(
            num_elements=100,
            not_received_elements=missing,
            ownerless_elements=0,
            contributed_elements=4 * (100 - missing),
            contributors=4,
            incomplete_peers=[],
        )
        assert losses.withdrawn is withdrawn
    judgement = LossBudget(1.0, "halt", 0).judge(losses)
    assert not judgement.apply
    assert not judgement.halt  # it is this rank alone that cannot go on


def test_an_update_beyond_the_budget_is_left_out_and_too_many_halt() -> None:
    budget = LossBudget(0.25, "skip", 2)
    assert budget.judge(lost(0.25)).apply
    for _ in range(2):
        judgement = budget.judge(lost(0.3))
        assert not judgement.apply
        assert not judgement.halt
    assert budget.judge(lost(0.1)).apply
    assert budget.skipped == 2
    assert [budget.judge(lost(0.3)).halt for _ in range(3)] == [False, False, True]
    assert "5 left out" in budget.explain()


def test_halting_at_once_is_a_choice() -> None:
    assert LossBudget(0.25, "halt", 20).judge(lost(0.26)).halt
    assert not LossBudget(1.0, "halt", 20).judge(lost(0.99)).halt


def test_those_that_lost_most_often_come_first() -> None:
    losses = lost(0.1, peers=(1, 2))
    losses.add(
        num_elements=10,
        not_received_elements=0,
        ownerless_elements=0,
        contributed_elements=40,
        contributors=4,
        incomplete_peers=[2, 3],
    )
    assert losses.culprits == [2, 1, 3]


def test_nothing_at_all_is_no_loss() -> None:
    assert StepLosses().lost_ratio == 0
    assert LossBudget(0.25, "skip", 0).judge(StepLosses()).apply
