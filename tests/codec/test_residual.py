"""Residuals follow their parameter from bucket to bucket."""

from __future__ import annotations

import pytest
import torch

from holdfast.codec.residual import Residuals

FIRST = (("a", 3), ("b", 2), ("c", 4))


def filled() -> Residuals:
    residuals = Residuals()
    residuals.of_bucket(FIRST).copy_(torch.arange(1.0, 10.0))
    return residuals


def values(residuals: Residuals, name: str) -> list[float]:
    tensor = residuals.of_parameter(name)
    assert tensor is not None
    return tensor.tolist()


def test_they_begin_as_zero_and_stay_in_place() -> None:
    residuals = Residuals()
    flat = residuals.of_bucket(FIRST)
    assert flat.tolist() == [0.0] * 9
    flat += 1
    assert residuals.of_bucket(FIRST) is flat
    assert residuals.of_parameter("elsewhere") is None


def test_a_rebuilt_bucket_finds_every_parameter_again() -> None:
    residuals = filled()
    assert residuals.of_bucket((("c", 4), ("new", 1), ("a", 3))).tolist() == [6, 7, 8, 9, 0, 1, 2, 3]
    assert residuals.of_bucket((("b", 2),)).tolist() == [4, 5]


def test_an_old_layout_that_comes_back_holds_what_happened_meanwhile() -> None:
    residuals = filled()
    residuals.of_bucket((("c", 4), ("a", 3))).mul_(10)
    assert values(residuals, "b") == [4, 5]
    assert residuals.of_bucket(FIRST).tolist() == [10, 20, 30, 4, 5, 60, 70, 80, 90]


def test_a_parameter_of_another_size_begins_anew() -> None:
    assert filled().of_bucket((("a", 2), ("b", 2))).tolist() == [0, 0, 4, 5]


def test_nothing_is_left_after_forgetting() -> None:
    residuals = filled()
    residuals.forget()
    assert residuals.of_parameter("a") is None
    assert residuals.of_bucket(FIRST).tolist() == [0.0] * 9


@pytest.mark.parametrize("layout", [(), (("empty", 0), ("a", 1))])
def test_buckets_with_nothing_in_them(layout: tuple[tuple[str, int], ...]) -> None:
    assert Residuals().of_bucket(layout).numel() == sum(size for _, size in layout)
