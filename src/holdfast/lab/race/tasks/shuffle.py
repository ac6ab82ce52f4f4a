"""Who trains on what in which step: epochs of shuffled examples, cut into batches by rank."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch


def batch(step: int, *, size: int, rank: int, num_ranks: int, num_examples: int, seed: int) -> torch.Tensor:
    """The examples of a rank's batch: all ranks and steps together go through every example once per epoch."""
    first = (step * num_ranks + rank) * size
    places = np.arange(first, first + size)
    epochs = places // num_examples  # a batch may begin in one epoch and end in the next
    orders = np.stack([_order(seed, int(epoch), num_examples) for epoch in range(epochs[0], epochs[-1] + 1)])
    return torch.from_numpy(orders[epochs - epochs[0], places % num_examples])


@cache
def _order(seed: int, epoch: int, num_examples: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng([seed, epoch]).permutation(num_examples)
