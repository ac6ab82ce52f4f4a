"""A rank that was away makes up for missed steps where that is quick, and leaves them out where it is not."""

from __future__ import annotations

import pytest

from holdfast.control.catching_up import MOST_STEPS_MEANWHILE, OwnWork, makes_up_for


def after_steps(work_s: float, wait_s: float, count: int, own_work: OwnWork, now_s: float = 0.0) -> float:
    for _ in range(count):
        own_work.done(now_s + work_s)
        now_s += work_s + wait_s
        own_work.step_ended(now_s, usual=True)
    return now_s


def test_before_anything_is_known_a_step_is_all_work() -> None:
    own_work = OwnWork()
    assert own_work.ratio == 1.0
    own_work.done(5.0)  # when it began was not seen
    own_work.step_ended(6.0, usual=True)
    assert own_work.ratio == 1.0


def test_work_is_what_comes_before_the_wait() -> None:
    own_work = OwnWork()
    own_work.step_ended(0.0, usual=True)
    now_s = after_steps(0.01, 0.03, 20, own_work)
    assert own_work.ratio == pytest.approx(0.25)
    # An evaluation between two steps, and a step in which this rank was away, change nothing.
    now_s = after_steps(10.0, 0.03, 1, own_work, now_s)
    own_work.done(now_s + 0.01)
    own_work.step_ended(now_s + 10.0, usual=False)
    assert own_work.ratio == pytest.approx(0.25)


def test_it_follows_a_job_that_becomes_all_work() -> None:
    own_work = OwnWork()
    own_work.step_ended(0.0, usual=True)
    now_s = after_steps(0.01, 0.03, 20, own_work)
    after_steps(0.03, 0.01, 20, own_work, now_s)
    assert own_work.ratio == pytest.approx(0.75)


def steps_meanwhile(missed: int, ratio: float) -> float:
    """The oracle: step by step, as it happens."""
    behind, made, own_steps = float(missed), 0.0, 0
    while behind > 0 and own_steps < 100_000:
        behind += ratio - 1
        made += ratio
        own_steps += 1
    return made


@pytest.mark.parametrize("missed", [1, 3, 16, 50, 400])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.24, 0.5, 0.9, 0.99])
def test_it_catches_up_only_where_the_others_do_not_get_far_meanwhile(missed: int, ratio: float) -> None:
    meanwhile = steps_meanwhile(missed, ratio)
    if abs(meanwhile - MOST_STEPS_MEANWHILE) > 1:  # the oracle makes whole steps
        assert makes_up_for(missed, ratio) == (meanwhile < MOST_STEPS_MEANWHILE)


def test_who_does_nothing_but_work_never_catches_up() -> None:
    assert not makes_up_for(1, 1.0)
