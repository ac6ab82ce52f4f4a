"""What counts as lost where ranks were away: what the network dropped, and not what nobody sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.reduce.report import entries_lost

SHARD = 100


def report(*lost: int, away: int = 0, counterparts: int = 0) -> Any:
    """Of rank 0, whose peers each lack so many results; of the last ones nothing came. `counterparts` are in other groups."""
    here = SimpleNamespace(contributed=SHARD, contribution_size=SHARD, results=SHARD, result_size=SHARD)
    heard = [SimpleNamespace(**{**vars(here), "results": SHARD - missing}) for missing in lost]
    silent = SimpleNamespace(contributed=0, contribution_size=SHARD, results=0, result_size=SHARD)
    elsewhere = SimpleNamespace(contributed=0, contribution_size=0, results=0, result_size=0)
    return cast(Any, SimpleNamespace(peers=[here, *heard, *[silent] * away, *[elsewhere] * counterparts]))


def lost_ratio(seen: Any) -> float:
    lost, expected = entries_lost(seen, 0)
    return lost / expected


def test_an_entry_travels_twice_but_for_the_own_ones() -> None:
    # Of the 400 elements of two peers 40 are lost; 3 of 4 contributions and results travel.
    assert lost_ratio(report(20, 20, 20)) == pytest.approx(2 * 3 / 4 * 40 / 400)
    assert lost_ratio(report(20)) == pytest.approx(2 * 1 / 2 * 20 / 200)
    assert lost_ratio(report(0, 0, 0)) == 0.0


def test_what_one_peer_alone_lacks_is_not_the_networks_loss() -> None:
    assert lost_ratio(report(0, SHARD, 0)) == 0.0
    assert lost_ratio(report(SHARD)) == 0.5, "of two nobody knows whose it is"


def test_what_a_rank_that_was_away_did_not_send_is_not_lost() -> None:
    assert lost_ratio(report(0, 0, away=1)) == 0.0
    assert lost_ratio(report(20, 20, away=1)) == pytest.approx(2 * 3 / 4 * 20 / 200)


@pytest.mark.parametrize("away", [2, 3])
def test_a_rank_without_most_of_the_others_has_nothing_to_say(away: int) -> None:
    assert entries_lost(report(*[20] * (3 - away), away=away), 0) == (0, 0)


def test_ranks_of_other_groups_are_not_away() -> None:
    assert entries_lost(report(20, 20, 20, counterparts=4), 0) == entries_lost(report(20, 20, 20), 0)
    assert entries_lost(report(counterparts=4), 0) == (0, 0), "nobody is in its own group"
