"""Memory that is given back is used again, the smallest piece that fits."""

from __future__ import annotations

import torch

from holdfast.codec.spare_memory import SpareMemory


def test_the_smallest_piece_that_fits_is_used_again() -> None:
    memory = SpareMemory(torch.bfloat16)
    small, large = memory.take(10), memory.take(100)
    assert small.dtype == torch.bfloat16
    for piece in (large, small):
        memory.give_back(piece)
    again = memory.take(7)
    assert (again.numel(), again.data_ptr()) == (7, small.data_ptr())
    assert memory.take(8).data_ptr() == large.data_ptr()


def test_a_part_is_given_back_as_the_whole_it_is_of() -> None:
    memory = SpareMemory(torch.float32)
    whole = memory.take(100)
    memory.give_back(whole)
    memory.give_back(memory.take(3))
    assert memory.take(100).data_ptr() == whole.data_ptr()


def test_what_is_too_small_is_replaced() -> None:
    memory = SpareMemory(torch.float32)
    memory.give_back(memory.take(10))
    memory.give_back(memory.take(20))
    assert len(memory._spare) == 1
