"""Every example once per epoch, whoever trains on it; the same for the same seed."""

from __future__ import annotations

import pytest

from holdfast.lab.race.tasks import shuffle


def batches(num_steps: int, *, num_ranks: int, size: int, num_examples: int, seed: int = 3) -> list[int]:
    return [
        int(example)
        for step in range(num_steps)
        for rank in range(num_ranks)
        for example in shuffle.batch(
            step, size=size, rank=rank, num_ranks=num_ranks, num_examples=num_examples, seed=seed
        )
    ]


@pytest.mark.parametrize(("num_ranks", "size"), [(1, 5), (4, 5), (3, 7), (4, 40)])
def test_all_ranks_together_go_through_everything_once_per_epoch(num_ranks: int, size: int) -> None:
    """Also where a batch lies across two epochs, and where one step is longer than an epoch."""
    drawn = batches(21, num_ranks=num_ranks, size=size, num_examples=100)
    epochs = [drawn[begin : begin + 100] for begin in range(0, len(drawn) - 99, 100)]
    assert epochs
    for epoch in epochs:
        assert sorted(epoch) == list(range(100))
    assert len({tuple(epoch) for epoch in epochs}) == len(epochs)


def test_the_seed_decides_the_order() -> None:
    again = [batches(3, num_ranks=2, size=4, num_examples=50, seed=seed) for seed in (1, 1, 2)]
    assert again[0] == again[1] != again[2]
