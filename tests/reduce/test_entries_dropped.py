"""What counts as lost for the Hadamard transform: what the network dropped, not what was late or never sent."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.control.adaptation import PacketsSeen
from holdfast.control.hadamard_switch import HadamardSwitch
from holdfast.reduce.report import entries_dropped

ELEMENTS = 1_000


def report(num_ranks: int) -> Any:
    return cast(Any, SimpleNamespace(peers=[None] * num_ranks, total=ELEMENTS))


def dropped_ratio(num_ranks: int, packets: PacketsSeen) -> float:
    lost, expected = entries_dropped(report(num_ranks), packets)
    return lost / expected


def test_an_entry_travels_twice_but_for_those_that_stay() -> None:
    assert dropped_ratio(4, PacketsSeen(100, 98)) == pytest.approx(2 * 3 / 4 * 0.02)
    assert dropped_ratio(2, PacketsSeen(100, 98)) == pytest.approx(0.02)
    assert dropped_ratio(4, PacketsSeen(100, 0)) == 1.0, "and is lost only once"


def test_what_nobody_sent_is_not_dropped() -> None:
    assert dropped_ratio(4, PacketsSeen(0, 0)) == 0.0
    assert dropped_ratio(4, PacketsSeen(100, 103)) == 0.0, "what an earlier operation missed has come"


@pytest.mark.parametrize("packets_each", [12, 60, 700])
@pytest.mark.parametrize(("packet_loss", "on"), [(0.005, False), (0.05, True)])
def test_packets_that_are_lost_by_chance_switch_it_on_whatever_the_buckets_size(
    packets_each: int, packet_loss: float, on: bool
) -> None:
    drawn = random.Random(3)
    ranks = [HadamardSwitch() for _ in range(4)]
    for _ in range(4):
        for rank in ranks:
            for _ in range(16):
                received = sum(drawn.random() >= packet_loss for _ in range(3 * packets_each))
                rank.observe(*entries_dropped(report(4), PacketsSeen(3 * packets_each, received)))
        views = [rank.take_view() for rank in ranks]
        for rank in ranks:
            rank.agree(views)
    assert {rank.on for rank in ranks} == {on}
