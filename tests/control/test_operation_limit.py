"""An operation may take as long as nineteen of twenty do, within limits, and longer where one in ten does."""

from __future__ import annotations

import random

import pytest

from holdfast.control.operation_limit import (
    CUT_IN_A_ROW,
    LEAST_OPERATIONS,
    REMEMBERED_OPERATIONS,
    ROOM,
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
    assert limit.ms == pytest.approx(ROOM * 50.0)
    assert f"last 55.0 ms at most (70.2 after late contributions): {ROOM:g} times the usual 50.0 ms" in limit.explain(
        least_ms=0.0
    )


def test_an_operation_takes_as_long_as_its_slowest_rank() -> None:
    limit = OperationLimit()
    for _ in range(LEAST_OPERATIONS):
        limit.observe([20.0, 60.0, 30.0])
    assert limit.ms == pytest.approx(ROOM * 60.0)


def test_rare_tails_do_not_move_it() -> None:
    noise = random.Random(5)
    times = [noise.gauss(50, 2) if noise.random() > 0.03 else noise.uniform(80, 150) for _ in range(400)]
    assert taught(times).ms == pytest.approx(ROOM * 50.0, rel=0.03)


def test_short_tails_are_cut_where_one_in_twenty_begins() -> None:
    noise = random.Random(7)
    times = [noise.gauss(50, 5) for _ in range(1000)]
    limit = taught(times)
    assert limit.ms is not None
    assert ROOM * 50.0 < limit.ms < TAIL * 50.0
    assert 0.03 < sum(ms > limit.ms for ms in times[-REMEMBERED_OPERATIONS:]) / REMEMBERED_OPERATIONS <= 0.05
    assert "95 % of the operations took no more" in limit.explain(least_ms=0.0)


def test_tails_that_are_longer_are_cut_at_three_tenths_more_than_usual() -> None:
    noise = random.Random(8)
    times = [noise.gauss(50, 2) if index % 13 else noise.uniform(80, 150) for index in range(400)]
    limit = taught(times)
    assert limit.ms == pytest.approx(TAIL * 50.0, rel=0.03)
    assert f"{TAIL:g} times the usual" in limit.explain(least_ms=0.0)


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
    assert limit.ms == pytest.approx(ROOM * 50.0), "a tail or two is no other network"
    limit.observe_end(cut=True)
    assert limit.ms is None
    for _ in range(LEAST_OPERATIONS):
        limit.observe_end(cut=False)
        limit.observe([150.0])
    assert limit.ms == pytest.approx(ROOM * 150.0)


def test_cut_now_and_then_is_not_cut_in_a_row() -> None:
    limit = taught([50.0] * REMEMBERED_OPERATIONS)
    for index in range(200):
        limit.observe_end(cut=index % 10 == 0)
        limit.observe([120.0 if index % 10 == 0 else 50.0])
    assert limit.ms is not None


def test_the_results_have_their_time_also_after_long_contributions() -> None:
    for whole_ms in (ROOM * 100.0, TAIL * 100.0):
        limit = LimitMs.of(whole_ms, usual_ms=100.0)
        assert 90.0 < limit.contributions < limit.whole
        # Half of an operation's bytes are results; with all of them still to come that is what they need.
        assert limit.results == pytest.approx(50.0, abs=1.0)
        # And the operation is still within half more than usual, with a little for a late wake-up.
        assert limit.contributions + limit.results < 145.0


def test_late_results_get_less_time_where_they_leave_in_sixteen_bits() -> None:
    limit = OperationLimit([100.0] * 20)
    wide = limit.of_operation(least_ms=0.0)
    limit.narrows = True
    narrow = limit.of_operation(least_ms=0.0)
    assert narrow.results < wide.results
    assert narrow.contributions > wide.contributions
    assert narrow.whole == wide.whole
    assert narrow.contributions + narrow.results < 140.0


def test_long_tails_are_cut_sooner_where_they_leave_in_sixteen_bits() -> None:
    times = [100.0] * 170 + [float(ms) for ms in range(140, 170)]
    limits = []
    for narrows in (False, True):
        limit = OperationLimit()
        limit.narrows = narrows
        for ms in times:
            limit.observe([ms])
        limits.append(limit.ms)
    assert limits[0] is not None
    assert limits[1] is not None
    assert TAIL * 100.0 < limits[1] < limits[0]
    assert "88 % of the operations took no more" in limit.explain(least_ms=0.0)


def test_a_floor_holds_and_is_said() -> None:
    limit = taught([3.0] * LEAST_OPERATIONS)
    assert limit.of_operation(least_ms=20.0).whole == 20.0
    assert "last 20.0 ms at most" in limit.explain(least_ms=20.0)
    assert "the floor; until the last rank had the result it usually took 3.0 ms" in limit.explain(least_ms=20.0)
