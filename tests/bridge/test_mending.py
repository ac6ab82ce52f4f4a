"""Who is asked for which part of the state, and what is expected of the next round."""

from __future__ import annotations

import pytest
import torch

from holdfast.bridge.mending import MOST_BUDGET, SMALL_STATE_BYTES, Mending
from holdfast.bridge.replica_notes import Content, Portion, Refusal, Verdict
from holdfast.bridge.state_blocks import LEAST_BLOCK_BYTES, NamedTensor, StateBlocks

NUM_RANKS = 5
OWN = {0}


def state(num_bytes: int) -> StateBlocks:
    return StateBlocks([[NamedTensor("state", torch.zeros(num_bytes // 4))]])


SMALL, LARGE = state(40 * LEAST_BLOCK_BYTES), state(16 * SMALL_STATE_BYTES)


def refusal(step: int) -> Refusal:
    return Refusal(step, sure=True, withdrew=False, equal=False)


def all_sent(step: int, *, left_over: int = 0) -> Verdict:
    return Verdict(step, compared=5, unequal=2 + left_over, sent=2)


def was_away(num_ranks: int = NUM_RANKS) -> Mending:
    mending = Mending(num_ranks)
    mending.begin(much_is_missing=True)
    mending.begin_round()
    return mending


def test_where_little_is_missing_one_rank_is_asked_after_the_other() -> None:
    mending = Mending(NUM_RANKS)
    mending.begin(much_is_missing=False)
    mending.begin_round()
    asked = []
    while found := mending.next_to_ask(7, OWN, SMALL):
        ((rank, portion),) = found.items()
        assert portion == Portion(0, 1)
        assert mending.was_asked(rank)
        mending.refused[rank] = refusal(7)
        asked.append(rank)
    assert sorted(asked) == [1, 2, 3, 4]


def test_a_rank_that_was_away_asks_all_that_are_there_each_for_a_portion() -> None:
    mending = was_away()
    found = mending.next_to_ask(7, OWN | {3}, SMALL)
    assert sorted(found) == [1, 2, 4]
    blocks = [block for portion in found.values() for block in portion.blocks(SMALL.num_blocks)]
    assert sorted(blocks) == list(range(SMALL.num_blocks)), "each block of one of them"
    mending.refused[1] = refusal(7)
    assert mending.next_to_ask(7, OWN | {3}, SMALL) == {}, "its portion is for the next round"
    mending.begin_round()
    assert mending.next_to_ask(8, OWN | {3}, SMALL)[1] != found[1], "and for somebody else"


@pytest.mark.parametrize(("num_ranks", "unavailable"), [(2, {0}), (2, {0, 1}), (64, {0})])
def test_of_few_blocks_and_among_few_ranks_nobody_is_asked_for_nothing(num_ranks: int, unavailable: set[int]) -> None:
    few = state(3 * LEAST_BLOCK_BYTES)
    found = was_away(num_ranks).next_to_ask(5, unavailable, few)
    assert len(found) == min(num_ranks - len(unavailable), few.num_blocks)
    assert all(portion.blocks(few.num_blocks) for portion in found.values())


def test_no_more_are_asked_than_may_send_a_block_each() -> None:
    mending = was_away(64)
    for _ in range(10):
        mending.was_disturbed()
    found = mending.next_to_ask(5, OWN, LARGE)
    block_bytes = LARGE.num_bytes // LARGE.num_blocks
    assert 1 < len(found) <= mending.budget_bytes(LARGE) // block_bytes < 63
    assert all(mending.budget_bytes(LARGE, portion) >= block_bytes for portion in found.values())


def test_a_small_state_comes_in_one_round_also_in_portions() -> None:
    mending = was_away()
    for portion in mending.next_to_ask(7, OWN, SMALL).values():
        asked_for = sum(SMALL.size_of(block) for block in portion.blocks(SMALL.num_blocks))
        assert mending.budget_bytes(SMALL, portion) >= asked_for


def test_many_are_asked_until_nobody_has_more_than_was_sent() -> None:
    mending = was_away()
    for step, left_over in enumerate((3, 0)):
        asked = mending.next_to_ask(step, OWN, SMALL)
        assert len(asked) == 4
        for rank in asked:
            mending.expect(rank, all_sent(step, left_over=left_over if rank == 1 else 0))
        mending.begin_round()
    assert len(mending.next_to_ask(2, OWN, SMALL)) == 1
    # And many again if that one has more than it may send.
    mending.expect(1, all_sent(2, left_over=4))
    mending.begin_round()
    assert len(mending.next_to_ask(3, OWN, SMALL)) == 4


def test_if_all_that_were_asked_for_a_portion_refuse_the_others_are_asked_in_their_place() -> None:
    """Else nobody would learn that all are in doubt, and settle it."""
    mending = was_away(64)
    for _ in range(10):
        mending.was_disturbed()
    asked = set(mending.next_to_ask(5, OWN, LARGE))
    assert len(asked) < 63
    while found := set(mending.next_to_ask(5, OWN, LARGE)):
        asked |= found
    assert len(asked) < 63, "one of them may still answer"
    for rank in sorted(asked):
        mending.refused[rank] = refusal(5)
    while found := set(mending.next_to_ask(5, OWN, LARGE)):
        assert found.isdisjoint(asked)
        asked |= found
        mending.refused.update(dict.fromkeys(found, refusal(5)))
    assert asked == set(range(1, 64))


@pytest.mark.parametrize(("num_judged", "num_refused", "asks_many"), [(0, 0, True), (1, 0, True), (2, 0, True),
                                                                      (3, 0, False), (1, 2, False), (0, 4, True)])  # fmt: skip
def test_most_must_have_answered_before_one_is_asked_again(num_judged: int, num_refused: int, asks_many: bool) -> None:
    """But not all: one that is silent, or in doubt itself, must not keep this rank in doubt."""
    mending = was_away()
    asked = list(mending.next_to_ask(1, OWN, SMALL))
    for rank in asked[:num_judged]:
        mending.expect(rank, all_sent(1))
    for rank in asked[num_judged : num_judged + num_refused]:
        mending.refused[rank] = refusal(1)
    mending.begin_round()
    assert (len(mending.next_to_ask(2, OWN, SMALL)) > 1) is asks_many


def test_another_doubt_knows_nothing_of_the_one_before() -> None:
    mending = was_away()
    mending.next_to_ask(1, OWN, SMALL)
    mending.expect(1, all_sent(1, left_over=5))
    mending.begin(much_is_missing=False)
    mending.begin_round()
    assert len(mending.next_to_ask(2, OWN, SMALL)) == 1


def test_what_comes_is_kept_for_its_step() -> None:
    mending = Mending(NUM_RANKS)
    mending.keep(Content(4, 1, b"late"))
    mending.keep(Content(5, 1, b"one"))
    mending.keep(Content(5, 2, b"two"))
    mending.keep(Content(6, 3, b"early"))
    assert mending.take_arrived(5) == {1: b"one", 2: b"two"}
    assert mending.take_arrived(6) == {3: b"early"}
    assert mending.take_arrived(4) == {}


def test_the_budget_follows_what_comes_in_time_of_all_that_was_promised() -> None:
    def round_of(step: int, promised: int, came: list[int]) -> int:
        for sender in range(promised):
            mending.expect(sender, Verdict(step, compared=9, unequal=1, sent=1))
        for block in came:
            mending.keep(Content(step, block, b""))
        mending.take_arrived(step)
        return mending.budget_bytes(LARGE)

    mending = Mending(NUM_RANKS)
    first = mending.budget_bytes(LARGE)
    assert round_of(1, promised=2, came=[0, 1]) == 1.5 * first
    assert round_of(2, promised=2, came=[0]) == 0.75 * first
    assert round_of(3, promised=2, came=[7, 7]) == 1.125 * first, "one that is sent twice has come twice"
    for step in range(4, 20):
        round_of(step, promised=1, came=[0])
    assert mending.budget_bytes(LARGE) == MOST_BUDGET * LARGE.num_bytes
    mending.expect(1, all_sent(20))
    mending.forget_arrived()
    assert round_of(20, promised=0, came=[]) == MOST_BUDGET * LARGE.num_bytes, "nothing is expected any more"
