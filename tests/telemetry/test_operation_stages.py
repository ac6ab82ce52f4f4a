"""Why a stage ended and what held an operation up, in words."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.outcome import Outcome
from holdfast.telemetry.operation_stages import percent, stages_of, what_held_it_up
from telemetry.operations import ALONE, CALLED_LATE, CUT_OFF, DEAD, GIVEN_UP, QUIET, with_peer


def reasons(outcome: Outcome) -> list[str]:
    return [stage.reason for stage in stages_of(outcome)]


def test_complete_names_who_came_last() -> None:
    assert reasons(QUIET) == [
        "complete: everything had come, the last from rank 2 at 22.0 ms",
        "complete: everything had come, the last from rank 2 at 40.0 ms",
    ]


def test_bound_says_since_when_and_who_is_missing() -> None:
    assert reasons(CUT_OFF) == [
        "bound: t_B, 50.0 ms, had passed since the operation opened; missing: rank 2 (75.0% missing)",
        "bound: t_B, 50.0 ms, had passed since the contributions ended; missing: rank 2 (nothing came)",
    ]


def test_limit_says_how_long_and_who_is_missing() -> None:
    cut = dataclasses.replace(CUT_OFF, contributions_end="limit", results_end="limit")
    passed = "which is more than usual; missing: rank 2"
    assert reasons(cut) == [
        f"limit: 50.0 ms had passed since the operation opened, {passed} (75.0% missing)",
        f"limit: {cut.ended_ms - cut.called_ms:.1f} ms had passed since this rank called, {passed} (nothing came)",
    ]


def test_bound_before_the_own_call() -> None:
    late = dataclasses.replace(CUT_OFF, called_ms=70.0, elapsed_ms=50.0)
    first, second = reasons(late)
    assert first.endswith("this rank had not called yet")
    assert "since this rank called" in second


def test_a_first_stage_that_closed_late_does_not_extend_the_second() -> None:
    late = dataclasses.replace(CUT_OFF, contributions_ms=60.0, results_ms=40.0)
    assert "(noticed 10.0 ms late: this process did not run)" in reasons(late)[0]
    assert reasons(late)[1].startswith("bound: twice t_B, 100.0 ms, had passed since this rank called; missing: rank 2")


def test_results_may_have_waited_for_the_call() -> None:
    late = dataclasses.replace(CALLED_LATE, contributions_end="bound", contributions_ms=50.0, elapsed_ms=0.0)
    assert reasons(late)[1] == "complete: everything had come by 40.0 ms, before this rank called"


def test_early_says_how_long_it_was_quiet() -> None:
    assert reasons(GIVEN_UP)[0] == (
        "early: something of every sender's last percentile was in, and nothing new came for 5.1 ms (5.0 ms in force); "
        "given up: rank 0 (0.4% missing)"
    )


def test_a_rank_that_said_nothing_is_not_waited_for_in_the_second_stage() -> None:
    away = {"contributed_ratio": 0.0, "contribution_arrived_ms": None, "results_ratio": 0.0, "results_arrived_ms": None}
    left = dataclasses.replace(
        with_peer(CUT_OFF, 2, **away), results_end="early", contributions_ms=30.0, results_ms=14.0, elapsed_ms=44.0
    )
    assert reasons(left)[1] == (
        "early: something of every sender's last percentile was in, but for rank 2 that had said nothing, and nothing "
        "new came for 6.0 ms (6.0 ms in force); given up: rank 2 (nothing came)"
    )


def test_a_shorter_silence_needs_a_reason() -> None:
    shorter = dataclasses.replace(GIVEN_UP, contributions_ms=24.0)
    assert "2.0 ms (less than the 5.0 ms in force, as every sender had said that all was sent)" in reasons(shorter)[0]


def test_silence_counts_from_the_own_call_on() -> None:
    late = dataclasses.replace(GIVEN_UP, called_ms=25.0, contributions_ms=30.5)
    assert "nothing new came for 5.5 ms" in reasons(late)[0]


def test_the_dead_are_not_waited_for() -> None:
    first, second = reasons(DEAD)
    assert first.startswith("complete: everything had come, but from rank 2 (dead, nothing came)")
    assert "rank 0 at 38.0 ms" in second


def test_an_own_late_call_is_the_reason() -> None:
    assert reasons(CALLED_LATE) == [
        "complete: everything had come by 22.0 ms, and then this rank's own call at 60.0 ms",
        "complete: everything had come by 40.0 ms, before the contributions here",
    ]


def test_stages_follow_each_other_on_one_clock() -> None:
    contributions, results = stages_of(dataclasses.replace(CALLED_LATE, contributions_ms=50.0))
    assert (contributions.began_ms, contributions.ended_ms) == (0.0, 50.0)
    assert (results.began_ms, results.ended_ms) == (60.0, 65.0)


@pytest.mark.parametrize(
    ("outcome", "culprit"),
    [
        (QUIET, "nobody in particular: the contributions of 2 peers were in by 22.0 ms, within 2.0 ms of each other"),
        (CUT_OFF, "rank 2 (75.0% missing), in the contributions, until the bound"),
        (
            dataclasses.replace(CUT_OFF, contributions_end="limit"),
            "rank 2 (75.0% missing), in the contributions, until the limit",
        ),
        (GIVEN_UP, "nobody in particular: the contributions of 2 peers were in by 22.0 ms, within 2.0 ms of each other"),
        (
            dataclasses.replace(GIVEN_UP, contributions_ms=42.0, elapsed_ms=55.0, early_wait_ms=(20.0, 5.0)),
            "rank 0 (0.4% missing), in the contributions, until it was given up",
        ),
        (CALLED_LATE, "rank 1 itself, which called 60.0 ms after the operation had opened"),
        (
            with_peer(dataclasses.replace(QUIET, contributions_ms=34.0, results_ms=6.0), 2, contribution_arrived_ms=(30.0, 34.0)),
            "rank 2, whose part of the contributions was in 14.0 ms after all others",
        ),
        (
            with_peer(dataclasses.replace(QUIET, elapsed_ms=80.0, results_ms=58.0), 0, results_arrived_ms=(15.0, 80.0)),
            "rank 0, whose part of the results was in 40.0 ms after all others",
        ),
        (ALONE, "nothing: there is no other rank"),
    ],
)  # fmt: skip
def test_the_first_thing_to_look_at(outcome: Outcome, culprit: str) -> None:
    assert what_held_it_up(outcome) == culprit


def test_who_hears_nobody_looks_at_itself() -> None:
    deaf = CUT_OFF
    for rank in (0, 2):
        deaf = with_peer(deaf, rank, contributed_ratio=0.0, contribution_arrived_ms=None)
    assert what_held_it_up(deaf).startswith("rank 1's own network")


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100%"), (0.9999, ">99.9%"), (0.5, "50.0%"), (0.0001, "<0.1%"), (0.0, "0%")],
)
def test_a_share_is_never_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text
