"""How long a warm-up's stages lasted, which is what t_B is made of."""

from __future__ import annotations

import dataclasses

import pytest
from telemetry.operations import QUICK, QUIET

from holdfast.reduce.report import stage_times_ms

PEERS = tuple(
    dataclasses.replace(QUICK, rank=rank, results_arrived_ms=(ms, 54.0)) for rank, ms in ((1, 12.0), (2, 9.0))
)
OUTCOME = dataclasses.replace(QUIET, rank=0, contributions_ms=50.0, results_ms=5.0, elapsed_ms=55.0, peers=PEERS)


def test_the_second_stage_counts_from_the_first_result_that_came() -> None:
    assert stage_times_ms(OUTCOME) == (50.0, pytest.approx(46.0))


def test_without_results_it_counts_from_the_close_of_the_first() -> None:
    silent = tuple(dataclasses.replace(peer, results_arrived_ms=None) for peer in PEERS)
    assert stage_times_ms(dataclasses.replace(OUTCOME, peers=silent)) == (50.0, 5.0)


def test_it_never_counts_less_than_what_was_left_after_the_first() -> None:
    late = tuple(dataclasses.replace(peer, results_arrived_ms=(53.0, 54.0)) for peer in PEERS)
    assert stage_times_ms(dataclasses.replace(OUTCOME, peers=late)) == (50.0, 5.0)
