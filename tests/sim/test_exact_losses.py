"""What follows when exactly the packets that carry marks, ends, samples, credits or acks are lost, and no others.

The scenario files `loss-*` say what must hold over many seeds; here the consequence itself is asserted, with numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from holdfast._native import OperationReport, SimCall, SimRun, StageEnd
from holdfast.control.early_timeout import ALPHA, EarlyTimeout, stage_sample_ms
from holdfast.sim import Scenario, run

NUM_RANKS = 4
CHUNK_ELEMENTS = 352  # of float32 in a datagram of 1,472 bytes
NUM_CHUNKS = 100  # of a shard
MARKED_CHUNKS = 16  # the last percentile is at least so many packets
SHARD = NUM_CHUNKS * CHUNK_ELEMENTS
T_B_S = 0.3
WAIT_S = 0.04  # x t_C

PLAIN = Scenario(
    name="exact losses",
    min_ranks=NUM_RANKS,
    max_ranks=NUM_RANKS,
    min_elements=NUM_RANKS * SHARD,
    max_elements=NUM_RANKS * SHARD,
    num_operations=3,
    num_notes=0,
    exact_ratio=0.0,
    format=1,
    deadline_ms=2e3 * T_B_S,
    t_c_ms=1e3 * WAIT_S,
    early_wait_ratio=1.0,
    step_ms=2000.0,
    call_skew_ms=0.0,
)


class Reports:
    """Leaves every decision to the scenario and keeps what the ranks were told."""

    def __init__(self) -> None:
        self.by_operation: dict[int, dict[int, OperationReport]] = {}

    def choose(self, rank: int, operation: int, num_bytes: int) -> SimCall | None:
        return None

    def learn(self, rank: int, report: OperationReport) -> None:
        self.by_operation.setdefault(report.operation, {})[rank] = report

    def all(self) -> Iterable[OperationReport]:
        return (report for reports in self.by_operation.values() for report in reports.values())


def run_and_keep(scenario: Scenario, reports: Reports | None = None, seed: int = 1) -> tuple[SimRun, Reports]:
    reports = Reports() if reports is None else reports
    result = run(scenario, seed, steering=reports)
    assert not result.violations, f"seed {seed}: {result.violations}"
    assert len(list(reports.all())) == scenario.num_operations * NUM_RANKS
    return result, reports


def ends_of(reports: Reports) -> set[StageEnd]:
    return {end for report in reports.all() for end in (report.contributions_end, report.results_end)}


# ---------------------------------------------------------------------------------------------- marks and ends


def test_without_marks_and_ends_stages_end_at_t_b_and_the_rest_is_there() -> None:
    result, reports = run_and_keep(replace(PLAIN, mark_loss_ratio=1.0, end_loss_ratio=1.0))
    assert result.network["lost_ends"] > 0
    assert ends_of(reports) == {StageEnd.bound}
    unmarked = (NUM_CHUNKS - MARKED_CHUNKS) * CHUNK_ELEMENTS
    for reported in reports.by_operation.values():
        for rank, report in reported.items():
            assert report.contributions_s == pytest.approx(T_B_S, abs=1e-9)
            assert report.results_s == pytest.approx(T_B_S, abs=1e-9)
            for number, peer in enumerate(report.peers):
                if number == rank:
                    continue
                assert (peer.contributed, peer.contribution_size) == (unmarked, SHARD)
                assert (peer.results, peer.result_size) == (unmarked, SHARD)
            # The end of every shard is missing, and everything else stands for all ranks.
            missing = [(shard * SHARD + unmarked, (shard + 1) * SHARD) for shard in range(NUM_RANKS)]
            assert report.missing == missing
            assert report.delivered == NUM_RANKS * NUM_RANKS * unmarked


def test_without_marks_the_ends_end_stages_early() -> None:
    result, reports = run_and_keep(replace(PLAIN, mark_loss_ratio=1.0))
    assert result.network["lost_marks"] > 0
    assert result.network["lost_ends"] == 0
    assert ends_of(reports) == {StageEnd.early}
    assert max(report.contributions_s for report in reports.all()) < T_B_S / 2


@pytest.mark.parametrize("ends_lost", [0, 1, 2])
def test_the_last_of_three_ends_is_as_good_as_the_first(ends_lost: int) -> None:
    """Where everybody has said that all was sent, a quarter of the wait is enough."""
    scenario = replace(PLAIN, mark_loss_ratio=1.0, end_loss_ratio=min(1.0, ends_lost))
    result, reports = run_and_keep(replace(scenario, carriers_lost_first=max(1, ends_lost)))
    assert (result.network["lost_ends"] > 0) == (ends_lost > 0)
    assert ends_of(reports) == {StageEnd.early}
    assert max(report.contributions_s for report in reports.all()) < WAIT_S


def test_without_ends_the_marks_that_arrive_begin_the_whole_wait() -> None:
    """Of contributions. A result that was sent while its sum was open has few marks, and lost them all here."""
    result, reports = run_and_keep(replace(PLAIN, mark_loss_ratio=1.0, end_loss_ratio=1.0, carriers_lost_first=3))
    assert result.network["lost_ends"] > 0
    assert {report.contributions_end for report in reports.all()} == {StageEnd.early}
    for report in reports.all():
        assert WAIT_S < report.contributions_s < T_B_S / 2
        assert report.results_s <= T_B_S


# ---------------------------------------------------------------------------------------------- samples


class OneAnnounces(Reports):
    """Rank 0 says how long its stages took; the others do not know yet."""

    SAMPLE_US = 12_345

    def choose(self, rank: int, operation: int, num_bytes: int) -> SimCall:
        samples_us = (self.SAMPLE_US, self.SAMPLE_US) if rank == 0 else (0, 0)
        return SimCall(deadline_s=2 * T_B_S, early_wait_s=(WAIT_S, WAIT_S), samples_us=samples_us)


def samples_heard(reports: Reports) -> set[int]:
    """What the others heard from rank 0, of both stages."""
    heard = set()
    for reported in reports.by_operation.values():
        for rank in range(1, NUM_RANKS):
            peer = reported[rank].peers[0]
            heard |= {peer.contributions_sample_us, peer.results_sample_us}
    return heard


@pytest.mark.parametrize(
    "scenario",
    [
        PLAIN,
        replace(PLAIN, sample_loss_ratio=0.9),
        replace(PLAIN, sample_loss_ratio=1.0, carriers_lost_first=10),
    ],
    ids=["none lost", "nine of ten lost", "the first ten lost"],
)
def test_a_sample_arrives_with_any_packet_of_its_message(scenario: Scenario) -> None:
    result, reports = run_and_keep(scenario, OneAnnounces())
    assert (result.network["lost_samples"] > 0) == (scenario.sample_loss_ratio > 0)
    assert samples_heard(reports) == {OneAnnounces.SAMPLE_US}


def test_a_sample_that_never_arrives_is_unknown_and_t_c_follows_the_samples_there_are() -> None:
    result, reports = run_and_keep(replace(PLAIN, sample_loss_ratio=1.0), OneAnnounces())
    assert result.network["lost_samples"] > 0
    assert samples_heard(reports) == {0}
    for reported in reports.by_operation.values():
        for rank in range(1, NUM_RANKS):
            report = reported[rank]
            assert [report.peers[peer].contributed for peer in range(NUM_RANKS) if peer not in (0, rank)] == [SHARD] * 2
            assert report.peers[0].contributed == 0  # all of its message carried the sample
            assert report.contributions_s == pytest.approx(T_B_S, abs=1e-9)
            early = EarlyTimeout(100.0)
            own_ms = stage_sample_ms("bound", report.contributions_s * 1e3, T_B_S * 1e3, 2, 3)
            early.update(own_ms, [peer.contributions_sample_us / 1e3 or None for peer in report.peers])
            assert early.t_c_ms == pytest.approx(ALPHA * T_B_S * 1e3 + (1 - ALPHA) * 100.0)
            assert "the median of 1 ranks" in early.explain()


# ---------------------------------------------------------------------------------------------- credits and acks

# All ranks change their credit with the first operation, which rank 0 calls a little later than the others: when it
# begins to send, what they sent has told it, or was lost.
CHANGING = replace(PLAIN, num_operations=1, victim=0, late_call_ms=20.0, rate_gbps=1.0, port_rate_gbps=1.0)
CHANGES = [(0, 1), (1, 3)]


def begun_at_once(result: SimRun) -> int:
    """How many of its contributions rank 0 begins before the first of them has left."""
    own = [message for message in result.messages if message.sender == 0 and not message.is_result]
    first_left_s = min((message.last_s for message in own if message.num_datagrams == NUM_CHUNKS), default=math.inf)
    return sum(message.first_s < first_left_s for message in own)


@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize("lost_first", [0, 2])
def test_a_credit_is_in_force_as_soon_as_one_packet_brings_it(before: int, after: int, lost_first: int) -> None:
    scenario = replace(CHANGING, credit=before, later_credit=after, credit_loss_ratio=min(1.0, lost_first))
    result, _ = run_and_keep(replace(scenario, carriers_lost_first=lost_first))
    assert (result.network["lost_credits"] > 0) == (lost_first > 0)
    assert begun_at_once(result) == after


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_while_a_change_of_credit_is_lost_the_last_known_one_is_in_force(before: int, after: int) -> None:
    scenario = replace(CHANGING, credit=before, later_credit=after, credit_loss_ratio=1.0)
    result, _ = run_and_keep(replace(scenario, carriers_lost_first=10 * NUM_CHUNKS))
    assert result.network["lost_credits"] > 0
    assert begun_at_once(result) == (before or NUM_RANKS - 1)


def test_where_every_change_of_credit_is_lost_nothing_waits_for_it() -> None:
    """Every packet carries the credit, so nobody is heard any more: stages end at t_B, and empty."""
    scenario = replace(PLAIN, credit=1, later_credit=3, later_credit_from=1, credit_loss_ratio=1.0)
    _, reports = run_and_keep(scenario)
    assert all(report.delivered == report.expected for report in reports.by_operation[0].values())
    for rank, report in reports.by_operation[1].items():
        assert all(peer.contributed == 0 for number, peer in enumerate(report.peers) if number != rank)
        assert report.contributions_s == pytest.approx(T_B_S, abs=1e-9)


def test_without_acks_as_much_arrives_as_a_window_holds() -> None:
    window_bytes = 64 << 10
    buffer_bytes = (NUM_RANKS - 1) * window_bytes
    scenario = replace(PLAIN, ack_loss_ratio=1.0, receive_buffer_bytes=buffer_bytes, num_operations=1, step_ms=1.0)
    _, reports = run_and_keep(scenario)
    for rank, report in reports.by_operation[0].items():
        assert report.contributions_s == pytest.approx(T_B_S, abs=1e-9)
        for number, peer in enumerate(report.peers):
            assert number == rank or 0 < 4 * peer.contributed <= window_bytes
