from __future__ import annotations

import pytest

from holdfast.errors import TimesNotPositive, UnknownWorker
from holdfast.reroute import StageCost, Worker
from holdfast.reroute.notation import parse_times, parse_workers


def test_workers() -> None:
    assert parse_workers("1:2, 0:3,") == {Worker(1, 2), Worker(0, 3)}
    assert parse_workers("") == frozenset()


@pytest.mark.parametrize("text", ["1", "a:b", "1:2:3", "1:-2", ":", "1.0:2"])
def test_what_is_no_worker_is_named(text: str) -> None:
    with pytest.raises(UnknownWorker, match="Try:"):
        parse_workers(text)


def test_times() -> None:
    assert parse_times("10,11,9,8", 2) == (StageCost(10, 11, 9, 8),) * 2
    assert parse_times("10,11,9,8,1", 1) == (StageCost(10, 11, 9, 8, 1),)
    assert parse_times("F=1/2,w=5", 2) == (StageCost(forward=1, weight_grad=5), StageCost(forward=2, weight_grad=5))


@pytest.mark.parametrize(
    "text", ["", "1", "1,2,3", "1,2,3,4,5,6", "F=1/2/3", "Z=1", "F=x", "0,1,1,3", "1,1,1,-3", "1.5,1,1,1"]
)
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(TimesNotPositive, match="Try:"):
        parse_times(text, 2)
