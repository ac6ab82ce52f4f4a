"""How fast each peer is sent to, and what limits it, in words."""

from __future__ import annotations

import math

from holdfast import _native
from holdfast.config import Config

_FOLLOWS = {
    "delay": "rises while the round trip is short and falls when a queue lengthens it (delay rule)",
    "model": "follows the bandwidth that the path was seen to deliver, and loss alone does not lower it (model rule)",
}


def describe_rates(snapshot: _native.Snapshot, config: Config) -> str:
    """One line about all paths."""
    if all(_is_on_this_host(peer) for peer in snapshot.peers):
        return "rate: between processes of one host nothing but the receiver's buffer limits a sender"
    if snapshot.card_bytes_per_s > 0:
        card = (
            f"this host's card sends {_megabytes(snapshot.card_bytes_per_s)}, "
            "of which no path takes more than its share while an operation is under way"
        )
    else:
        card = "this host's card was never seen to be the bottleneck"
    return f"rate: the pace towards a peer {_FOLLOWS[config.rate_rule]}; {card}"


def describe_packing(snapshot: _native.Snapshot, config: Config, pays_below_bytes_per_s: float) -> str:
    """One line: whether gradients leave in fewer bytes, and why."""
    away = [peer for peer in snapshot.peers if not _is_on_this_host(peer)]
    if not away:
        return "packing: off, between processes of one host bytes cost nothing"
    if config.packing != "auto":
        return f"packing: {config.packing}, as it was set"
    known = [snapshot.card_bytes_per_s, sum(peer.bandwidth_bytes_per_s for peer in away)]
    network = min((rate for rate in known if rate > 0), default=0.0)
    below = f"it pays below {_megabytes(pays_below_bytes_per_s)}"
    if network == 0:
        return f"packing: off until the network was measured; {below}"
    state = (
        "on, float32 and bf16 gradients leave in fewer bytes and without loss"
        if network < pays_below_bytes_per_s
        else "off"
    )
    return f"packing: {state}; {below}, and this network carries {_megabytes(network)}"


def describe_path(peer: _native.PeerSnapshot, snapshot: _native.Snapshot) -> str:
    return (
        f"rank {peer.rank}: {peer.state.name}, round trip {peer.smoothed_rtt_s * 1e3:.2f} ms "
        f"(at best {peer.min_rtt_s * 1e3:.2f}), {_rate(peer, snapshot)}, {peer.packets_lost:,} of "
        f"{peer.datagrams_sent:,} datagrams lost"
    )


def _rate(peer: _native.PeerSnapshot, snapshot: _native.Snapshot) -> str:
    window = f"{peer.window_bytes >> 10} KiB in flight"
    if _is_on_this_host(peer):
        return f"sent to as fast as its receive buffer allows: at most {window}"
    pace = peer.pacing_bytes_per_s
    windows = peer.window_bytes / peer.smoothed_rtt_s if peer.smoothed_rtt_s > 0 else math.inf
    if windows < pace:
        return f"sent to at most at {_megabytes(windows)}, limited by {window} a round trip; its pace is {_megabytes(pace)}"
    return f"sent to at most at {_megabytes(pace)}, {_what_set_the_pace(peer, snapshot)}; at most {window}"


def _what_set_the_pace(peer: _native.PeerSnapshot, snapshot: _native.Snapshot) -> str:
    if peer.pacing_bytes_per_s == peer.card_share_bytes_per_s:
        return f"its share of the card, {peer.card_share_bytes_per_s / snapshot.card_bytes_per_s:.0%}"
    if peer.bandwidth_bytes_per_s == 0:
        return "a careful start, as nothing was measured yet"
    return f"found by the rule on a path that has delivered {_megabytes(peer.bandwidth_bytes_per_s)}"


def _is_on_this_host(peer: _native.PeerSnapshot) -> bool:
    return math.isinf(peer.pacing_bytes_per_s)


def _megabytes(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.1f} MB/s"
