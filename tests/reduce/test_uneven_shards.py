"""Real ranks that agree on a smaller shard for one of them, and what happens when one of them misses the agreement."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from missed_answers import hear_answers_again, miss_every_answer
from rank_processes import Member
from transpose_oracle import AMPLE_MS, gradient_of, reduce_once

from holdfast.control.slow_ranks import NUM_ROWS, SlowRanks
from holdfast.outcome import Outcome
from holdfast.reduce.agreement import INTERVAL, LEAD
from holdfast.reduce.transpose import TransposeAllReduce

NUM_RANKS = 4
SLOW = 2
COUNT = 4_000
UNTIL_AGREED = NUM_ROWS * INTERVAL + LEAD


def reducer_that_hears_one_slowly(member: Member, deadline_ms: float) -> tuple[TransposeAllReduce, SlowRanks]:
    """On loopback all are fast: what a rank measures is replaced, what it makes of it is not."""
    reducer = TransposeAllReduce(member.join(deadline_ms=deadline_ms, hadamard="off"))
    slow_ranks = reducer.slow_ranks
    assert slow_ranks is not None
    observe = slow_ranks.observe

    def observe_one_slowly(rates: Mapping[int, float]) -> None:
        observe({peer: 25.0 if peer == SLOW else 100.0 for peer in range(NUM_RANKS) if peer != member.rank})

    slow_ranks.observe = observe_one_slowly  # type: ignore[method-assign]
    return reducer, slow_ranks


def reduce_many(reducer: TransposeAllReduce, rank: int, num_operations: int) -> list[tuple[Outcome, torch.Tensor]]:
    results = []
    for seed in range(num_operations):
        tensor = gradient_of(rank, COUNT, torch.float32, seed)
        results.append((reduce_once(reducer, tensor), tensor))
    return results


def agree(member: Member) -> tuple[tuple[int, ...], int, list[float], torch.Tensor, list[str]]:
    reducer, slow_ranks = reducer_that_hears_one_slowly(member, AMPLE_MS)
    results = reduce_many(reducer, member.rank, UNTIL_AGREED + 5)
    member.barrier()
    division = slow_ranks.division
    delivered = [outcome.delivered_ratio for outcome, _ in results]
    return division.weights, division.number, delivered, results[-1][1], reducer.explain()


def test_all_ranks_take_the_same_smaller_shard_and_lose_nothing_by_it(run_ranks) -> None:
    results = run_ranks(agree, NUM_RANKS)
    for weights, number, delivered, tensor, words in results:
        assert weights[SLOW] < min(weights[:SLOW] + weights[SLOW + 1 :])
        assert number == 1
        assert delivered == [1.0] * len(delivered)
        assert torch.equal(tensor, results[0][3])
        assert any(f"rank {SLOW} at 0.25 of the others' rate" in line for line in words)


def miss_the_last_exchange(member: Member) -> tuple[list[Outcome], list[torch.Tensor], tuple[int, ...]]:
    reducer, slow_ranks = reducer_that_hears_one_slowly(member, 300.0)
    before = reduce_many(reducer, member.rank, NUM_ROWS * INTERVAL - 1)
    assert all(outcome.complete for outcome, _ in before)
    if member.rank == 0:
        miss_every_answer(reducer)
    at_odds = reduce_many(reducer, member.rank, LEAD + 3)
    hear_answers_again(reducer)
    after = reduce_many(reducer, member.rank, INTERVAL + LEAD)
    member.barrier()
    results = [*at_odds, *after]
    return [outcome for outcome, _ in results], [tensor for _, tensor in results], slow_ranks.division.weights


def miss_it_and_object(member: Member) -> tuple[list[float], tuple[int, ...]]:
    reducer, slow_ranks = reducer_that_hears_one_slowly(member, AMPLE_MS)
    reduce_many(reducer, member.rank, NUM_ROWS * INTERVAL - 1)
    if member.rank == 0:
        miss_every_answer(reducer, objects=True)
    after = reduce_many(reducer, member.rank, INTERVAL - 1)
    member.barrier()
    return [outcome.delivered_ratio for outcome, _ in after], slow_ranks.division.weights


def test_nobody_takes_another_shard_when_one_objects(run_ranks) -> None:
    for delivered, weights in run_ranks(miss_it_and_object, NUM_RANKS):
        assert delivered == [1.0] * len(delivered)
        assert len(set(weights)) == 1


def test_a_rank_that_misses_an_agreement_loses_operations_and_nobody_a_value(run_ranks) -> None:
    results = run_ranks(miss_the_last_exchange, NUM_RANKS)
    outcomes, tensors = [result[0] for result in results], [result[1] for result in results]
    at_odds = [number for number, outcome in enumerate(outcomes[0]) if outcome.delivered_ratio == 0]
    assert at_odds
    for number in at_odds:
        assert outcomes[0][number].missing_elements == COUNT
        assert all(0.25 < outcomes[rank][number].delivered_ratio < 1 for rank in range(1, NUM_RANKS))
    for number in range(len(outcomes[0])):
        for rank in range(1, NUM_RANKS):
            has = torch.ones(COUNT, dtype=torch.bool)
            for begin, end in (*outcomes[0][number].missing, *outcomes[rank][number].missing):
                has[begin:end] = False
            assert torch.equal(tensors[0][number][has], tensors[rank][number][has])
    for rank in range(NUM_RANKS):
        assert outcomes[rank][-1].complete  # even shards again
        assert len(set(results[rank][2])) == 1
