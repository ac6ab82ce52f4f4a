"""Whose state is right where ranks differ, and who is asked about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

NUM_SLICES = 16
"""So many steps are one round over the whole state."""


def slice_of(step: int, num_blocks: int) -> range:
    """The blocks that are compared after a step: strided, so that every slice holds a little of every tensor."""
    return range(step % NUM_SLICES, num_blocks, NUM_SLICES)


def referee_of(step: int, num_ranks: int, gone: Set[int], *, besides: int | None = None) -> int | None:
    """Who compares after this step: everybody in turn. `besides`: not this rank, which needs somebody else's state."""
    for offset in range(num_ranks):
        rank = (step + offset) % num_ranks
        if rank not in gone and rank != besides:
            return rank
    return None


def odd_ranks(fingerprints: Mapping[int, Sequence[int]], dirty: Set[int]) -> dict[int, list[int]]:
    """Ranks whose fingerprints differ from what most have, and in which places.

    Those that know of no loss are believed before those that do; of two opinions that as many hold, that of the lowest
    rank.
    """
    odd: dict[int, list[int]] = {}
    for place, values in enumerate(zip(*fingerprints.values(), strict=True)):
        if len(set(values)) == 1:
            continue
        holders: dict[int, list[int]] = {}
        for rank, value in zip(fingerprints, values, strict=True):
            holders.setdefault(value, []).append(rank)
        reference = max(
            holders,
            key=lambda value: (sum(r not in dirty for r in holders[value]), len(holders[value]), -min(holders[value])),
        )
        for value, ranks in holders.items():
            if value != reference:
                for rank in ranks:
                    odd.setdefault(rank, []).append(place)
    return odd
