"""In how many groups a hierarchical all-reduce sums (OptiReduce 3.1.2): from where the ranks are, and how many.

With N ranks in G groups of m an operation takes 2(m - 1) + 2(G - 1) rounds where every rank hears one other at a time,
against 2(N - 1) among all of them, and the same bytes. Groups are of neighbouring ranks and of the same size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from holdfast.errors import ConfigError

MANY_RANKS = 16
"""From here on groups are formed without hosts that suggest them: half of the rounds and more are saved."""


@dataclass(frozen=True)
class Grouping:
    num_groups: int
    reason: str
    """In words, for `explain()`."""


def num_rounds(num_ranks: int, num_groups: int) -> int:
    """Of one operation with one sender heard at a time."""
    if num_groups == 1:
        return 2 * (num_ranks - 1)
    return 2 * (num_ranks // num_groups - 1) + 2 * (num_groups - 1)


def possible_groups(num_ranks: int) -> list[int]:
    """Every number of groups with at least two ranks each."""
    return [groups for groups in range(2, num_ranks // 2 + 1) if num_ranks % groups == 0]


def choose_groups(hierarchy: int | str, hosts: Sequence[str]) -> Grouping:
    """`hierarchy` as configured, `hosts` the identity of each rank's host. The same on every rank."""
    if hierarchy == "off":
        return Grouping(1, "all ranks sum as one (hierarchy is off)")
    if isinstance(hierarchy, int):
        return _as_given(hierarchy, len(hosts))
    return _by_host(hosts) or _by_rounds(hosts)


def ranks_per_host(hosts: Sequence[str]) -> int:
    """How many ranks each of several hosts holds, if it is the same number for all, and they are neighbours; else 1."""
    sizes = [len(list(run)) for _, run in groupby(hosts)]
    alike = len(set(sizes)) == 1 and len(sizes) == len(set(hosts)) > 1
    return sizes[0] if alike else 1


def _as_given(num_groups: int, num_ranks: int) -> Grouping:
    possible = possible_groups(num_ranks)
    if num_groups not in possible:
        numbers = ", ".join(map(str, possible))
        raise ConfigError(
            f"{num_ranks} ranks cannot stand in {num_groups} groups of the same size, at least two each",
            what_to_try=f"a hierarchy of {numbers}, auto or off" if possible else "hierarchy=off",
        )
    return _grouped(num_ranks, num_groups, "as configured")


def _by_host(hosts: Sequence[str]) -> Grouping | None:
    """None: there are too few ranks on a host, or too few hosts, to say anything."""
    runs = [len(list(run)) for _, run in groupby(hosts)]
    num_hosts = len(set(hosts))
    if num_hosts == 1 or num_hosts == len(hosts):
        return None
    if len(runs) > num_hosts:
        return Grouping(1, "all ranks sum as one: the ranks of a host are not neighbours")
    if len(set(runs)) > 1:
        return Grouping(1, "all ranks sum as one: hosts hold different numbers of ranks")
    return _grouped(len(hosts), num_hosts, "one group for each host")


def _by_rounds(hosts: Sequence[str]) -> Grouping:
    num_ranks = len(hosts)
    possible = possible_groups(num_ranks)
    if num_ranks < MANY_RANKS:
        return Grouping(1, f"all ranks sum as one: groups are for hosts with several ranks, or for {MANY_RANKS} ranks")
    if not possible:
        return Grouping(1, f"all ranks sum as one: {num_ranks} cannot be divided into groups")
    # Of two that need the same rounds, the fewer groups: more is summed before anything is sent further.
    best = min(possible, key=lambda groups: (num_rounds(num_ranks, groups), groups))
    return _grouped(num_ranks, best, "fewest rounds")


def _grouped(num_ranks: int, num_groups: int, why: str) -> Grouping:
    rounds, flat = num_rounds(num_ranks, num_groups), num_rounds(num_ranks, 1)
    return Grouping(
        num_groups,
        f"{num_groups} groups of {num_ranks // num_groups} neighbouring ranks ({why}): "
        f"{rounds} rounds instead of {flat} where one sender is heard at a time",
    )
