"""What an outcome says about an operation in which something did not arrive."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from holdfast.outcome import Outcome, PeerOutcome

WHOLE = PeerOutcome(
    rank=1,
    contributed_ratio=1.0,
    results_ratio=1.0,
    contribution_arrived_ms=(1.0, 1.5),
    results_arrived_ms=(1.5, 2.0),
    shard_elements=250,
    alive=True,
)
LATE = PeerOutcome(
    rank=2,
    contributed_ratio=0.25,
    results_ratio=1.0,
    contribution_arrived_ms=(0.5, 7.5),
    results_arrived_ms=(5.0, 6.0),
    shard_elements=250,
    alive=True,
)
DEAD = PeerOutcome(
    rank=3,
    contributed_ratio=0.0,
    results_ratio=0.0,
    contribution_arrived_ms=None,
    results_arrived_ms=None,
    shard_elements=250,
    alive=False,
)


def outcome(**changes: object) -> Outcome:
    base = Outcome(
        rank=0,
        operation=9,
        bucket=0,
        num_elements=1_000,
        num_bytes=4_000,
        exact=False,
        called_ms=0.0,
        elapsed_ms=12.0,
        deadline_ms=20.0,
        delivered_ratio=0.5,
        contributions_end="bound",
        results_end="early",
        contributions_ms=10.0,
        results_ms=2.0,
        early_wait_ms=(5.0, 5.0),
        missing=((10, 20), (500, 750)),
        peers=(WHOLE, LATE, DEAD),
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_late_peers_are_those_of_whom_something_is_missing() -> None:
    assert outcome().late_peers == (2, 3)
    assert outcome(peers=(WHOLE,)).late_peers == ()


@pytest.mark.parametrize(("contributed", "results"), [(1.0, 0.99), (0.99, 1.0), (0.0, 0.0)])
def test_a_peer_is_complete_only_with_both_parts(contributed: float, results: float) -> None:
    assert WHOLE.complete
    assert not dataclasses.replace(WHOLE, contributed_ratio=contributed, results_ratio=results).complete


def test_missing_elements_are_counted() -> None:
    assert outcome().missing_elements == 260
    assert outcome(missing=()).missing_elements == 0


def test_what_the_peers_do_not_sum_is_this_ranks_shard() -> None:
    assert outcome().shard_elements == 250
    assert outcome(peers=()).shard_elements == 1_000


def test_the_end_counts_from_the_opening() -> None:
    assert outcome(called_ms=30.0).ended_ms == 42.0


def test_complete_means_everything_was_delivered() -> None:
    assert not outcome().complete
    assert outcome(delivered_ratio=1.0).complete


def test_the_description_names_culprits_and_only_them() -> None:
    assert outcome().describe() == (
        "operation 9: 50.00% delivered in 12.0 of at most 20.0 ms (contributions bound, results early)"
        "; rank 2: 25.0% of its contribution, 100.0% of its results, last heard at 7.5 ms"
        "; rank 3, dead: 0.0% of its contribution, 0.0% of its results, nothing came"
    )
    assert "rank" not in outcome(peers=(WHOLE,)).describe()


def test_outcomes_are_values() -> None:
    assert pickle.loads(pickle.dumps(outcome())) == outcome()
    with pytest.raises(dataclasses.FrozenInstanceError):
        outcome().operation = 1  # type: ignore[misc]
