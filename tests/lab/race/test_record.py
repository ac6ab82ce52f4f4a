"""What ranks tell becomes one peer's figures: the slowest rank's steps, the mean delivered, the worst accusation."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.lab.race.orders import Score, Trained
from holdfast.lab.race.record import Record
from holdfast.lab.race.result import Evaluation, Event
from holdfast.lab.switch_client import Report

QUIET = Report(1.0, {}, 0.0, 0.0, 0.0, 0.0, [], True, 0.0, 0, 0, 0, ())


def test_a_step_lasts_until_its_slowest_rank_is_done() -> None:
    record = Record()
    record.add_turn({0: Trained([10, 40], 1.0, {1: 2}), 1: Trained([30, 20], 0.5, {0: 7, 1: 5}, ("why",))})
    assert record.step_ms == record.last_turn_ms == [30, 20]
    assert record.seconds == pytest.approx(0.05)
    assert record.delivered_ratio == 0.75
    assert record.incomplete_by_rank == {0: 7, 1: 5}
    record.add_turn({1: Trained([5], 0.6, {0: 8}, ("why not",))})
    assert (record.steps, record.last_turn_ms, record.delivered_ratio) == (3, [5], 0.6)
    assert record.explain == ("why not",)
    record.add_score(3, Score(0.9, 0.1), 0.25)
    assert record.evaluations == [Evaluation(3, pytest.approx(0.055), 0.9, 0.1, 0.25)]  # type: ignore[arg-type]


def test_a_rank_that_stands_still_while_others_go_on_is_counted_once() -> None:
    """Rank 1 is stopped for 2 s in the first step and catches up; the others end three steps at their bound of 190 ms."""
    record = Record()
    record.add_turn({0: Trained([190.0, 190.0, 190.0, 40.0]), 1: Trained([2000.0, 5.0, 5.0, 40.0])})
    assert record.step_ms == [2000.0, 5.0, 5.0, 40.0]
    assert record.seconds == 2.05


def test_a_race_ends_with_the_model_that_was_good_enough_not_with_its_turn() -> None:
    record = Record()
    record.add_turn({0: Trained([10.0, 20.0, 30.0, 40.0])})
    for steps, metric in ((2, 0.8), (3, 0.9), (4, 0.95)):
        record.add_score(steps, Score(metric, 0.1), 0.0)
    record.end_at(record.evaluations[1])
    assert record.step_ms == [10.0, 20.0, 30.0]
    assert [each.seconds for each in record.evaluations] == pytest.approx([0.03, 0.06])


def test_events_lie_where_they_happened_on_the_peers_own_clock() -> None:
    record = Record()
    record.in_turn_s = 0.5
    record.note("within the first turn")
    record.add_turn({0: Trained([1000.0])})
    record.note("between turns")
    assert record.events == [Event(0.5, "within the first turn"), Event(1.0, "between turns")]


def test_the_switchs_spans_add_up() -> None:
    record = Record()
    assert record.lateness() is None
    record.add_switch_report(
        dataclasses.replace(QUIET, lateness_counts=[(100.0, 990)], lateness_max_us=90.0, losses={"random": 2})
    )
    record.add_switch_report(
        dataclasses.replace(QUIET, lateness_counts=[(5000.0, 10)], lateness_max_us=4000.0, losses={"random": 3})
    )
    late = record.lateness()
    assert late is not None
    assert (late.p50_us, late.p99_us, late.p999_us, late.max_us) == (100.0, 100.0, 5000.0, 4000.0)
    assert late.losses == {"random": 5}
