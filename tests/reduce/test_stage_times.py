"""How long a warm-up's stages lasted, which is what t_B is made of."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.outcome import Outcome, PeerOutcome
from holdfast.reduce.report import stage_times_ms

PEERS = tuple(
    PeerOutcome(
        rank,
        1.0,
        1.0,
        contribution_arrived_ms=(1.0, 50.0),
        results_arrived_ms=(first_ms, 54.0),
        shard_elements=3,
        alive=True,
    )
    for rank, first_ms in ((1, 12.0), (2, 9.0))
)
OUTCOME = Outcome(
    rank=0, operation=0, bucket=0, num_elements=9, num_bytes=36, exact=True, called_ms=0.0, elapsed_ms=55.0, deadline_ms=100.0,
    delivered_ratio=1.0, contributions_end="complete", results_end="complete", contributions_ms=50.0, results_ms=5.0, early_wait_ms=None,
    missing=(), peers=PEERS,
)  # fmt: skip


def test_the_second_stage_counts_from_the_first_result_that_came() -> None:
    assert stage_times_ms(OUTCOME) == (50.0, pytest.approx(46.0))


def test_without_results_it_counts_from_the_close_of_the_first() -> None:
    silent = tuple(dataclasses.replace(peer, results_arrived_ms=None) for peer in PEERS)
    assert stage_times_ms(dataclasses.replace(OUTCOME, peers=silent)) == (50.0, 5.0)


def test_it_never_counts_less_than_what_was_left_after_the_first() -> None:
    late = tuple(dataclasses.replace(peer, results_arrived_ms=(53.0, 54.0)) for peer in PEERS)
    assert stage_times_ms(dataclasses.replace(OUTCOME, peers=late)) == (50.0, 5.0)
