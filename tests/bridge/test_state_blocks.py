"""State as blocks: cut alike everywhere, fingerprinted, read here and written there."""

from __future__ import annotations

import pytest
import torch

from holdfast.bridge.state_blocks import LEAST_BLOCK_BYTES, NamedTensor, StateBlocks


def tensors(seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(3, 5, generator=generator),
        torch.randn(70_001, generator=generator),
        torch.randn((), generator=generator),
        torch.randn(64, 3, 7, 7, generator=generator).to(memory_format=torch.channels_last),
        torch.randn(33, 17, generator=generator).double().t(),
        torch.randn(40_000, generator=generator).bfloat16()[::2],  # has gaps
        torch.zeros(0),
        torch.randint(0, 99, (5,), generator=generator),
    ]


def blocks_of(values: list[torch.Tensor]) -> StateBlocks:
    return StateBlocks([[NamedTensor(f"tensor {index}", value)] for index, value in enumerate(values)])


def test_what_is_written_is_what_was_read() -> None:
    here, there = tensors(1), tensors(2)
    ours, theirs = blocks_of(here), blocks_of(there)
    assert ours.layout == theirs.layout
    everything = range(ours.num_blocks)
    assert ours.num_blocks > 3
    assert sum(map(ours.size_of, everything)) == ours.num_bytes
    for block in everything:
        assert ours.fingerprints([block]) != theirs.fingerprints([block])
        assert theirs.write(block, ours.read(block)) > 0.1
    assert ours.fingerprints(everything) == theirs.fingerprints(everything)
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


def test_one_flipped_bit_shows_in_its_block_alone_and_its_tensor_is_named() -> None:
    values = tensors()
    blocks = blocks_of(values)
    before = blocks.fingerprints(range(blocks.num_blocks))
    values[1].view(torch.int32)[69_000] ^= 1
    after = blocks.fingerprints(range(blocks.num_blocks))
    changed = [block for block, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    assert len(changed) == 1
    assert "tensor 1" in blocks.names_in(changed)


def test_other_names_shapes_or_dtypes_are_another_layout() -> None:
    layouts = {
        StateBlocks([[NamedTensor(name, torch.zeros(shape, dtype=dtype))]]).layout
        for name in ("a", "b")
        for shape in ((6,), (2, 3))
        for dtype in (torch.float32, torch.int32)
    }
    assert len(layouts) == 8


def test_a_counter_goes_on_from_where_the_others_are() -> None:
    counter = torch.tensor(7)
    blocks = StateBlocks([[NamedTensor("batches", counter.clone(), counter)]])
    counter += 1  # the next forward
    others = StateBlocks([[NamedTensor("batches", torch.tensor(30), torch.tensor(30))]])
    blocks.write(0, others.read(0))
    assert counter == 31


def test_what_is_only_compared_is_not_written() -> None:
    average = torch.ones(4)
    blocks = StateBlocks([[NamedTensor("mean", average, read_only=True)]])
    blocks.write(0, StateBlocks([[NamedTensor("mean", torch.zeros(4))]]).read(0))
    assert average.tolist() == [1.0] * 4


def test_content_of_another_length_is_refused() -> None:
    blocks = blocks_of([torch.zeros(LEAST_BLOCK_BYTES // 4 + 1)])
    assert [blocks.size_of(block) for block in range(2)] == [LEAST_BLOCK_BYTES, 4]
    with pytest.raises(ValueError, match="has 4 bytes, not 5"):
        blocks.write(1, b"12345")


def test_a_stretch_of_a_parameter_is_together_with_what_belongs_to_it() -> None:
    """Whatever subset of blocks was installed, a step that works element by element keeps it equal."""
    count = 3 * LEAST_BLOCK_BYTES // 4

    def state(seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(count, generator=generator) for _ in range(2)] + [torch.full((), float(seed))]

    def blocks(values: list[torch.Tensor]) -> StateBlocks:
        return StateBlocks([[NamedTensor(name, value) for name, value in zip("pms", values, strict=True)]])

    def step(values: list[torch.Tensor]) -> None:
        parameter, moment, steps = values
        steps += 1
        moment.mul_(0.9).add_(0.1 * (parameter + 1))
        parameter.sub_(0.01 * moment)

    here, there = state(1), state(2)
    installed = [1, 3]
    for block in installed:
        blocks(there).write(block, blocks(here).read(block))
    step(here)
    step(there)
    assert blocks(here).fingerprints(installed) == blocks(there).fingerprints(installed)
    others = [block for block in range(blocks(here).num_blocks) if block not in installed]
    assert others
    assert blocks(here).fingerprints(others) != blocks(there).fingerprints(others)


def test_no_state_has_no_blocks() -> None:
    blocks = StateBlocks([])
    assert blocks.num_blocks == 0
    assert blocks.fingerprints([]) == []
