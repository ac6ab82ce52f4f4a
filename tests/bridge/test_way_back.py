"""Where a rank that was away goes on: where most of the others are, whoever answers."""

from __future__ import annotations

import pytest

from holdfast.bridge.replica_notes import Standing
from holdfast.bridge.way_back import where_most_are


@pytest.mark.parametrize(
    ("steps", "num_others", "found"),
    [
        ([9], 1, 9),
        ([], 1, None),
        ([9], 3, None),  # it alone has answered
        ([9, 7], 3, 7),
        ([9, 7, 7], 3, 7),
        ([9, 9, 7], 3, 9),
        ([9, 9], 4, None),
        ([9, 9, 8], 4, 8),
    ],
)
def test_nobody_goes_where_a_single_rank_is(steps: list[int], num_others: int, found: int | None) -> None:
    standing = where_most_are([Standing(step, 2 * step, step) for step in steps], num_others)
    assert (None if standing is None else standing.step) == found
