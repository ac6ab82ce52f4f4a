"""Sixteen bits and back: against torch's own rounding, without bias, without losing anything."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.codec.cast import Cast, _Feedback
from holdfast.codec.residual import Layout, Residuals
from holdfast.config import RoundingName, WireName

WIRES: list[WireName] = ["bf16", "fp16"]
ROUNDINGS: list[RoundingName] = ["stochastic", "feedback"]


def layout_of(gradient: torch.Tensor) -> Layout:
    return (("weight", gradient.numel()),)


def sent(cast: Cast, gradient: torch.Tensor, layout: Layout | None = None) -> torch.Tensor:
    """What arrives when every rank sends the same."""
    narrow = cast.narrow(gradient, layout or layout_of(gradient))
    assert narrow.dtype == cast.dtype
    arrived = torch.full_like(gradient, math.nan)
    cast.widen(narrow, arrived)
    return arrived


def residuals_of(cast: Cast) -> Residuals:
    assert isinstance(cast._rounding, _Feedback)
    return cast._rounding._residuals


def some_gradient(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("count", [*range(71), 4099])
def test_the_first_rounding_with_feedback_is_torchs(wire: WireName, count: int) -> None:
    cast, gradient = Cast(wire, "feedback", 0), some_gradient(count)
    kept = gradient.clone()
    torch.testing.assert_close(sent(cast, gradient), gradient.to(cast.dtype).float(), rtol=0, atol=0)
    assert torch.equal(gradient, kept)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_what_sixteen_bits_can_say_arrives_as_it_is(wire: WireName, rounding: RoundingName) -> None:
    cast = Cast(wire, rounding, 0)
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(cast.dtype).float()
    torch.testing.assert_close(sent(cast, patterns), patterns, rtol=0, atol=0, equal_nan=True)
    assert cast.num_clipped == 0


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_nan_and_inf_arrive_and_leave_nothing_behind(wire: WireName, rounding: RoundingName) -> None:
    cast = Cast(wire, rounding, 0)
    for count in (1, 8, 19):
        gradient = some_gradient(count)
        gradient[count // 2] = math.inf
        gradient[0] = math.nan
        arrived = sent(cast, gradient)
        assert torch.equal(arrived.isfinite(), gradient.isfinite())
        assert arrived[0].isnan()
    assert cast.num_clipped == 0
    assert sent(cast, some_gradient(19)).isfinite().all()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_finite_values_beyond_the_range_are_clipped_counted_and_told_once(
    wire: WireName, rounding: RoundingName, caplog: pytest.LogCaptureFixture
) -> None:
    cast = Cast(wire, rounding, 3)
    largest = torch.finfo(cast.dtype).max
    gradient = torch.tensor([3.4028234e38, -3.4028234e38, 1.0, largest])
    with caplog.at_level(logging.WARNING):
        assert sent(cast, gradient).tolist() == [largest, -largest, 1.0, largest]
        # The excess is not fed back: it would send the largest value for steps to come.
        assert sent(cast, torch.zeros(4)).tolist() == [0.0] * 4
        sent(cast, gradient)
    assert cast.num_clipped == 4
    assert "4 elements were beyond" in cast.describe()
    (record,) = caplog.records
    assert record.getMessage().startswith("[rank 3] 2 gradient elements are beyond")


@pytest.mark.parametrize("wire", WIRES)
def test_stochastic_rounding_has_the_gradient_as_its_mean(wire: WireName) -> None:
    num_draws, gradient = 3000, torch.cat([some_gradient(200), 1e-6 * some_gradient(200, 1)])
    cast = Cast(wire, "stochastic", 0)
    total = torch.zeros(400, dtype=torch.float64)
    squares = torch.zeros(400, dtype=torch.float64)
    for _ in range(num_draws):
        arrived = sent(cast, gradient).double()
        total += arrived
        squares += arrived.square()
    mean = total / num_draws
    sigma = ((squares / num_draws - mean.square()).clamp(min=0) / num_draws).sqrt()
    off = (mean - gradient).abs() / sigma.clamp(min=1e-30)
    assert (off > 3).sum() <= 8, "400 elements, of which one in 370 may be beyond 3 sigma"
    assert abs(((mean - gradient) / sigma.clamp(min=1e-30)).mean()) < 3 / 400**0.5


def test_a_run_can_be_repeated_and_no_two_ranks_or_buckets_round_alike() -> None:
    gradient = some_gradient(4096)
    first, again, other = (Cast("bf16", "stochastic", rank) for rank in (0, 0, 1))
    one, two = sent(first, gradient), sent(first, gradient)
    assert torch.equal(one, sent(again, gradient))
    assert torch.equal(two, sent(again, gradient))
    elsewhere = sent(other, gradient)
    for left, right in ((one, two), (one, elsewhere), (two, elsewhere)):
        assert 0.2 < (left != right).double().mean() < 0.5  # a third on average: 2 f (1 - f) for a uniform f


@settings(max_examples=60, deadline=None)
@given(
    wire=st.sampled_from(WIRES),
    steps=st.lists(
        st.tuples(st.integers(0, 2**32), st.sampled_from([1e-7, 1e-3, 1.0, 50.0]), st.booleans()),
        min_size=1,
        max_size=12,
    ),
)
def test_feedback_loses_nothing(wire: WireName, steps: list[tuple[int, float, bool]]) -> None:
    """What was sent and what is left over are together the sum of all gradients, also when buckets are rebuilt."""
    sizes = {"a": 5, "b": 17, "c": 9}
    orders = (["a", "b", "c"], ["c", "a", "b"])
    cast = Cast(wire, "feedback", 0)
    given_in_all = {name: torch.zeros(size, dtype=torch.float64) for name, size in sizes.items()}
    arrived_in_all = {name: torch.zeros(size, dtype=torch.float64) for name, size in sizes.items()}
    largest = 0.0
    for seed, scale, rebuilt in steps:
        order = orders[rebuilt]
        gradient = scale * some_gradient(31, seed)
        largest = max(largest, float(gradient.abs().max()))
        arrived = sent(cast, gradient, tuple((name, sizes[name]) for name in order))
        parts = [sizes[name] for name in order]
        for name, given_part, arrived_part in zip(order, gradient.split(parts), arrived.split(parts), strict=True):
            given_in_all[name] += given_part
            arrived_in_all[name] += arrived_part
    for name in sizes:
        left_over = residuals_of(cast).of_parameter(name)
        assert left_over is not None
        # No rounding but that of gradient + residual in float32, once a step.
        difference = given_in_all[name] - arrived_in_all[name] - left_over
        assert difference.abs().max() <= len(steps) * 2**-23 * largest


def test_a_gradient_too_small_for_the_format_is_not_lost_with_feedback() -> None:
    cast = Cast("bf16", "feedback", 0)
    gradient = torch.full((33,), 1 + 2**-11)  # rounds to 1 for ever without feedback
    total = sum(sent(cast, gradient).double() for _ in range(64))
    assert (total - 64 * gradient.double()).abs().max() <= 2**-8


def test_forgetting_starts_anew() -> None:
    cast, gradient = Cast("bf16", "feedback", 0), some_gradient(100)
    first = sent(cast, gradient)
    assert not torch.equal(sent(cast, gradient), first)
    cast.forget()
    assert torch.equal(sent(cast, gradient), first)


def test_memory_is_used_again_also_for_smaller_buckets_and_never_while_in_use() -> None:
    cast = Cast("bf16", "stochastic", 0)
    big, small = some_gradient(1000), some_gradient(10)
    first, second = cast.narrow(big, layout_of(big)), cast.narrow(small, layout_of(small))
    places = {first.data_ptr(), second.data_ptr()}
    assert len(places) == 2
    kept = second.clone()
    cast.widen(first, torch.empty(1000))
    with torch.no_grad():
        third = cast.narrow(small, layout_of(small))
    assert third.data_ptr() == first.data_ptr()
    fourth = cast.narrow(small, layout_of(small))
    assert fourth.data_ptr() not in places, "both are in use"
    assert torch.equal(second, kept)
    cast.widen(second, torch.empty(10))
    cast.widen(third, torch.empty(10))
    assert {cast.narrow(big, layout_of(big)).data_ptr(), cast.narrow(small, layout_of(small)).data_ptr()} == places


def test_parameters_that_do_not_fill_the_bucket_are_refused() -> None:
    with pytest.raises(ValueError, match="10 gradient elements for parameters of 9"):
        Cast("bf16", "feedback", 0).narrow(some_gradient(10), (("weight", 9),))


def test_only_float32_is_cast() -> None:
    cast = Cast("bf16", "stochastic", 0)
    assert cast.applies_to(torch.empty(1))
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        assert not cast.applies_to(torch.empty(1, dtype=dtype))
