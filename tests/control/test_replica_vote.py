"""Who compares, what is compared, and who is believed where ranks differ."""

from __future__ import annotations

from holdfast.control.replica_vote import NUM_SLICES, odd_ranks, referee_of, slice_of


def test_a_round_of_slices_is_every_block_once() -> None:
    for num_blocks in (1, 5, 16, 17, 100):
        blocks = [block for step in range(7, 7 + NUM_SLICES) for block in slice_of(step, num_blocks)]
        assert sorted(blocks) == list(range(num_blocks))


def test_everybody_is_referee_in_turn_and_those_left_out_never_are() -> None:
    assert [referee_of(step, 3, set()) for step in range(4)] == [0, 1, 2, 0]
    assert [referee_of(step, 3, {1}) for step in range(4)] == [0, 2, 2, 0]
    assert referee_of(0, 2, {0, 1}) is None


def test_a_slice_has_another_referee_in_every_round() -> None:
    for num_ranks in (2, 4, 8, 16):
        assert {referee_of(3 + NUM_SLICES * turn, num_ranks, set()) for turn in range(num_ranks)} == set(
            range(num_ranks)
        )


def test_the_odd_one_is_named_with_its_places() -> None:
    assert odd_ranks({0: [1, 2, 3], 1: [1, 9, 3], 2: [1, 2, 3]}) == {1: [1]}
    assert odd_ranks({0: [8, 2, 7], 1: [1, 2, 3], 2: [1, 2, 3]}) == {0: [0, 2]}
    assert odd_ranks({0: [1], 3: [1]}) == {}
    assert odd_ranks({0: [], 3: []}) == {}


def test_of_two_opinions_the_lowest_rank_is_right() -> None:
    assert odd_ranks({1: [5], 0: [6]}) == {1: [0]}
    assert odd_ranks({0: [5], 1: [6], 2: [6], 3: [5]}) == {1: [0], 2: [0]}
