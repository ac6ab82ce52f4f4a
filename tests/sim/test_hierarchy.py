"""Hierarchical operations: rounds and bytes, exactness, no bias, and every fault of the flat ones.

What must hold of each result is in `native/sim/invariants.cc`, worked out by an oracle that sums the groups, and then
their sums, from the gradients and from what the network delivered.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast._native import OperationReport, SimBlock, SimMessage, SimRun
from holdfast.sim import Scenario, load_scenario, run, run_many

CHUNK_ELEMENTS = 352  # of float32 in a datagram of 1,472 bytes
FOUR_BYTES = 4

ONE_OPERATION = Scenario(
    name="one hierarchical operation",
    num_operations=1,
    num_notes=0,
    exact_ratio=0.0,
    format=1,
    deadline_ms=4000.0,
    call_skew_ms=0.0,
    credit=1,
    port_queue_bytes=64 << 20,
    expects_complete=True,
)


def in_groups(num_ranks: int, num_groups: int, elements: int, scenario: Scenario = ONE_OPERATION) -> Scenario:
    return replace(
        scenario,
        min_ranks=num_ranks,
        max_ranks=num_ranks,
        num_groups=num_groups,
        min_elements=elements,
        max_elements=elements,
    )


def most_at_once(messages: list[SimMessage]) -> int:
    begins = [(message.first_s, 1) for message in messages]
    leaves = [(message.last_s, -1) for message in messages]
    most = under_way = 0
    for _, change in sorted(begins + leaves):
        under_way += change
        most = max(most, under_way)
    return most


def num_rounds(result: SimRun, sender: int) -> int:
    """As in `test_rounds.py`: as many messages as are under way at once make a round. One that leaves in a single
    instant is one all the same."""
    stages: dict[tuple[bool, bool], list[SimMessage]] = defaultdict(list)
    for message in result.messages:
        if message.sender == sender:
            stages[message.between_groups, message.is_result].append(message)
    return sum(-(-len(stage) // max(1, most_at_once(stage))) for stage in stages.values())


def bytes_sent(result: SimRun, sender: int) -> int:
    return sum(message.payload_bytes for message in result.messages if message.sender == sender)


@pytest.mark.parametrize(("num_ranks", "num_groups", "rounds"), [(64, 16, 36), (16, 4, 12), (8, 2, 8), (8, 4, 8)])
def test_rounds_and_bytes_are_those_of_the_formula(num_ranks: int, num_groups: int, rounds: int) -> None:
    """2(m - 1) + 2(G - 1) rounds with one sender heard at a time, and every rank sends 2B (N - 1) / N."""
    elements = num_ranks * 8 * CHUNK_ELEMENTS
    scenario = replace(in_groups(num_ranks, num_groups, elements), rate_gbps=0.02, port_rate_gbps=0.02, protection=2)
    result = run(scenario, 1)
    assert not result.violations
    size = num_ranks // num_groups
    assert rounds == 2 * (size - 1) + 2 * (num_groups - 1)
    for rank in range(num_ranks):
        assert num_rounds(result, rank) == rounds
        sent = bytes_sent(result, rank)
        assert sent == 2 * elements * FOUR_BYTES * (num_ranks - 1) // num_ranks
        assert sent < 2 * elements * FOUR_BYTES


def test_nobody_sends_outside_its_group_and_its_counterparts() -> None:
    result = run(in_groups(12, 3, 12_000), 1)
    for message in result.messages:
        same_group = message.sender // 4 == message.receiver // 4
        same_place = message.sender % 4 == message.receiver % 4
        assert same_place if message.between_groups else same_group


def test_without_loss_everything_is_exact_and_replicas_are_equal() -> None:
    """For every format, size and number of ranks: the invariants compare each rank's memory with the one right value."""
    scenario = replace(load_scenario("clean"), num_groups=3, max_ranks=12)
    runs = run_many(scenario, 1, 40)
    assert runs.num_failed == 0, runs.failed[0].violations
    assert runs.delivered == runs.expected


FAULTS = [
    "call-late",
    "call-never",
    "clean-large",
    "death",
    "delay-black-hole-returns",
    "delay-clock-leap",
    "disorder-everything",
    "early-cap",
    "freeze-dead",
    "freeze-past-deadline",
    "incast-credit",
    "loss-1",
    "loss-20",
    "loss-bursts",
    "loss-every-mark",
    "loss-one-way-heals",
]


@pytest.mark.parametrize("num_groups", [2, 3])
@pytest.mark.parametrize("name", FAULTS)
def test_invariants_hold_in_groups(name: str, num_groups: int) -> None:
    scenario = load_scenario(name)
    scenario = replace(scenario, num_groups=num_groups, max_ranks=max(scenario.max_ranks, 3 * num_groups))
    runs = run_many(scenario, 1, 15)
    assert runs.num_failed == 0, f"seed {runs.failed[0].seed}: {runs.failed[0].violations}"


class Reports:
    """Keeps to the scenario and notes what each rank is told, operation by operation."""

    def __init__(self) -> None:
        self.missing: dict[int, list[int]] = defaultdict(list)
        self.delivered: dict[int, list[int]] = defaultdict(list)

    def choose(self, rank: int, operation: int, num_bytes: int) -> None:
        return None

    def learn(self, rank: int, report: OperationReport) -> None:
        self.missing[rank].append(sum(end - begin for begin, end in report.missing))
        self.delivered[rank].append(report.delivered)


def test_a_dead_rank_costs_its_group_a_shard_and_the_others_a_shard_of_that() -> None:
    """Rank 1 of 3 groups of 2 dies before the first call: its group lacks half of the bucket, the others a sixth.

    So it is from the first operation on, which waits for the dead rank to each bound, and after it is known to be dead.
    """
    elements = 6 * 32 * 16
    num_operations = 6
    scenario = replace(
        in_groups(6, 3, elements),
        num_operations=num_operations,
        step_ms=400.0,
        deadline_ms=200.0,
        dies=True,
        victim=1,
        fault_start_ms=0.0,
        expects_complete=False,
    )
    reports = Reports()
    result = run(scenario, 1, steering=reports)
    assert not result.violations
    assert reports.missing[0] == [elements // 2] * num_operations
    for rank in (2, 3, 4, 5):
        assert reports.missing[rank] == [elements // 6] * num_operations


def test_a_group_that_waits_for_a_rank_is_still_heard_by_the_others() -> None:
    """Rank 1 of 2 groups of 3 never calls. Its group waits for it to the bound of the first stage, and serves its shard
    without it: everybody gets everything of the five others."""
    elements = 6 * 32 * 16
    scenario = replace(
        in_groups(6, 2, elements),
        num_operations=3,
        step_ms=400.0,
        deadline_ms=200.0,
        calls_until=0,
        victim=1,
        expects_complete=False,
    )
    reports = Reports()
    result = run(scenario, 1, steering=reports)
    assert not result.violations
    for rank in (0, 2, 3, 4, 5):
        assert reports.missing[rank] == [0] * 3
        assert reports.delivered[rank] == [5 * elements] * 3


# -- bias -------------------------------------------------------------------------------------------------------------

SIGMAS = 3.0
UNBIASED = Scenario(
    name="unbiased in groups",
    num_notes=0,
    exact_ratio=0,
    sum_ratio=0,
    format=1,
    owner_bonus=3.0,
    rank_bias=0.2,
    deadline_ms=400,
    t_c_ms=10,
    datagram_bytes=512,
)


def bias_in_sigmas(runs: list[list[SimBlock]], estimate: Callable[[SimBlock], float]) -> float:
    by_shard: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for seed, blocks in enumerate(runs):
        for block in blocks:
            truth = sum(block.gradients) / len(block.gradients)
            by_shard[seed, block.operation, block.owner].append(estimate(block) - truth)
    means = [sum(errors) / len(errors) for errors in by_shard.values()]
    mean = sum(means) / len(means)
    variance = sum((value - mean) ** 2 for value in means) / (len(means) - 1)
    return mean / max(math.sqrt(variance / len(means)), 1e-7)


def plain_average_of_what_arrived(block: SimBlock) -> float:
    arrived = [value for rank, value in enumerate(block.gradients) if block.contributors >> rank & 1]
    return sum(arrived) / len(arrived)


@pytest.mark.parametrize(("num_ranks", "num_groups", "loss_ratio"), [(9, 3, 0.01), (9, 3, 0.05), (8, 2, 0.01)])
def test_lost_contributions_do_not_shift_the_mean(num_ranks: int, num_groups: int, loss_ratio: float) -> None:
    """Over seeds and a full rotation: after N calls every rank has summed every element."""
    scenario = replace(
        in_groups(num_ranks, num_groups, 512 * num_ranks, UNBIASED), num_operations=num_ranks, loss_ratio=loss_ratio
    )
    runs = []
    for seed in range(1, 9):
        result = run(scenario, seed, sample_blocks=True)
        assert not result.violations, f"seed {seed}: {result.violations}"
        runs.append(result.blocks)
    assert any(block.contributors.bit_count() < num_ranks for blocks in runs for block in blocks)
    assert abs(bias_in_sigmas(runs, lambda block: block.value)) < SIGMAS
    assert bias_in_sigmas(runs, plain_average_of_what_arrived) > SIGMAS
