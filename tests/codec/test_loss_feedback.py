"""What was applied of every gradient and what is left over of it are together what was computed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.codec.cast import Cast, _Feedback
from holdfast.codec.hadamard import Hadamard
from holdfast.codec.loss_feedback import Counted, LossFeedback
from holdfast.codec.residual import Layout
from holdfast.config import WireName

SIZES = {"a": 700, "b": 48, "c": 1_500, "d": 3}
ONE_BUCKET: tuple[tuple[str, ...], ...] = (("a", "b", "c", "d"),)
REBUILT: tuple[tuple[str, ...], ...] = (("d", "c"), ("b", "a"))


def layout_of(names: tuple[str, ...]) -> Layout:
    return tuple((name, SIZES[name]) for name in names)


@dataclass
class Rank:
    """One rank as its handle drives it; what arrives of it is up to the case."""

    wire: WireName = "float32"
    hadamard: Hadamard | None = None
    operation: int = 0
    cast: Cast | None = None
    computed: dict[str, torch.Tensor] = field(default_factory=dict)
    applied: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cast = None if self.wire == "float32" else Cast(self.wire, "feedback", 0)
        self.feedback = LossFeedback(torch.float32 if self.cast is None else self.cast.dtype)
        for sums in (self.computed, self.applied):
            sums.update({name: torch.zeros(size, dtype=torch.float64) for name, size in SIZES.items()})

    def reduce(self, gradient: torch.Tensor, names: tuple[str, ...], counted: Counted) -> None:
        layout, operation = layout_of(names), self.operation
        self.operation += 1
        self._add(self.computed, names, gradient)
        self.feedback.add_left_over(gradient, layout)
        if self.hadamard is not None:
            self.hadamard.encode(gradient, operation)
        sent = gradient if self.cast is None else self.cast.narrow(gradient, layout)
        self.feedback.keep(sent, layout, operation)
        result = sent.float().clone()
        for begin, end, times in counted:
            result[begin:end] *= times
        sent.fill_(math.nan)  # the operation writes over it
        if self.cast is not None:
            self.cast.widen(sent, gradient)
        decode = None
        if (hadamard := self.hadamard) is not None:
            hadamard.invert(result, operation)
            decode = lambda left: hadamard.invert(left, operation)  # noqa: E731
        self.feedback.settle(operation, counted, decode)
        self._add(self.applied, names, result)

    def left_over(self, name: str) -> torch.Tensor:
        """Of losses and of rounding."""
        left = torch.zeros(SIZES[name], dtype=torch.float64)
        of_rounding = self.cast._rounding if self.cast is not None else None
        assert of_rounding is None or isinstance(of_rounding, _Feedback)
        for residuals in (self.feedback._residuals, None if of_rounding is None else of_rounding._residuals):
            residual = None if residuals is None else residuals.of_parameter(name)
            left += 0 if residual is None else residual
        return left

    def _add(self, sums: dict[str, torch.Tensor], names: tuple[str, ...], flat: torch.Tensor) -> None:
        for name, part in zip(names, flat.split([SIZES[name] for name in names]), strict=True):
            sums[name] += part


@st.composite
def counted_ranges(draw: st.DrawFn, num_elements: int) -> list[tuple[int, int, float]]:
    edges = sorted(draw(st.sets(st.integers(0, num_elements), max_size=12)))
    times = st.sampled_from([0.0, 0.0, 7 / 6, 1.5, 2.0])
    return [(begin, end, draw(times)) for begin, end in zip(edges[::2], edges[1::2], strict=False)]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([("float32", False), ("float32", True), ("bf16", False), ("fp16", False)]))
def test_nothing_is_lost_and_nothing_counts_twice(data: st.DataObject, way: tuple[WireName, bool]) -> None:
    wire, encodes = way
    rank = Rank(wire, Hadamard() if encodes else None)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1 << 30)))
    for _ in range(data.draw(st.integers(1, 6))):
        for names in data.draw(st.sampled_from([ONE_BUCKET, REBUILT])):
            count = sum(SIZES[name] for name in names)
            gradient = torch.randn(count, generator=generator)
            rank.reduce(gradient, names, data.draw(counted_ranges(count)))
    for name in SIZES:
        together = rank.applied[name] + rank.left_over(name)
        torch.testing.assert_close(together, rank.computed[name], rtol=0, atol=2e-5)


def test_what_was_lost_comes_in_full_with_the_next_gradient_and_only_with_that() -> None:
    feedback, layout = LossFeedback(torch.float32), layout_of(("d",))
    for operation, (counted, arrives) in enumerate([([(1, 3, 0.0)], 1.0), ([], 2.0), ([], 1.0)]):
        gradient = torch.ones(3)
        feedback.add_left_over(gradient, layout)
        assert gradient.tolist() == [1.0, arrives, arrives]
        feedback.keep(gradient, layout, operation)
        feedback.settle(operation, counted)
    assert "after 1 of 3 operations" in feedback.describe()


def test_what_stood_for_others_is_taken_back() -> None:
    feedback, layout = LossFeedback(torch.float32), layout_of(("d",))
    gradient = torch.full((3,), 4.0)
    feedback.keep(gradient, layout, 5)
    feedback.settle(5, [(0, 2, 1.5)])
    again = torch.zeros(3)
    feedback.add_left_over(again, layout)
    assert again.tolist() == [-2.0, -2.0, 0.0]


def test_what_is_left_over_never_grows_however_often_few_stand_for_many() -> None:
    feedback, layout = LossFeedback(torch.float32), layout_of(("d",))
    for operation in range(50):
        gradient = torch.ones(3) if operation == 0 else torch.zeros(3)
        feedback.add_left_over(gradient, layout)
        assert gradient.abs().max() == 1.0
        feedback.keep(gradient, layout, operation)
        feedback.settle(operation, [(0, 3, 7.0)])


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_does_not_come_again(bad: float) -> None:
    feedback, layout = LossFeedback(torch.float32), layout_of(("d",))
    feedback.keep(torch.tensor([1.0, bad, bad]), layout, 0)
    feedback.settle(0, [(0, 2, 0.0)])
    again = torch.zeros(3)
    feedback.add_left_over(again, layout)
    assert again.tolist() == [1.0, 0.0, 0.0]


def test_without_loss_no_residual_is_held_and_memory_is_used_again() -> None:
    feedback, layout = LossFeedback(torch.float32), layout_of(("c",))
    addresses = set()
    for operation in range(4):
        feedback.keep(torch.ones(SIZES["c"]), layout, operation)
        addresses.add(feedback._under_way[operation].contribution.data_ptr())
        feedback.abandon(operation) if operation == 2 else feedback.settle(operation, [])
    assert len(addresses) == 1
    assert feedback._residuals.of_parameter("c") is None


def test_forgotten_losses_do_not_return() -> None:
    feedback, layout = LossFeedback(torch.float32), layout_of(("d",))
    feedback.keep(torch.ones(3), layout, 0)
    feedback.settle(0, [(0, 3, 0.0)])
    feedback.forget()
    gradient = torch.ones(3)
    feedback.add_left_over(gradient, layout)
    assert gradient.tolist() == [1.0, 1.0, 1.0]


def test_other_dtypes_are_left_alone() -> None:
    feedback = LossFeedback(torch.float32)
    assert feedback.applies_to(torch.zeros(1))
    assert not feedback.applies_to(torch.zeros(1, dtype=torch.float64))
    assert not feedback.applies_to(torch.zeros(1, dtype=torch.bfloat16))
