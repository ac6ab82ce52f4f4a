"""When what is late leaves in sixteen bits."""

from __future__ import annotations

from holdfast.config import Config
from holdfast.control.narrowing import BEHIND_RATIO, behind_ratio, explain


def test_it_is_on_unless_it_is_turned_off() -> None:
    assert behind_ratio(Config()) == BEHIND_RATIO
    assert behind_ratio(Config(late_wire="float32")) == 0.0


def test_sixteen_bits_are_not_narrowed() -> None:
    assert behind_ratio(Config(wire="bf16")) == 0.0


def test_who_is_late_decides_nothing_where_runs_must_repeat() -> None:
    assert behind_ratio(Config(deterministic=True)) == 0.0


def test_it_is_said_in_words() -> None:
    assert "lacks 20%" in explain(Config(), 0.031)
    assert "3.1% did" in explain(Config(), 0.031)
    assert explain(Config(late_wire="float32"), 0.0).endswith("(late_wire)")
    assert explain(Config(deterministic=True), 0.0).endswith("(deterministic)")
