"""Lost contributions may not shift the mean: neither towards the owner's own part, which always arrives, nor elsewhere.

The gradients are made so that favouring the owner shows: whoever sums a shard has larger values in it than the others.
Each block that a rank delivered is compared with the true mean, over seeds and a full rotation of responsibility, so
every rank has owned every shard. The plain average over what arrived is put to the same test, and fails it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast._native import SimBlock
from holdfast.sim import Scenario, run

SIGMAS = 3.0
OWNER_BONUS = 3.0
# Shards to pool per case; with more ranks a run has more of them.
NUM_SHARDS = 480

UNBIASED = Scenario(
    name="unbiased",
    num_notes=0,
    exact_ratio=0,
    sum_ratio=0,
    format=1,
    owner_bonus=OWNER_BONUS,
    rank_bias=0.2,
    deadline_ms=200,
    t_c_ms=10,
    datagram_bytes=512,  # small datagrams: many independent losses per operation
)


def scenario_for(num_ranks: int, loss_ratio: float, *, repaired: bool) -> Scenario:
    return replace(
        UNBIASED,
        min_ranks=num_ranks,
        max_ranks=num_ranks,
        num_operations=num_ranks,  # a full rotation
        min_elements=1024 * num_ranks,
        max_elements=1024 * num_ranks,
        loss_ratio=loss_ratio,
        repaired_ratio=float(repaired),
    )


def delivered_by_holdfast(block: SimBlock) -> float:
    return block.value


def plain_average_of_what_arrived(block: SimBlock) -> float:
    arrived = [value for rank, value in enumerate(block.gradients) if block.contributors >> rank & 1]
    return sum(arrived) / len(arrived)


def bias_in_sigmas(runs: list[list[SimBlock]], estimate: Callable[[SimBlock], float]) -> float:
    """Mean error over its standard error. Blocks of one datagram share their fate, so errors are pooled by shard."""
    by_shard: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for seed, blocks in enumerate(runs):
        for block in blocks:
            truth = sum(block.gradients) / len(block.gradients)
            by_shard[seed, block.operation, block.owner].append(estimate(block) - truth)
    means = [sum(errors) / len(errors) for errors in by_shard.values()]
    mean = sum(means) / len(means)
    variance = sum((value - mean) ** 2 for value in means) / (len(means) - 1)
    return mean / max(math.sqrt(variance / len(means)), 1e-7)  # below: float32 rounding


def expected_share(num_ranks: int, loss_ratio: float, *, repaired: bool) -> float:
    """Contributions that get through to the owner, times results that get through to a rank; the own ones always do."""
    others = num_ranks - 1
    contributions = 1 + others * (1 - loss_ratio) - loss_ratio**others  # a hole loses the owner's part, too
    results = 1 + others * (1 if repaired else 1 - loss_ratio)
    return contributions / num_ranks * results / num_ranks


@pytest.mark.parametrize(("loss_ratio", "repaired"), [(0.01, False), (0.05, False), (0.05, True)])
@pytest.mark.parametrize("num_ranks", range(2, 9))
def test_delivered_blocks_are_unbiased_and_the_share_is_true(num_ranks: int, loss_ratio: float, repaired: bool) -> None:
    scenario = scenario_for(num_ranks, loss_ratio, repaired=repaired)
    runs = []
    shares = []
    for seed in range(1, 1 + NUM_SHARDS // num_ranks**2):
        result = run(scenario, seed, sample_blocks=True)
        # Reported share = true share is among the invariants, rank by rank and peer by peer.
        assert not result.violations, f"seed {seed}: {result.violations}"
        runs.append(result.blocks)
        shares.append(result.delivered / result.expected)
    incomplete = sum(block.contributors.bit_count() < num_ranks for blocks in runs for block in blocks)
    assert abs(bias_in_sigmas(runs, delivered_by_holdfast)) < SIGMAS
    assert abs(sum(shares) / len(shares) - expected_share(num_ranks, loss_ratio, repaired=repaired)) < loss_ratio / 2
    if num_ranks == 2:
        assert incomplete == 0  # one other rank: its part is there, or the block is a hole
    else:
        assert incomplete > 0
        assert bias_in_sigmas(runs, plain_average_of_what_arrived) > SIGMAS
