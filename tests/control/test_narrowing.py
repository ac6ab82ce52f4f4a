"""When what is late leaves in sixteen bits."""

from __future__ import annotations

import pytest

from holdfast.config import Config
from holdfast.control.narrowing import BEHIND_RATIO, REMEMBERED_OPERATIONS, Narrowed, behind_ratio, explain


def test_it_is_on_where_packing_may_pay() -> None:
    assert behind_ratio(Config(), packs=True) == BEHIND_RATIO
    assert behind_ratio(Config(), packs=False) == 0.0
    assert "lacks 20%" in explain(Config(), 0.031, packs=True)
    assert "3.1% did" in explain(Config(), 0.031, packs=True)


@pytest.mark.parametrize(
    "config",
    [Config(late_wire="float32"), Config(deterministic=True), Config(wire="bf16"), Config(credit=1)],
    ids=["late_wire", "deterministic", "wire", "credit"],
)
def test_what_turns_it_off_is_named(config: Config, request: pytest.FixtureRequest) -> None:
    assert behind_ratio(config, packs=True) == 0.0
    assert explain(config, 0.0, packs=True).endswith(f"({request.node.callspec.id})")


def test_it_is_remembered_for_a_while() -> None:
    narrowed = Narrowed()
    assert not narrowed.lately
    narrowed.observe(16)
    assert narrowed.lately
    for _ in range(REMEMBERED_OPERATIONS):
        assert narrowed.lately
        narrowed.observe(0)
    assert not narrowed.lately
