"""Packed and unpacked, elements are the same to the bit; and how fast this machine is at it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import _native
from holdfast.codec.packing_speed import measured_speed

FORMATS = {_native.Format.f32: np.uint32, _native.Format.bf16: np.uint16}


def packed(format: _native.Format, words: npt.NDArray[np.unsignedinteger]) -> bytes:
    return _native.pack(format, words.ctypes.data, len(words))


@pytest.mark.parametrize("format", FORMATS)
@given(
    words=st.lists(st.integers(0, (1 << 32) - 1) | st.sampled_from([0, 1 << 31, 0x7F800001, 0x3F800000]), max_size=99)
)
def test_every_bit_pattern_comes_back(format: _native.Format, words: list[int]) -> None:
    dtype = FORMATS[format]
    sent = (np.array(words, np.uint64) >> (32 - 8 * dtype().itemsize)).astype(dtype)
    got = np.full_like(sent, 0xEEEE)
    assert _native.unpack(format, got.ctypes.data, len(got), packed(format, sent))
    assert np.array_equal(got, sent)


@pytest.mark.parametrize("format", FORMATS)
@given(noise=st.binary(max_size=300), count=st.integers(1, 200))
def test_any_bytes_are_refused_or_are_so_many_elements(format: _native.Format, noise: bytes, count: int) -> None:
    got = np.zeros(count + 16, FORMATS[format])
    _native.unpack(format, got.ctypes.data, count, noise)
    assert not got[count:].any()  # nothing is written beyond them


def test_what_cannot_be_packed_is_said() -> None:
    for format in (_native.Format.f64, _native.Format.f16, _native.Format.bytes):
        with pytest.raises(ValueError, match="f32 and bf16"):
            _native.pack(format, 0, 0)


def test_the_speed_of_this_machine() -> None:
    speed = measured_speed()
    assert 0.15 < speed.saved_ratio < 0.17  # of gradients that are spread like a bell
    assert speed.pack_bytes_per_s > 0
    assert speed.unpack_bytes_per_s > 0
