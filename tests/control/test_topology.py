"""In how many groups a job sums: by its hosts, by its size, or as it was told."""

from __future__ import annotations

import pytest

from holdfast.control.topology import MANY_RANKS, choose_groups, num_rounds, possible_groups, ranks_per_host
from holdfast.errors import ConfigError


def hosts(*num_ranks: int) -> list[str]:
    """One rank after the other: so many on the first host, so many on the second."""
    return [f"host {index}" for index, count in enumerate(num_ranks) for _ in range(count)]


def paper_rounds(num_ranks: int, num_groups: int) -> int:
    """OptiReduce, appendix A: whole shards between the groups."""
    return 2 * (num_ranks // num_groups - 1) + (num_groups - 1)


def paper_bytes_ratio(num_ranks: int, num_groups: int) -> float:
    """What a rank sends for that, in buckets: each of those rounds moves a whole shard of the group."""
    return num_groups / num_ranks * paper_rounds(num_ranks, num_groups)


def test_rounds_beside_those_of_the_paper() -> None:
    assert num_rounds(64, 1) == 126
    assert num_rounds(64, 16) == 36
    assert num_rounds(64, 8) == 28
    assert (paper_rounds(64, 16), paper_bytes_ratio(64, 16)) == (21, 5.25)
    assert (paper_rounds(64, 8), paper_bytes_ratio(64, 8)) == (21, 2.625)


def test_off_is_one_group() -> None:
    assert choose_groups("off", hosts(4, 4)).num_groups == 1


@pytest.mark.parametrize(("ranks_of_hosts", "groups"), [((2, 2), 2), ((4, 4, 4), 3), ((8,) * 8, 8), ((2,) * 31, 31)])
def test_hosts_with_as_many_ranks_each_are_the_groups(ranks_of_hosts: tuple[int, ...], groups: int) -> None:
    grouping = choose_groups("auto", hosts(*ranks_of_hosts))
    assert grouping.num_groups == groups
    assert "host" in grouping.reason


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (hosts(2, 3), "different numbers"),
        (hosts(1, 31), "different numbers"),
        (["a", "b"] * 16, "not neighbours"),
        (hosts(1, 1, 1, 1), str(MANY_RANKS)),
        (hosts(8), str(MANY_RANKS)),
        (hosts(*[1] * 17), "17"),
    ],
)
def test_where_nothing_suggests_groups_there_are_none_and_it_says_why(where: list[str], why: str) -> None:
    grouping = choose_groups("auto", where)
    assert grouping.num_groups == 1
    assert why in grouping.reason


@pytest.mark.parametrize(("num_ranks", "groups"), [(16, 4), (18, 3), (22, 2), (24, 4), (64, 8), (100, 10)])
def test_many_ranks_take_the_fewest_rounds(num_ranks: int, groups: int) -> None:
    for where in (hosts(*[1] * num_ranks), hosts(num_ranks)):
        assert choose_groups("auto", where).num_groups == groups
    assert num_rounds(num_ranks, groups) == min(num_rounds(num_ranks, other) for other in possible_groups(num_ranks))
    assert num_rounds(num_ranks, groups) <= (num_rounds(num_ranks, 1) + 2) * 3 // 5


def test_a_given_number_is_taken_whatever_the_hosts() -> None:
    grouping = choose_groups(4, hosts(1, 7))
    assert grouping.num_groups == 4
    assert "as configured" in grouping.reason


@pytest.mark.parametrize(("groups", "num_ranks"), [(3, 8), (8, 8), (16, 8), (2, 3), (2, 2)])
def test_groups_of_different_sizes_or_of_one_rank_are_refused(groups: int, num_ranks: int) -> None:
    with pytest.raises(ConfigError, match=f"{groups} groups"):
        choose_groups(groups, hosts(*[1] * num_ranks))


@pytest.mark.parametrize(
    ("where", "expected"),
    [("aabb", 2), ("aaabbbccc", 3), ("aaaa", 1), ("abcd", 1), ("aab", 1), ("abab", 1), ("aabbaa", 1), ("a", 1)],
)
def test_hosts_meet_where_each_holds_as_many_neighbours(where: str, expected: int) -> None:
    assert ranks_per_host(where) == expected
