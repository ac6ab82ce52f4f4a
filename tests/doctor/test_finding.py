"""The gravest finding decides, and what needs action comes first."""

from __future__ import annotations

from holdfast.doctor.finding import Status, advice, by_urgency, ok, problem, worst

FINE, HINT, STOP = ok("a", "fine"), advice("b", "slow", "so", "do", "and do"), problem("c", "broken", "so", "do")


def test_the_gravest_decides() -> None:
    assert worst([]) is Status.OK
    assert worst([FINE, HINT]) is Status.ADVICE
    assert worst([HINT, STOP, FINE]) is Status.PROBLEM


def test_what_needs_action_comes_first_and_ties_keep_their_order() -> None:
    other = ok("d", "fine too")
    assert by_urgency([FINE, HINT, other, STOP]) == [STOP, HINT, FINE, other]


def test_what_to_type_is_one_line_each() -> None:
    assert HINT.to_do == "do\nand do"
