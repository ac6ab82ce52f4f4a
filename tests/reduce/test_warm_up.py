"""What all ranks make of the operations before the first bounded one."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

from telemetry.operations import QUIET

from holdfast.reduce.warm_up import WarmUpTimes, measured

COUNT = 3


def report(*silences_s: float) -> Any:
    peers = [
        SimpleNamespace(alive=True, silence_s=silence_s, contribution_size=1, result_size=1) for silence_s in silences_s
    ]
    return cast(Any, SimpleNamespace(peers=peers))


def told_by(*operations: tuple[float, float, Any]) -> list[float]:
    """By a rank without peers, whose second stage lasts what is left of it."""
    times = WarmUpTimes()
    for contributions_ms, results_ms, seen in operations:
        outcome = dataclasses.replace(QUIET, rank=0, contributions_ms=contributions_ms, results_ms=results_ms, peers=())
        times.add(outcome, seen)
    return times.to_exchange(QUIET.num_bytes, COUNT)


QUIET_REPORT, SILENT_REPORT = report(0.0, 0.0), report(0.0, 0.2)


def test_stages_are_each_ranks_own_and_an_operation_lasts_until_its_slowest_rank_is_done() -> None:
    quick = told_by((10.0, 5.0, QUIET_REPORT), (11.0, 5.0, QUIET_REPORT), (12.0, 5.0, QUIET_REPORT))
    slow = told_by((10.0, 8.0, QUIET_REPORT), (11.0, 1.0, QUIET_REPORT), (20.0, 5.0, QUIET_REPORT))
    found = measured([quick, slow])
    assert found.stages_ms == [[10.0, 5.0, 11.0, 5.0, 12.0, 5.0], [10.0, 8.0, 11.0, 1.0, 20.0, 5.0]]
    assert found.operations_ms == [18.0, 16.0, 25.0]


def test_an_operation_in_which_one_rank_saw_a_silence_is_not_usual_but_bounds_are_made_of_it() -> None:
    here = told_by((10.0, 5.0, QUIET_REPORT), (200.0, 5.0, SILENT_REPORT), (12.0, 5.0, QUIET_REPORT))
    there = told_by((10.0, 5.0, QUIET_REPORT), (200.0, 5.0, QUIET_REPORT), (12.0, 5.0, QUIET_REPORT))
    found = measured([here, there])
    assert found.operations_ms == [15.0, 17.0]
    assert 200.0 in found.stages_ms[0]


def test_a_rank_that_did_not_finish_all_of_them_says_so() -> None:
    whole = told_by(*[(10.0, 5.0, QUIET_REPORT)] * COUNT)
    short = told_by((10.0, 6.0, QUIET_REPORT))
    found = measured([whole, short])
    assert found.stages_ms == [[10.0, 5.0] * COUNT, [10.0, 6.0]]
    assert found.operations_ms == [16.0]
    assert measured([told_by(), told_by()]).stages_ms == [[], []]
