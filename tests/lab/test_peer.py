"""Peers by name: what a user may type, and what it stands for."""

from __future__ import annotations

import pytest

from holdfast.config import Config
from holdfast.errors import ConfigError
from holdfast.lab.peer import PEERS, parse_peers, peer_named


def test_tuned_gloo_is_bbr_with_a_short_timeout_and_its_twin_has_half_the_bytes() -> None:
    tuned, narrow = peer_named("gloo-tuned"), peer_named("gloo-tuned-bf16")
    assert tuned.tcp is not None
    assert (tuned.tcp.congestion_control, tuned.tcp.rto_min_us) == ("bbr", 5_000)
    assert narrow.tcp == tuned.tcp
    assert narrow.wire_bytes * 2 == tuned.wire_bytes == 4


def test_holdfasts_own_twin_has_half_the_bytes_too() -> None:
    plain, narrow = peer_named("holdfast"), peer_named("holdfast-bf16")
    assert (plain.wire, narrow.wire) == ("float32", "bf16")
    assert narrow.wire_bytes * 2 == plain.wire_bytes == 4
    assert narrow.protection == plain.protection


def test_the_paper_has_none_of_what_holdfast_adds() -> None:
    published, own = Config(**peer_named("holdfast-paper").settings), Config(**peer_named("holdfast").settings)
    assert (published.estimate, own.estimate) == ("zero_fill", "unbiased")
    assert published.repair_grace_ratio == 0 < own.repair_grace_ratio
    assert own.compare_replicas
    assert not published.compare_replicas
    assert published.hadamard == own.hadamard == "auto"


def test_the_plain_paper_differs_in_the_transform_alone() -> None:
    published, plain = peer_named("holdfast-paper").settings, peer_named("holdfast-paper-plain").settings
    assert plain == {**published, "hadamard": "off"}


def test_a_list_keeps_its_order_and_names_each_peer_once() -> None:
    assert [peer.name for peer in parse_peers(" gloo-bbr, holdfast,gloo-bbr,")] == ["gloo-bbr", "holdfast"]


def test_an_unknown_peer_is_told_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="nccl") as raised:
        parse_peers("gloo,nccl")
    assert all(name in str(raised.value) for name in PEERS)
