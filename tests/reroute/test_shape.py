from __future__ import annotations

import pytest

from holdfast.errors import (
    ImpossibleShape,
    MemoryTooSmall,
    PlanError,
    StageLost,
    TimesNotPositive,
    UnknownWorker,
)
from holdfast.reroute import Job, Shape, StageCost, uniform_job


@pytest.mark.parametrize("shape", [(0, 3, 6), (4, 0, 6), (4, 3, 0), (-1, 3, 6), (4, 3, True), (4, 2.5, 6)])
def test_impossible_shapes_are_named(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ImpossibleShape, match="Try:"):
        Shape(*shape)


def test_a_shape_beyond_the_limit_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(ImpossibleShape, match="operations"):
        Shape(1000, 1000, 1000)


@pytest.mark.parametrize("name", ["forward", "input_grad", "weight_grad", "optimizer"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_times_must_be_positive_whole_ticks(name: str, value: object) -> None:
    with pytest.raises(TimesNotPositive, match="Try:"):
        StageCost(**{name: value})  # type: ignore[arg-type]


def test_a_transfer_may_be_free_but_not_negative() -> None:
    StageCost(transfer=0)
    with pytest.raises(TimesNotPositive):
        StageCost(transfer=-1)


def test_a_stage_without_live_worker_is_named() -> None:
    with pytest.raises(StageLost, match=r"Stage 2 .*Try:"):
        uniform_job(4, 2, 6, [(0, 2), (1, 2)])


@pytest.mark.parametrize("worker", [(3, 0), (0, 4), (-1, 0)])
def test_unknown_workers_are_named(worker: tuple[int, int]) -> None:
    with pytest.raises(UnknownWorker, match="Try:"):
        uniform_job(4, 3, 6, [worker])


def test_memory_for_less_than_one_microbatch_is_refused_and_for_one_is_not() -> None:
    cost = StageCost(activation=4, weight_stash=5, state=10)
    with pytest.raises(MemoryTooSmall, match="15 or more"):
        uniform_job(2, 2, 2, cost=cost, memory_limit=14)
    uniform_job(2, 2, 2, cost=cost, memory_limit=15)


def test_a_profile_of_another_depth_is_refused() -> None:
    with pytest.raises(ImpossibleShape, match="--stages 3"):
        Job(Shape(4, 2, 2), (StageCost(),) * 3)


def test_every_plan_error_says_what_to_try() -> None:
    with pytest.raises(PlanError) as caught:
        uniform_job(4, 3, 6, [(7, 7)])
    assert caught.value.what_to_try
