"""What becomes of operations in a table: quantiles, bounds, and who counts when a host is frozen."""

from __future__ import annotations

import pytest

from holdfast.lab.bench.grid import observe, traffic_to_wait_for
from holdfast.lab.bench.row import Measured, Operation, Setting, Tally, summarise, wire_bytes_per_rank
from holdfast.lab.bench.stages import Stage
from holdfast.lab.peer import peer_named
from holdfast.lab.quantile import quantile
from holdfast.lab.stolen import ProcessorTime

LAB = Setting("clean", 4, 1 << 20, 7, None, 250e6)
MS = 1_000_000


def measured(ended_ms: float, ratio: float = 1.0, missing: dict[int, float] | None = None) -> Measured:
    return Measured(0, int(ended_ms * MS), ratio, missing or {}, 0)


def test_an_operation_takes_as_long_as_its_slowest_rank() -> None:
    operation = observe(1 * MS, [measured(5), measured(9), measured(4)], (), 0.002)
    assert operation.seconds == pytest.approx(0.008)
    assert operation.capacity_bound_s == 0.002


def test_a_frozen_host_is_not_waited_for_and_not_held_against_the_others() -> None:
    # Rank 2 was frozen: it is late, it lacks much, and the others lack what it did not send.
    ranks = [measured(5, 0.8, {2: 0.8}), measured(6, 0.7, {0: 0.1, 2: 0.8}), measured(400, 0.2, {0: 1.0, 1: 1.0})]
    operation = observe(0, ranks, (2,), None)
    assert operation.seconds == pytest.approx(0.006)
    assert operation.delivered_ratio == pytest.approx(0.75)
    assert operation.missing_elsewhere == pytest.approx(0.05)
    assert operation.frozen_hosts == (2,)


def test_when_all_are_frozen_all_of_them_count() -> None:
    assert observe(0, [measured(5), measured(6)], (0, 1), None).seconds == pytest.approx(0.006)


def test_a_row_holds_quantiles_bounds_and_frozen_operations_apart() -> None:
    tally = Tally()
    tally.operations = [Operation(0.001 * number, 1.0, 0, 0.0005 * number) for number in range(1, 100)]
    tally.operations.append(Operation(0.4, 0.9, 0, 0.3, (1,), 0.02))
    tally.lateness.add([(300.0, 999), (1_900.0, 1)])
    tally.lost.update({"random": 3, "queue": 0})
    row = summarise(peer_named("gloo-tuned"), LAB, tally, attempts=2)
    assert (row.p50_ms, row.p99_ms, row.max_ms) == pytest.approx((50, 99, 400))
    assert row.lower_bound_ms == pytest.approx(1.5 * (1 << 20) * 8 / 250e6 * 1e3)
    assert (row.capacity_bound_p50_ms, row.capacity_bound_p99_ms) == pytest.approx((25, 49.5))
    assert (row.congestion_control, row.rto_min_ms) == ("bbr", 5)
    assert row.lost_packets == {"random": 3}
    assert (row.late_p999_ms, row.noisy, row.attempts) == (pytest.approx(0.3), False, 2)
    assert (row.frozen_operations, row.frozen_p99_ms) == (1, pytest.approx(400))
    assert row.frozen_delivered_ratio == pytest.approx(0.98)


def test_where_a_host_was_frozen_delivered_is_also_counted_among_the_others() -> None:
    tally = Tally([Operation(0.1, 0.98, 0, None, missing_elsewhere=0.01), Operation(0.1, 0.7, 0, None, (2,), 0.04)])
    row = summarise(peer_named("holdfast"), LAB, tally, attempts=1)
    assert row.delivered_ratio == pytest.approx(0.84)
    assert row.unfrozen_delivered_ratio == pytest.approx(0.97)


def test_a_row_tells_stages_lateness_and_the_machine() -> None:
    early, bound = Stage("early", -2.0), Stage("bound", 0.5)
    ranks = [
        Measured(0, 5 * MS, 1.0, {}, 0, (early, bound), 0.002),
        Measured(0, 5 * MS, 1.0, {}, 0, (early, early), 0.0),
    ]
    operation = observe(0, ranks, (), None)
    assert operation.stages == (early, bound, early, early)
    assert operation.late_ratio == pytest.approx(0.001)
    # Only the last hundred count, as for x.
    old = Operation(0.1, 1.0, 0, None, stages=(early,), late_ratio=1.0)
    tally = Tally([old, *[operation] * 100], sent=700, processor=ProcessorTime(stolen=3, total=60))
    row = summarise(peer_named("holdfast"), LAB, tally, attempts=1)
    assert row.late_ratio == pytest.approx(0.001)
    assert row.stage_ends == pytest.approx({"bound": 100 / 401, "early": 301 / 401})
    assert (row.stage_over_bound_p999_ms, row.stage_over_bound_max_ms) == (0.5, 0.5)
    assert (row.sent_packets, row.stolen_ratio) == (700, pytest.approx(0.05))


def test_a_late_switch_makes_a_row_noisy() -> None:
    tally = Tally(operations=[Operation(0.1, 1.0, 0, None)])
    tally.lateness.add([(100.0, 99), (2_500.0, 1)])
    assert summarise(peer_named("holdfast"), LAB, tally, attempts=3).noisy


def test_loopback_has_neither_bounds_nor_a_switch() -> None:
    row = summarise(
        peer_named("gloo"), Setting("loopback", 2, 8192, 0, None, None), Tally([Operation(0.1, 1.0, 0, None)]), 1
    )
    assert row.lower_bound_ms is row.capacity_bound_p50_ms is row.late_p999_ms is row.congestion_control is None
    assert not row.noisy


def test_half_the_bits_are_half_the_bytes() -> None:
    assert wire_bytes_per_rank(peer_named("gloo-tuned"), 4, 1000) == 1500
    assert wire_bytes_per_rank(peer_named("gloo-tuned-bf16"), 4, 1000) == 750
    assert wire_bytes_per_rank(peer_named("holdfast-bf16"), 4, 1000) == 750


def test_quantiles_are_values_that_were_measured() -> None:
    assert [quantile([3.0, 1.0, 2.0], share) for share in (0.0, 0.34, 0.5, 0.99, 1.0)] == [1.0, 2.0, 2.0, 3.0, 3.0]


def test_the_bound_leaves_out_what_a_frozen_host_would_send_and_take() -> None:
    assert traffic_to_wait_for(1500, 4, ()) == [1500] * 4
    assert traffic_to_wait_for(1500, 4, (2,)) == [1000, 1000, 0, 1000]
    assert traffic_to_wait_for(1500, 4, (0, 1, 2, 3)) == [1500] * 4


def test_ranks_that_woke_late_make_a_row_noisy() -> None:
    tally = Tally(operations=[Operation(0.1, 1.0, 0, None, woke_late_s=0.003)])
    tally.lateness.add([(100.0, 1000)])
    row = summarise(peer_named("holdfast"), LAB, tally, attempts=1)
    assert row.woke_late_p99_ms == pytest.approx(3)
    assert row.noisy
