"""The printed trace: one axis, a bar per peer and stage, marks for who was missing."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.outcome import Outcome
from holdfast.telemetry.operation_trace import nice_step
from telemetry.operations import ALONE, CALLED_LATE, CUT_OFF, DEAD, GIVEN_UP, QUIET

BARS_FROM = 46
"""Column at which the axis begins."""


def bars(outcome: Outcome) -> list[str]:
    return [line[BARS_FROM:] for line in outcome.trace().splitlines() if line[14:].startswith("rank ")]


def test_a_quiet_operation_in_full() -> None:
    assert QUIET.trace() == "\n".join(
        [
            "operation 7 (bucket 3, 3,000 bytes, bounded) as rank 1 of 3 saw it: 100% delivered",
            "40.0 ms from this rank's call to the end, of at most 100.0 ms; this rank's call opened it",
            "elements to sum: rank 0 250, rank 1 250, rank 2 250",
            "",
            "ms since the operation opened                 0           10          20           30          40",
            "                                              +-----------+-----------+------------+-----------+",
            "rank 1 calls                                  v",
            "contributions rank 0      100%     1.0 - 20.0  ========================  |",
            "              rank 2      100%     2.0 - 22.0   ==========================|                       last",
            "results       rank 0      100%    15.0 - 38.0                   ============================== |",
            "              rank 2      100%    16.0 - 40.0                     ==============================| last",
            "",
            "contributions ended at 22.0 ms, complete: everything had come, the last from rank 2 at 22.0 ms",
            "results ended at 40.0 ms, complete: everything had come, the last from rank 2 at 40.0 ms",
            "held up by nobody in particular: the contributions of 2 peers were in by 22.0 ms, within 2.0 ms of each other",
        ]
    )


@pytest.mark.parametrize("outcome", [QUIET, CUT_OFF, GIVEN_UP, DEAD, CALLED_LATE])
def test_there_is_a_bar_for_every_peer_and_stage_and_each_shows_its_end(outcome: Outcome) -> None:
    drawn = bars(outcome)
    assert len(drawn) == 2 * len(outcome.peers)
    assert all(bar.count("|") == 1 for bar in drawn)


def test_what_is_cut_off_is_drawn_otherwise_and_named() -> None:
    whole, partial, _, nothing = bars(CUT_OFF)
    assert "=" in whole
    assert "~" in partial
    assert partial.endswith("75.0% missing")
    assert "~" not in nothing
    assert nothing.endswith("nothing came")


def test_a_dead_peer_is_marked() -> None:
    assert [bar.endswith("dead, nothing came") for bar in bars(DEAD)] == [False, True, False, True]


def test_an_early_end_is_told() -> None:
    assert "contributions ended at 27.1 ms, early: " in GIVEN_UP.trace()


def test_the_own_late_call_has_its_place_on_the_axis() -> None:
    text = CALLED_LATE.trace()
    assert "a peer opened it, this rank called 60.0 ms later" in text
    call = next(line for line in text.splitlines() if line.startswith("rank 1 calls"))
    assert call.index("v") - BARS_FROM == round(60 / 65 * 49)
    assert "held up by rank 1 itself" in text


def test_the_smaller_shard_of_a_slow_rank_shows() -> None:
    small = dataclasses.replace(QUIET.peers[1], shard_elements=50)
    assert "rank 1 450, rank 2 50" in dataclasses.replace(QUIET, peers=(QUIET.peers[0], small)).trace()


def test_a_rank_alone_has_something_to_print_too() -> None:
    assert "complete: there was nobody to wait for" in ALONE.trace()


@pytest.mark.parametrize(("whole", "step"), [(40.0, 10.0), (223.6, 50.0), (6.0, 1.0), (0.7, 0.2), (1.0, 0.2)])
def test_ticks_are_round(whole: float, step: float) -> None:
    assert nice_step(whole, 6) == pytest.approx(step)
