"""Encoded and back: against a slow transform that follows the layout's description, without bias, and what is gone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import _native
from holdfast.codec.hadamard import Hadamard

TILE = 16 * 1024
PACKET = 350  # float32 elements in a datagram of 1,472 bytes
AWKWARD = [TILE - 1, TILE, TILE + 1, 2 * TILE, 2 * TILE + 1023, 3 * TILE + 777, 4 * TILE, 5 * TILE - 1, 100_003]
Ranges = list[tuple[int, int]]


def blocks_of(count: int) -> list[np.ndarray]:
    """Where the elements of every block are, from the description at the top of native/kernels/hadamard_layout.h."""
    num_tiles = count // TILE
    blocks = []
    for tile in range(num_tiles):
        rows = np.arange(1024)
        piece = rows // 8
        dealt = piece % 4 * 32 + piece // 4
        turn = (tile - dealt) % num_tiles if num_tiles > 2 and num_tiles % 2 == 0 else tile
        first_of_row = (dealt * num_tiles + turn) * 128 + rows % 8 * 16
        blocks += [first_of_row + column for column in range(16)]
    begin = num_tiles * TILE
    while begin < count:
        size = 1 << (count - begin).bit_length() - 1
        columns = max(1, size // 1024)
        blocks += [np.arange(begin + column, begin + size, columns) for column in range(columns)]
        begin += size
    return blocks


def transformed(values: np.ndarray) -> np.ndarray:
    """Sylvester's matrix times the values, in double arithmetic, over the root of their number."""
    rows = values.astype(np.float64)[:, None]
    while rows.shape[0] > 1:
        even, odd = rows[0::2], rows[1::2]
        rows = np.concatenate([even + odd, even - odd], axis=1)
    return rows[0] / math.sqrt(len(values))


def signs_of(count: int, seed: int, blocks: list[np.ndarray]) -> np.ndarray:
    """The transform's first row is all ones: a block that is only its first coefficient decodes to its signs."""
    first = torch.zeros(count)
    first[[int(block[0]) for block in blocks]] = 1
    Hadamard().decode(first, [], seed)
    return np.sign(first.numpy())


def some_gradient(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def encoded(gradient: torch.Tensor, seed: int) -> torch.Tensor:
    copy = gradient.clone()
    Hadamard().encode(copy, seed)
    return copy


def arrived(coefficients: torch.Tensor, missing: Ranges) -> torch.Tensor:
    copy = coefficients.clone()
    for begin, end in missing:
        copy[begin:end] = 0
    return copy


def lost_packets(count: int, share: float, random: np.random.Generator) -> Ranges:
    return [(begin, min(count, begin + PACKET)) for begin in range(0, count, PACKET) if random.random() < share]


def test_the_transform_of_the_oracle_is_sylvesters() -> None:
    matrix = np.array([[1.0]])
    while len(matrix) < 64:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    values = some_gradient(64).numpy()
    np.testing.assert_allclose(transformed(values), matrix @ values / 8, atol=1e-6)


@pytest.mark.parametrize("counts", [range(1, 1300), range(1300, 2600), range(2600, 3900), range(3900, 5001), AWKWARD])
def test_every_length_is_what_the_definition_says(counts: list[int]) -> None:
    for count in counts:
        gradient, blocks = some_gradient(count, count), blocks_of(count)
        signs = signs_of(count, count, blocks)
        assert np.abs(signs).min() == 1, "every element is in a block"
        coefficients = encoded(gradient, count).numpy()
        for block in blocks:
            wanted = transformed((gradient.numpy() * signs)[block])
            np.testing.assert_allclose(coefficients[block], wanted, atol=2e-5, err_msg=f"count {count}")


def test_the_vector_of_figure_9() -> None:
    key = [1, -1, 1, 1, -1, 1, -1, 1]
    seed = next(seed for seed in range(100_000) if signs_of(8, seed, blocks_of(8)).tolist() == key)
    coefficients = encoded(torch.arange(1.0, 5.0, 0.5), seed)
    torch.testing.assert_close(coefficients * math.sqrt(8), torch.tensor([5.0, -13, -5, 5, 3, 17, -5, 1]))
    in_the_figure = torch.tensor([0.875, 1.375, 2.125, 2.375, 2.875, 3.375, 4.125, 4.625])
    left = arrived(coefficients, [(7, 8)])
    unscaled = left.clone()
    assert Hadamard().decode(unscaled, [], seed) == ()
    torch.testing.assert_close(unscaled, in_the_figure)
    assert Hadamard().decode(left, [(7, 8)], seed) == ()
    torch.testing.assert_close(left, in_the_figure * 8 / 7)


@settings(max_examples=60, deadline=None)
@given(count=st.one_of(st.integers(0, 3000), st.integers(0, 6 * TILE)), seed=st.integers(0, 2**32 - 1))
def test_what_is_decoded_is_what_was_encoded_and_its_length_is_kept(count: int, seed: int) -> None:
    gradient = some_gradient(count, seed)
    coefficients = encoded(gradient, seed)
    torch.testing.assert_close(coefficients.norm(), gradient.norm(), rtol=1e-4, atol=0)
    assert Hadamard().decode(coefficients, [], seed) == ()
    torch.testing.assert_close(coefficients, gradient, rtol=0, atol=4e-6)


def test_the_sum_of_encoded_gradients_is_the_encoded_sum() -> None:
    count = 2 * TILE + 99
    one, two = some_gradient(count, 1), some_gradient(count, 2)
    torch.testing.assert_close(encoded(one, 7) + encoded(two, 7), encoded(one + two, 7), rtol=0, atol=2e-5)
    assert not torch.allclose(encoded(one, 7) + encoded(two, 8), encoded(one + two, 7), rtol=0, atol=0.1)


@pytest.mark.parametrize("count", [900, 3000, 2 * TILE + 300])
def test_over_seeds_the_mean_of_what_is_decoded_is_the_gradient(count: int) -> None:
    """A fifth of all packets lost at random, 20 elements each so that short buckets have some. Bound: 3 sigma."""
    num_draws, random = 1500 if count < TILE else 400, np.random.default_rng(20261117)
    gradient = some_gradient(count) * torch.linspace(0.1, 3, count)
    total, squares, num_seen = (torch.zeros(count, dtype=torch.float64) for _ in range(3))
    for seed in range(num_draws):
        missing = [(begin, min(count, begin + 20)) for begin in range(0, count, 20) if random.random() < 0.2]
        left = arrived(encoded(gradient, seed), missing)
        here = torch.ones(count, dtype=torch.float64)
        for begin, end in Hadamard().decode(left, missing, seed):  # of a short block nothing may arrive
            assert not left[begin:end].any()
            here[begin:end] = 0
        total += left
        squares += left.double().square()
        num_seen += here
    mean = total / num_seen
    sigma = ((squares / num_seen - mean.square()).clamp(min=0) / num_seen).sqrt().clamp(min=1e-7)
    off = (mean - gradient) / sigma
    assert (off.abs() > 3).double().mean() < 0.01, "one in 370 may be beyond 3 sigma"
    assert abs(off.mean()) < 3 / math.sqrt(count)


def test_without_the_scale_it_would_be_smaller() -> None:
    gradient, missing = torch.ones(TILE), [(0, TILE // 4)]
    left = arrived(encoded(gradient, 3), missing)
    unscaled = left.clone()
    Hadamard().decode(left, missing, 3)
    Hadamard().decode(unscaled, [], 3)
    assert abs(left.mean() - 1) < 0.02
    torch.testing.assert_close(unscaled, left * 3 / 4)


def test_a_lost_packet_touches_many_blocks_and_hurts_no_element_much() -> None:
    count, random = 20 * TILE, np.random.default_rng(5)
    gradient = some_gradient(count)
    blocks = blocks_of(count)
    block_of = np.empty(count, dtype=np.int64)
    for number, block in enumerate(blocks):
        block_of[block] = number
    for _ in range(100):
        begin = int(random.integers(0, count - PACKET))
        hit, how_often = np.unique(block_of[begin : begin + PACKET], return_counts=True)
        assert len(hit) >= 48
        assert how_often.max() <= 8
    missing = [(12_345, 12_345 + PACKET)]
    left = arrived(encoded(gradient, 1), missing)
    Hadamard().decode(left, missing, 1)
    error = (left - gradient).abs()
    assert error.max() < 0.5, "without the transform the largest element of the packet is lost as a whole, beyond 2"
    assert (error > 1e-3).sum() > 40_000


def test_two_percent_of_packets_lost_cost_two_percent_of_the_energy_and_no_element_all_of_it() -> None:
    count = 20 * TILE
    gradient = some_gradient(count) ** 3  # a few elements hold most of it
    missing = lost_packets(count, 0.02, np.random.default_rng(9))
    share = sum(end - begin for begin, end in missing) / count
    left = arrived(encoded(gradient, 1), missing)
    assert Hadamard().decode(left, missing, 1) == ()
    relative = float(((left - gradient).norm() / gradient.norm()).square())
    assert 0.8 * share < relative < 1.3 * share
    largest = gradient.abs().topk(100).indices
    assert ((left - gradient).abs()[largest] < 0.1 * gradient.abs()[largest]).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("count", [5, 1500, 2 * TILE + 77])
def test_one_element_that_is_not_finite_is_found_in_all_of_its_block_and_nowhere_else(bad: float, count: int) -> None:
    """Two ranks, of which one has it; and most of what was sent is lost."""
    gradient = some_gradient(count)
    gradient[count // 2] = bad
    average = (encoded(gradient, 4) + encoded(some_gradient(count, 1), 4)) / 2
    (own,) = (block for block in blocks_of(count) if count // 2 in block)
    expected = torch.ones(count, dtype=torch.bool)
    expected[own] = False
    kept = average.clone()
    Hadamard().decode(kept, [], 4)
    assert torch.equal(kept.isfinite(), expected)
    last = int(own[-1])
    for missing in ([(0, last), (last + 1, count)], [(last, count)]):
        left = arrived(average, missing)
        lost = Hadamard().decode(left, missing, 4)
        gone = torch.zeros(count, dtype=torch.bool)
        for begin, end in lost:
            gone[begin:end] = True
        if not gone[last]:
            assert not left[own].isfinite().any()
        assert torch.equal(left.isfinite() | ~expected, torch.ones(count, dtype=torch.bool))


def test_blocks_of_which_nothing_arrived_are_named() -> None:
    codec, count = Hadamard(), TILE + 1024 + 37
    everything = torch.zeros(count)
    assert codec.decode(everything, [(0, count)], 1) == ((0, count),)
    tail = arrived(encoded(some_gradient(count), 1), [(TILE + 10, count)])
    assert codec.decode(tail, [(TILE + 10, count)], 1) == ((TILE + 1024, count),)
    assert tail[: TILE + 1024].count_nonzero() == TILE + 1024
    assert not tail[TILE + 1024 :].any()


def test_seeds_differ_and_repeat() -> None:
    gradient = some_gradient(TILE)
    assert torch.equal(encoded(gradient, 5), encoded(gradient, 5))
    for other in (4, 6, 1 << 33, (1 << 48) + 5):
        assert (encoded(gradient, 5) == encoded(gradient, other)).double().mean() < 0.01


@pytest.mark.parametrize("missing", [[(5, 4)], [(0, 11)], [(4, 6), (5, 7)], [(4, 6), (0, 2)]], ids=str)
def test_ranges_out_of_order_or_bounds_are_refused(missing: Ranges) -> None:
    with pytest.raises(ValueError, match="ranges ascend"):
        _native.hadamard_decode(torch.zeros(10).data_ptr(), 10, 0, missing)


def test_only_float32_is_encoded_and_words_say_what_was_made_up_for() -> None:
    codec = Hadamard()
    assert codec.applies_to(torch.empty(1))
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        assert not codec.applies_to(torch.empty(1, dtype=dtype))
    codec.decode(torch.zeros(10), [], 0)
    assert "made up for" not in codec.describe()
    codec.decode(torch.zeros(10), [(0, 1)], 1)
    assert "1 of 2 results had some missing" in codec.describe()
