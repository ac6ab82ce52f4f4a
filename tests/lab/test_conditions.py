"""The plain data and the native switch's conditions say the same."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from holdfast import _native
from holdfast.lab.conditions import Conditions, Episodes, Path, Port, native_conditions

EPISODES = Episodes(3.0, 7.0, "uniform", 0.5)
PORT = Port(2e6, 3e6, 40_000, 0.5, EPISODES, 4.0, EPISODES, True, EPISODES, True)
PATH = Path(0.01, 0.5, EPISODES, 2.0, 5.0, EPISODES)


def plain(value: Any) -> Any:
    if isinstance(value, _native.Episodes):
        names = ("on_ms", "off_ms", "lengths", "spread_ratio")
        return {name: plain(getattr(value, name)) for name in names}
    return value.name if isinstance(value, _native.Lengths) else value


def test_every_field_reaches_the_native_side() -> None:
    conditions = Conditions((PORT, Port(1e6, 1e6)), {(0, 1): PATH, (1, 0): Path()})
    native = native_conditions(json.loads(json.dumps(conditions.to_json())))
    for ours, theirs in ((PORT, native.ports[0]), (PATH, native.paths[0, 1])):
        names = [field.name for field in dataclasses.fields(ours)]
        assert set(names) == {name for name in dir(theirs) if not name.startswith("_")}
        assert {name: plain(getattr(theirs, name)) for name in names} == dataclasses.asdict(ours)
    assert native.paths[1, 0].loss_ratio == 0


@pytest.mark.parametrize(
    "port", [dataclasses.replace(PORT, slow_down_ratio=0.5), dataclasses.replace(PORT, queue_bytes=1)]
)
def test_what_is_out_of_range_is_refused(port: Port) -> None:
    with pytest.raises(ValueError, match="must be"):
        native_conditions(Conditions((port,)).to_json())


def test_changes_are_copies() -> None:
    conditions = Conditions((Port(1e6, 1e6), Port(1e6, 1e6)), {(0, 1): Path(), (1, 0): Path()})
    changed = conditions.with_port(1, lambda port: dataclasses.replace(port, down=True))
    assert [port.down for port in changed.ports] == [False, True]
    assert [port.down for port in conditions.ports] == [False, False]
    delayed = conditions.with_paths(lambda path: dataclasses.replace(path, delay_ms=9.0))
    assert {path.delay_ms for path in delayed.paths.values()} == {9.0}
    assert EPISODES.share == pytest.approx(0.3)
    assert Episodes().share == 1.0
