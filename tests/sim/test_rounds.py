"""With a credit of I an operation of N ranks takes 2 ceil((N - 1) / I) rounds (OptiReduce, sections 2.3 and 5).

A round is counted from the simulator's record of who sent to whom when: a message is under way from the moment its first
element leaves until its last one has left, and as many messages as are under way at once make a round. So N - 1 messages
of a stage, of which at most k are under way at once, take ceil((N - 1) / k) rounds, however long each of them is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast._native import OperationReport, SimCall, SimMessage
from holdfast.sim import Scenario, run

CASES = sorted({(ranks, credit) for ranks in (4, 8, 16) for credit in (1, 2, 3, ranks - 1)})
CHUNK_ELEMENTS = 352  # of float32 in a datagram of 1,472 bytes
SHARD_ELEMENTS = 100 * CHUNK_ELEMENTS  # a message takes a while to leave

ONE_OPERATION = Scenario(
    name="rounds",
    num_operations=1,
    num_notes=0,
    exact_ratio=0.0,
    format=1,
    deadline_ms=4000.0,
    call_skew_ms=0.0,
    rate_gbps=1.0,
    port_rate_gbps=1.0,
    port_queue_bytes=64 << 20,
    expects_complete=True,
)


def scenario_with(num_ranks: int, credit: int) -> Scenario:
    elements = num_ranks * SHARD_ELEMENTS
    return replace(
        ONE_OPERATION,
        min_ranks=num_ranks,
        max_ranks=num_ranks,
        credit=credit,
        min_elements=elements,
        max_elements=elements,
    )


def most_at_once(messages: Sequence[SimMessage]) -> int:
    """Where one begins as another has just left, they are not under way at once."""
    begins = [(message.first_s, 1) for message in messages]
    leaves = [(message.last_s, -1) for message in messages]
    most = under_way = 0
    for _, change in sorted(begins + leaves):
        under_way += change
        most = max(most, under_way)
    return most


def num_rounds(messages: Sequence[SimMessage]) -> int:
    """Of both stages together, for the messages that one rank sends, or hears."""
    rounds = 0
    for is_result in (False, True):
        stage = [message for message in messages if message.is_result == is_result]
        rounds += -(-len(stage) // most_at_once(stage))
    return rounds


@pytest.mark.parametrize(("num_ranks", "credit"), CASES)
def test_an_operation_takes_as_many_rounds_as_its_credit_says(num_ranks: int, credit: int) -> None:
    result = run(scenario_with(num_ranks, credit), 1)
    assert not result.violations
    assert len(result.messages) == 2 * num_ranks * (num_ranks - 1)
    rounds = 2 * -(-(num_ranks - 1) // credit)
    for rank in range(num_ranks):
        assert num_rounds([message for message in result.messages if message.receiver == rank]) == rounds
        assert num_rounds([message for message in result.messages if message.sender == rank]) == rounds


def test_without_a_credit_all_send_at_once() -> None:
    result = run(scenario_with(6, 0), 1)
    assert num_rounds([message for message in result.messages if message.receiver == 0]) == 2


class _ShortCreditOf:
    """One rank hears a single sender at a time, the others all."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def choose(self, rank: int, operation: int, num_bytes: int) -> SimCall:
        return SimCall(deadline_s=4.0, credit=1 if rank == self.rank else 0)

    def learn(self, rank: int, report: OperationReport) -> None:
        pass


def test_a_sender_keeps_to_the_smallest_credit_it_was_told() -> None:
    """The first operation tells; in the second all but the short rank itself send to one at a time."""
    elements = 4 * 8 * SHARD_ELEMENTS  # a path that knows its rate sends 2 ms of it at once
    scenario = replace(
        scenario_with(4, 0), num_operations=2, step_ms=500.0, min_elements=elements, max_elements=elements
    )
    result = run(scenario, 1, steering=_ShortCreditOf(2))
    assert not result.violations
    for rank, rounds in ((0, 6), (1, 6), (2, 2), (3, 6)):
        sent = [message for message in result.messages if message.operation == 1 and message.sender == rank]
        assert num_rounds(sent) == rounds, rank
