"""What counts as lost where ranks were away: what the network dropped, and not what nobody sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.reduce.report import entries_lost

SHARD = 100
NUM_RANKS = 4


def report(*, away: int = 0, delivered: int, counterparts: int = 0) -> Any:
    """Of rank 0, of whose peers the last ones were away; `counterparts` belong to other groups."""
    heard = SimpleNamespace(contributed=SHARD, contribution_size=SHARD, results=SHARD, result_size=SHARD)
    silent = SimpleNamespace(contributed=0, contribution_size=SHARD, results=0, result_size=SHARD)
    elsewhere = SimpleNamespace(contributed=0, contribution_size=0, results=0, result_size=0)
    peers = [heard] * (NUM_RANKS - away) + [silent] * away + [elsewhere] * counterparts
    return cast(Any, SimpleNamespace(peers=peers, total=NUM_RANKS * SHARD, delivered=delivered))


@pytest.mark.parametrize("delivered", [1_600, 1_599, 0])
def test_with_everybody_there_it_is_what_is_missing(delivered: int) -> None:
    assert entries_lost(report(delivered=delivered), 0) == (1_600 - delivered, 1_600)


def test_what_a_rank_that_was_away_did_not_send_is_not_lost() -> None:
    assert entries_lost(report(away=1, delivered=900), 0) == (0, 900)
    assert entries_lost(report(away=1, delivered=890), 0) == (10, 900)


def test_an_owner_may_have_heard_somebody_that_this_rank_has_not() -> None:
    assert entries_lost(report(away=1, delivered=1_000), 0) == (0, 900)


@pytest.mark.parametrize("away", [2, 3])
def test_a_rank_without_most_of_the_others_has_nothing_to_say(away: int) -> None:
    assert entries_lost(report(away=away, delivered=0), 0) == (0, 0)


def test_ranks_of_other_groups_are_not_away() -> None:
    assert entries_lost(report(delivered=3_200, counterparts=4), 0) == (0, 3_200)


def test_with_groups_nothing_is_said_of_an_operation_without_somebody() -> None:
    assert entries_lost(report(away=1, delivered=1_800, counterparts=4), 0) == (0, 0)
