"""The real policies on the real core in virtual time: t_B, t_C, x and the credit as a job would have them.

First the warm-up, over exact delivery; then some hundred bounded operations, each called as `holdfast.control` says and
each teaching it. Pairs stall now and then, which gives operations the tails of shared clouds (p99/p50 about 1.5 and 3),
and one packet in a hundred is lost, so that most stages cannot be complete. Where x settles in the long run is shown by
`tests/control/test_early_wait.py` with a model; here it is held against what the core itself reports as late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import mean, median

import pytest

from holdfast._native import OperationReport, SimCall
from holdfast.control.adaptation import Adaptation, PacketsSeen
from holdfast.control.early_timeout import StageEnd
from holdfast.control.early_wait import LATE_SHARE_HIGH
from holdfast.control.hard_bound import NUM_WARM_UP_OPERATIONS, HardBound, nearest_rank
from holdfast.reduce.report import late_ratio, stages_seen
from holdfast.sim import Scenario, run

NUM_RANKS = 4
ELEMENTS = NUM_RANKS * 24 * 352
NUM_BYTES = 4 * ELEMENTS
KEY = (0, NUM_BYTES)
NUM_OPERATIONS = 300
ROUNDING_MS = 1e-6

SHARED = Scenario(
    name="shared",
    min_ranks=NUM_RANKS,
    max_ranks=NUM_RANKS,
    min_elements=ELEMENTS,
    max_elements=ELEMENTS,
    num_notes=0,
    format=1,
    step_ms=60.0,
    rate_gbps=1.0,
    port_rate_gbps=1.0,
    stalls_per_second=2.0,
    stall_shape=4.0,
)


class WarmUp:
    """Exact operations, as the scenario says, and how long they took."""

    def __init__(self) -> None:
        self.stages_ms: list[list[float]] = [[] for _ in range(NUM_RANKS)]
        self.operations_ms: list[float] = []

    def choose(self, rank: int, operation: int, num_bytes: int) -> SimCall | None:
        return None

    def learn(self, rank: int, report: OperationReport) -> None:
        self.stages_ms[rank] += [report.contributions_s * 1e3, report.results_s * 1e3]
        self.operations_ms.append(report.elapsed_s * 1e3)


class Policies:
    """One `Adaptation` for each rank, asked and taught as `holdfast.reduce.transpose` does it."""

    def __init__(self, bound: HardBound) -> None:
        limits = {"least_wait_ratio": 0.01, "most_wait_ratio": 0.5, "wait_floor_ms": 0.1}
        self.of_rank = [Adaptation(bound, NUM_RANKS, **limits) for _ in range(NUM_RANKS)]
        self.ends: Counter[StageEnd] = Counter()
        self.late_ratios: list[list[float]] = [[] for _ in range(NUM_RANKS)]
        self.over_bound_ms: list[float] = []
        self.operations_ms = [0.0] * NUM_OPERATIONS
        self.t_b_ms: dict[tuple[int, int], float] = {}

    def choose(self, rank: int, operation: int, num_bytes: int) -> SimCall:
        timing = self.of_rank[rank].timing(KEY)
        self.t_b_ms[rank, operation] = timing.stage_ms
        waits_ms, samples_ms = timing.early_wait_ms, timing.samples_ms
        return SimCall(
            deadline_s=2e-3 * timing.stage_ms,
            early_wait_s=(waits_ms[0] / 1e3, waits_ms[1] / 1e3),
            samples_us=(int(samples_ms[0] * 1e3), int(samples_ms[1] * 1e3)),
            credit=self.of_rank[rank].credit,
            limit_s=(timing.limit_ms.contributions / 1e3, timing.limit_ms.whole / 1e3, timing.limit_ms.results / 1e3),
        )

    def learn(self, rank: int, report: OperationReport) -> None:
        stages, late = stages_seen(report, rank), late_ratio(report, rank)
        packets = PacketsSeen(report.datagrams_expected, report.datagrams_received)
        self.of_rank[rank].observe(KEY, stages, late, packets)
        self.late_ratios[rank].append(late)
        slowest_ms = max(self.operations_ms[report.operation], report.elapsed_s * 1e3)
        self.operations_ms[report.operation] = slowest_ms
        for stage in stages:
            self.ends[stage.end] += 1
            self.over_bound_ms.append(stage.elapsed_ms - self.t_b_ms[rank, report.operation])


def tail_of(scenario: Scenario) -> float:
    """p99/p50 of exact operations on this network, without the loss."""
    measured = WarmUp()
    run(replace(scenario, exact_ratio=1.0, num_operations=100), 1, steering=measured)
    return p99_over_p50(measured.operations_ms)


def p99_over_p50(times_ms: list[float]) -> float:
    in_order = sorted(times_ms)
    return in_order[nearest_rank(99, len(in_order))] / in_order[nearest_rank(50, len(in_order))]


@pytest.mark.parametrize(("stall_ms", "tail"), [(0.7, (1.2, 2.0)), (3.5, (2.4, 4.0))], ids=["tail 1.5", "tail 3"])
def test_stages_end_by_t_b_and_mostly_by_t_c(stall_ms: float, tail: tuple[float, float]) -> None:
    stalling = replace(SHARED, stall_scale_ms=stall_ms)
    assert tail[0] < tail_of(stalling) < tail[1]
    lossy = replace(stalling, loss_ratio=0.01)

    warm_up = WarmUp()
    run(replace(lossy, exact_ratio=1.0, num_operations=NUM_WARM_UP_OPERATIONS), 2, steering=warm_up)
    bound = HardBound.measured(warm_up.stages_ms, NUM_BYTES, floor_ms=1.0)
    assert sum(ms > bound.t_b_ms for stages in warm_up.stages_ms for ms in stages) <= 0.05 * 2 * 20 * NUM_RANKS

    policies = Policies(bound)
    result = run(replace(lossy, exact_ratio=0.0, num_operations=NUM_OPERATIONS), 3, steering=policies)
    assert not result.violations
    assert policies.ends.total() == 2 * NUM_OPERATIONS * NUM_RANKS
    assert max(policies.over_bound_ms) < ROUNDING_MS
    assert policies.ends["early"] >= 10 * policies.ends["bound"] > 0
    # Once it is known what is usual; the others had the tail of the network.
    assert p99_over_p50(policies.operations_ms[20:]) < 1.5
    assert policies.ends["early"] >= 10 * policies.ends["limit"] > 0
    # Of the rank in the middle: one stall that lets the last packets overtake most of a stage is a whole rank's share.
    assert median(mean(ratios[NUM_OPERATIONS // 2 :]) for ratios in policies.late_ratios) <= LATE_SHARE_HIGH
    # What the network drops is no reason to wait longer, and no incast.
    assert result.delivered / result.expected > 1 - 2.5 * lossy.loss_ratio
    assert {policy.credit for policy in policies.of_rank} == {NUM_RANKS - 1}
