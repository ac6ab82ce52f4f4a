"""Stages by the clock: measured from the t_B that was in force, told apart by what ended them."""

from __future__ import annotations

import dataclasses

import pytest
from telemetry.operations import QUIET

from holdfast.lab.bench.stages import Stage, end_shares, over_bound_ms, stages_of
from holdfast.outcome import Outcome


def outcome(exact: bool) -> Outcome:
    return dataclasses.replace(
        QUIET, exact=exact, deadline_ms=40, contributions_end="early", results_end="bound", contributions_ms=12,
        results_ms=20.5,
    )  # fmt: skip


def test_a_stage_is_held_against_half_of_the_deadline() -> None:
    assert stages_of(outcome(exact=False)) == (Stage("early", -8.0), Stage("bound", 0.5))


def test_an_exact_operation_has_no_such_bound() -> None:
    assert stages_of(outcome(exact=True)) == ()


def test_shares_and_the_furthest() -> None:
    stages = [Stage("complete", -9.0)] * 998 + [Stage("early", -1.0), Stage("bound", 3.0)]
    assert end_shares(stages) == pytest.approx({"complete": 0.998, "early": 0.001, "bound": 0.001})
    assert (over_bound_ms(stages, 0.999), over_bound_ms(stages, 1.0)) == (-1.0, 3.0)


def test_nothing_is_told_of_nothing() -> None:
    assert end_shares([]) == {}
    assert over_bound_ms([], 0.999) is None
