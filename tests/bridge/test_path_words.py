"""How fast a peer is sent to, and what limits it, in words. On other hosts than this one, so on made-up numbers."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import _native
from holdfast.bridge.path_words import describe_packing, describe_path, describe_rates
from holdfast.config import Config

MEGABYTE = 1e6


def path(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "rank": 2,
        "state": _native.PeerState.alive,
        "smoothed_rtt_s": 0.002,
        "min_rtt_s": 0.001,
        "window_bytes": 256 << 10,
        "pacing_bytes_per_s": 8 * MEGABYTE,
        "card_share_bytes_per_s": 0.0,
        "bandwidth_bytes_per_s": 7.5 * MEGABYTE,
        "packets_lost": 3,
        "datagrams_sent": 1_200,
    }
    return SimpleNamespace(**{**values, **changes})


def snapshot(*peers: Any, card_megabytes: float = 0.0) -> Any:
    return SimpleNamespace(peers=list(peers), card_bytes_per_s=card_megabytes * MEGABYTE)


def words(peer: Any, card_megabytes: float = 0.0) -> str:
    return describe_path(peer, snapshot(peer, path(), path(), card_megabytes=card_megabytes))


def test_a_pace_that_the_rule_found() -> None:
    assert words(path()) == (
        "rank 2: alive, round trip 2.00 ms (at best 1.00), sent to at most at 8.0 MB/s, found by the rule on a path "
        "that has delivered 7.5 MB/s; at most 256 KiB in flight, 3 of 1,200 datagrams lost"
    )


def test_a_share_of_the_card() -> None:
    shared = path(pacing_bytes_per_s=9.8 * MEGABYTE, card_share_bytes_per_s=9.8 * MEGABYTE)
    assert "at 9.8 MB/s, its share of the card, 33%; at most" in words(shared, card_megabytes=30)
    slower = path(pacing_bytes_per_s=5 * MEGABYTE, card_share_bytes_per_s=9.8 * MEGABYTE)
    assert "share of the card" not in words(slower, card_megabytes=30)


def test_a_window_that_is_the_limit() -> None:
    narrow = path(window_bytes=10_000, smoothed_rtt_s=0.010)
    assert "at most at 1.0 MB/s, limited by 9 KiB in flight a round trip; its pace is 8.0 MB/s" in words(narrow)


def test_nothing_measured_yet() -> None:
    assert "a careful start, as nothing was measured yet" in words(path(bandwidth_bytes_per_s=0.0, smoothed_rtt_s=0.0))


def test_the_same_host() -> None:
    near = path(pacing_bytes_per_s=math.inf)
    assert "sent to as fast as its receive buffer allows: at most 256 KiB in flight" in words(near)
    assert "between processes of one host" in describe_rates(snapshot(near), Config())


@pytest.mark.parametrize(("rule", "named"), [("delay", "round trip"), ("model", "loss alone does not lower it")])
def test_the_rule_and_the_card_are_told(rule: Any, named: str) -> None:
    config = Config(rate_rule=rule)
    assert named in describe_rates(snapshot(path()), config)
    assert "never seen to be the bottleneck" in describe_rates(snapshot(path()), config)
    assert "card sends 30.0 MB/s" in describe_rates(snapshot(path(), card_megabytes=30), config)


def test_whether_gradients_are_packed_and_why() -> None:
    slow = snapshot(*[path()] * 5, card_megabytes=30)
    assert describe_packing(slow, Config(), 300 * MEGABYTE) == (
        "packing: on, float32 and bf16 gradients leave in fewer bytes and without loss; it pays below 300.0 MB/s, and this "
        "network carries 30.0 MB/s"
    )
    fast = snapshot(path(bandwidth_bytes_per_s=2000 * MEGABYTE), card_megabytes=3000)
    assert describe_packing(fast, Config(), 300 * MEGABYTE).startswith("packing: off; it pays below 300.0 MB/s")
    # What lies behind the card counts, where that is slower or the card was never the bottleneck.
    for card_megabytes in (0.0, 1250.0):
        paths = snapshot(path(), path(), path(pacing_bytes_per_s=math.inf), card_megabytes=card_megabytes)
        assert "this network carries 15.0 MB/s" in describe_packing(paths, Config(), 300 * MEGABYTE)
    unknown = snapshot(path(bandwidth_bytes_per_s=0.0))
    assert "off until the network was measured" in describe_packing(unknown, Config(), 300 * MEGABYTE)
    near = path(pacing_bytes_per_s=math.inf)
    assert "off, between processes of one host" in describe_packing(snapshot(near), Config(), 300 * MEGABYTE)
    assert "one host" in describe_packing(snapshot(near), Config(packing="on"), math.inf)
    assert describe_packing(slow, Config(packing="off"), 0) == "packing: off, as it was set"
