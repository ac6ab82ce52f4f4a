"""Who is asked for which part of the state, and what is expected of the next round."""

from __future__ import annotations

from holdfast.bridge.mending import MOST_BUDGET, SMALL_STATE_BYTES, Mending
from holdfast.bridge.replica_notes import Content, Portion, Refusal, Verdict

NUM_RANKS = 5
OWN = {0}


def refusal(step: int) -> Refusal:
    return Refusal(step, sure=True, withdrew=False, equal=False)


def test_where_little_is_missing_one_rank_is_asked_after_the_other() -> None:
    mending = Mending(NUM_RANKS)
    mending.begin_round()
    asked = []
    while found := mending.next_to_ask(7, OWN):
        ((rank, portion),) = found.items()
        assert portion == Portion(0, 1)
        assert mending.was_asked(rank)
        mending.refused[rank] = refusal(7)
        asked.append(rank)
    assert sorted(asked) == [1, 2, 3, 4]


def test_a_rank_that_was_away_asks_all_that_are_there_each_for_a_portion() -> None:
    mending = Mending(NUM_RANKS)
    mending.much_is_missing()
    mending.begin_round()
    found = mending.next_to_ask(7, OWN | {3})
    assert sorted(found) == [1, 2, 4]
    blocks = [block for portion in found.values() for block in portion.blocks(10)]
    assert sorted(blocks) == list(range(10)), "each block of one of them"
    mending.refused[1] = refusal(7)
    assert mending.next_to_ask(7, OWN | {3}) == {}, "its portion is for the next round"
    mending.begin_round()
    assert mending.next_to_ask(8, OWN | {3})[1] != found[1], "and for somebody else"


def test_all_are_asked_until_each_has_sent_all_that_was_unequal() -> None:
    mending = Mending(NUM_RANKS)
    mending.much_is_missing()
    for step, left_over in enumerate((3, 0)):
        mending.begin_round()
        asked = mending.next_to_ask(step, OWN)
        assert len(asked) == 4
        for rank in asked:
            mending.expect(Verdict(step, compared=5, unequal=2 + (left_over if rank == 1 else 0), sent=2))
    mending.begin_round()
    assert len(mending.next_to_ask(2, OWN)) == 1
    # And all again if that one has more than it may send.
    mending.expect(Verdict(2, compared=20, unequal=9, sent=5))
    mending.begin_round()
    assert len(mending.next_to_ask(3, OWN)) == 4


def test_a_round_without_an_answer_says_nothing() -> None:
    mending = Mending(NUM_RANKS)
    mending.much_is_missing()
    for step in range(3):
        mending.begin_round()
        assert len(mending.next_to_ask(step, OWN)) == 4


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
    size = 16 * SMALL_STATE_BYTES
    mending = Mending(NUM_RANKS)
    first = mending.budget_bytes(size)
    for _ in range(2):  # of two ranks a block each
        mending.expect(Verdict(1, compared=9, unequal=1, sent=1))
    mending.keep(Content(1, 0, b""))
    mending.keep(Content(1, 1, b""))
    mending.take_arrived(1)
    assert mending.budget_bytes(size) == 1.5 * first
    for _ in range(2):
        mending.expect(Verdict(2, compared=9, unequal=1, sent=1))
    mending.keep(Content(2, 0, b""))
    mending.take_arrived(2)
    assert mending.budget_bytes(size) == 0.75 * first
    for step in range(3, 20):
        mending.expect(Verdict(step, compared=9, unequal=1, sent=1))
        mending.keep(Content(step, 0, b""))
        mending.take_arrived(step)
    assert mending.budget_bytes(size) == MOST_BUDGET * size
    assert mending.budget_bytes(SMALL_STATE_BYTES) == SMALL_STATE_BYTES, "all of it at once"
