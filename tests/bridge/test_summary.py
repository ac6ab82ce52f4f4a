"""Sums over operations, and percentiles of their times."""

from __future__ import annotations

import pytest

from holdfast.bridge.summary import Totals, percentile
from holdfast.outcome import Outcome, PeerOutcome


def outcome(**changes: object) -> Outcome:
    values: dict[str, object] = {
        "rank": 0,
        "operation": 0,
        "bucket": 0,
        "num_elements": 100,
        "num_bytes": 400,
        "exact": False,
        "called_ms": 0.0,
        "elapsed_ms": 1.0,
        "deadline_ms": 20.0,
        "delivered_ratio": 1.0,
        "contributions_end": "complete",
        "results_end": "complete",
        "contributions_ms": 0.5,
        "results_ms": 0.5,
        "early_wait_ms": (5.0, 5.0),
        "missing": (),
        "peers": (),
    }
    return Outcome(**{**values, **changes})  # type: ignore[arg-type]


def test_totals_weigh_by_elements_and_rank_stragglers() -> None:
    late = PeerOutcome(
        rank=3,
        contributed_ratio=0.5,
        results_ratio=1.0,
        contribution_arrived_ms=(0.5, 1.0),
        results_arrived_ms=None,
        shard_elements=25,
        alive=True,
    )
    totals = Totals()
    assert totals.delivered_ratio == 1.0
    totals.add(outcome(exact=True))
    totals.add(outcome(num_elements=300, delivered_ratio=0.5, contributions_end="bound", peers=(late,)))
    totals.add(outcome(results_end="early", contributions_end="limit", peers=(late,)))
    assert totals.delivered_ratio == pytest.approx((100 + 150 + 100) / 500)
    assert (totals.operations, totals.exact_operations) == (3, 1)
    assert (totals.ended_early, totals.ended_at_limit, totals.ended_at_bound) == (1, 1, 1)
    assert totals.incomplete_by_peer == {3: 2}


@pytest.mark.parametrize(("share", "value"), [(0.5, 51.0), (0.99, 100.0), (0.0, 1.0), (1.0, 100.0)])
def test_percentiles(share: float, value: float) -> None:
    assert percentile([float(n) for n in range(1, 101)], share) == value


def test_percentile_of_nothing() -> None:
    assert percentile([], 0.5) == 0.0
