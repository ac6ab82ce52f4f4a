"""An operation may take three tenths more than usual, and no longer, unless one in ten does."""

from __future__ import annotations

import random

import pytest

from holdfast.control.operation_limit import (
    CUT_IN_A_ROW,
    LEAST_OPERATIONS,
    REMEMBERED_OPERATIONS,
    TAIL,
    LimitMs,
    OperationLimit,
)


def taught(times_ms: list[float]) -> OperationLimit:
    limit = OperationLimit()
    for ms in times_ms:
        limit.observe([ms])
    return limit


def test_there_is_none_before_anything_is_usual() -> None:
    limit = taught([50.0] * (LEAST_OPERATIONS - 1))
    assert limit.ms is None
    assert "no limit" in limit.explain(least_ms=0.0)
    limit.observe([50.0])
    assert limit.ms == pytest.approx(TAIL * 50.0)
    assert f"last 65.0 ms at most (70.2 after late contributions): {TAIL:g} times the usual 50.0 ms" in limit.explain(
        least_ms=0.0
    )


def test_an_operation_takes_as_long_as_its_slowest_rank() -> None:
    limit = OperationLimit()
    for _ in range(LEAST_OPERATIONS):
        limit.observe([20.0, 60.0, 30.0])
    assert limit.ms == pytest.approx(TAIL * 60.0)


def test_rare_tails_do_not_move_it() -> None:
    noise = random.Random(5)
    times = [noise.gauss(50, 2) if noise.random() > 0.05 else noise.uniform(80, 150) for _ in range(400)]
    assert taught(times).ms == pytest.approx(TAIL * 50.0, rel=0.03)


def test_where_tails_are_the_rule_one_in_ten_is_longer_than_the_limit() -> None:
    noise = random.Random(6)
    times = [30.0 + noise.expovariate(1 / 30) for _ in range(1000)]
    limit = taught(times)
    assert limit.ms is not None
    assert limit.ms > TAIL * sorted(times)[500]
    assert sum(ms > limit.ms for ms in times[-REMEMBERED_OPERATIONS:]) <= 0.1 * REMEMBERED_OPERATIONS
    assert "90 % of the operations took no more" in limit.explain(least_ms=0.0)


def test_a_network_that_has_become_slower_is_learnt_anew_after_a_few_operations() -> None:
    limit = taught([50.0] * REMEMBERED_OPERATIONS)
    for _ in range(CUT_IN_A_ROW - 1):
        limit.observe_end(cut=True)
        limit.observe([150.0])
    assert limit.ms == pytest.approx(TAIL * 50.0), "a tail or two is no other network"
    limit.observe_end(cut=True)
    assert limit.ms is None
    for _ in range(LEAST_OPERATIONS):
        limit.observe_end(cut=False)
        limit.observe([150.0])
    assert limit.ms == pytest.approx(TAIL * 150.0)


def test_cut_now_and_then_is_not_cut_in_a_row() -> None:
    limit = taught([50.0] * REMEMBERED_OPERATIONS)
    for index in range(200):
        limit.observe_end(cut=index % 10 == 0)
        limit.observe([120.0 if index % 10 == 0 else 50.0])
    assert limit.ms is not None


def test_the_results_have_their_time_also_after_long_contributions() -> None:
    limit = LimitMs.of(100.0)
    assert limit.contributions < limit.whole
    # Half of an operation's bytes are results; with all of them still to come that is what they need.
    assert limit.results > 0.5 * limit.whole / TAIL - 1
    # And the operation is still within half more than usual, with a little for a late wake-up.
    assert (limit.contributions + limit.results) * TAIL < 1.45 * limit.whole


def test_a_floor_holds_and_is_said() -> None:
    limit = taught([3.0] * LEAST_OPERATIONS)
    assert limit.of_operation(least_ms=20.0).whole == 20.0
    assert "last 20.0 ms at most" in limit.explain(least_ms=20.0)
    assert "the floor; until the last rank had the result it usually took 3.0 ms" in limit.explain(least_ms=20.0)
