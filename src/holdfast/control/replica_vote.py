"""Whose state is right where ranks differ, and who is asked about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

NUM_SLICES = 16
"""So many steps are one round over the whole state."""


def slice_of(step: int, num_blocks: int) -> range:
    """The blocks that are compared after a step: strided, so that every slice holds a little of every tensor."""
    return range(step % NUM_SLICES, num_blocks, NUM_SLICES)


def referee_of(step: int, num_ranks: int, left_out: Set[int]) -> int | None:
    """Who compares, or is asked, after this step: everybody in turn, and another for the same slice in the next round."""
    first = step + step // NUM_SLICES
    in_turn = ((first + offset) % num_ranks for offset in range(num_ranks))
    return next((rank for rank in in_turn if rank not in left_out), None)


def odd_ranks(fingerprints: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Ranks whose fingerprints differ from what most have, and in which places.

    Of two opinions that as many hold, that of the lowest rank is taken: somebody has to be right.
    """
    odd: dict[int, list[int]] = {}
    for place, values in enumerate(zip(*fingerprints.values(), strict=True)):
        holders: dict[int, list[int]] = {}
        for rank, value in zip(fingerprints, values, strict=True):
            holders.setdefault(value, []).append(rank)
        reference = max(holders.values(), key=lambda ranks: (len(ranks), -min(ranks)))
        for ranks in holders.values():
            if ranks is not reference:
                for rank in ranks:
                    odd.setdefault(rank, []).append(place)
    return odd
