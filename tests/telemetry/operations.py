"""Outcomes as they come, for tests: one of a quiet network, from which the others follow by what went wrong."""

from __future__ import annotations

import dataclasses

from holdfast.outcome import Outcome, PeerOutcome

QUICK = PeerOutcome(
    rank=0,
    contributed_ratio=1.0,
    results_ratio=1.0,
    contribution_arrived_ms=(1.0, 20.0),
    results_arrived_ms=(15.0, 38.0),
    shard_elements=250,
    alive=True,
)
SLOW = dataclasses.replace(QUICK, rank=2, contribution_arrived_ms=(2.0, 22.0), results_arrived_ms=(16.0, 40.0))
QUIET = Outcome(
    rank=1,
    operation=7,
    bucket=3,
    num_elements=750,
    num_bytes=3_000,
    exact=False,
    called_ms=0.0,
    elapsed_ms=40.0,
    deadline_ms=100.0,
    delivered_ratio=1.0,
    contributions_end="complete",
    results_end="complete",
    contributions_ms=22.0,
    results_ms=18.0,
    early_wait_ms=(5.0, 6.0),
    missing=(),
    peers=(QUICK, SLOW),
)


def with_peer(outcome: Outcome, rank: int, **changes: object) -> Outcome:
    peers = tuple(
        dataclasses.replace(peer, **changes) if peer.rank == rank else peer  # type: ignore[arg-type]
        for peer in outcome.peers
    )
    return dataclasses.replace(outcome, peers=peers)


CUT_OFF = dataclasses.replace(
    with_peer(QUIET, 2, contributed_ratio=0.25, results_ratio=0.0, results_arrived_ms=None),
    delivered_ratio=0.6,
    contributions_end="bound",
    contributions_ms=50.0,
    results_end="bound",
    results_ms=50.0,
    elapsed_ms=100.0,
)
GIVEN_UP = dataclasses.replace(
    with_peer(QUIET, 0, contributed_ratio=0.996),
    delivered_ratio=0.999,
    contributions_end="early",
    contributions_ms=27.1,
    results_ms=12.9,
)
DEAD = dataclasses.replace(
    with_peer(
        QUIET,
        2,
        contributed_ratio=0.0,
        results_ratio=0.0,
        contribution_arrived_ms=None,
        results_arrived_ms=None,
        alive=False,
    ),
    delivered_ratio=0.44,
    contributions_ms=20.0,
    results_ms=18.0,
    elapsed_ms=38.0,
)
CALLED_LATE = dataclasses.replace(QUIET, called_ms=60.0, elapsed_ms=5.0, contributions_ms=60.0, results_ms=5.0)
ALONE = dataclasses.replace(
    QUIET, rank=0, peers=(), elapsed_ms=0.0, contributions_ms=0.0, results_ms=0.0, early_wait_ms=None
)
