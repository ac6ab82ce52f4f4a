"""The peers of a comparison by name: whose all-reduce, on which TCP, in how many bits.

`gloo-tuned` is the strongest TCP there is to beat: bbr is not fooled by random loss, and a least retransmission timeout
of 5 ms takes most of Gloo's loss tail away. `-bf16` casts before it sends: rivals with the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from holdfast.config import ProtectionName, WireName
from holdfast.errors import ConfigError
from holdfast.lab.tcp_settings import USUAL_RTO_MIN_US, TcpSettings
from holdfast.strategy import OptiReduce

TUNED_RTO_MIN_US = 5_000


@dataclass(frozen=True)
class Peer:
    name: str
    transport: Literal["gloo", "holdfast"]
    tcp: TcpSettings | None = None
    """What a host's TCP is set to before the peer connects; None: whatever the host has."""
    wire_bytes: int = 4
    """Per float32 element on the network."""
    exact: bool = False
    protection: ProtectionName = "encrypted"
    shared_memory: bool = False
    """Off also where it could be used: what is compared is the network."""
    as_published: bool = False
    """Without what Holdfast adds to the paper."""
    transforms: bool = True
    """Off: the Hadamard transform never comes on, whatever is lost."""
    packs: bool = True
    """Off: gradients leave in all their bytes, however slow the network is."""
    narrows: bool = True
    """Off: what is late leaves in all its bits."""

    @property
    def wire(self) -> WireName:
        return "bf16" if self.wire_bytes == 2 else "float32"

    @property
    def settings(self) -> dict[str, Any]:
        """Of Holdfast, where they are not the defaults."""
        published = OptiReduce.as_published().settings() if self.as_published else {}
        own = {"protection": self.protection, "wire": self.wire, "shared_memory": self.shared_memory}
        without = {} if self.transforms else {"hadamard": "off"}
        without |= {} if self.packs else {"packing": "off"}
        without |= {} if self.narrows else {"late_wire": "float32"}
        return {**published, **own, **without}


PEERS = {
    peer.name: peer
    for peer in (
        Peer("holdfast", "holdfast"),
        Peer("holdfast-bf16", "holdfast", wire_bytes=2),
        Peer("holdfast-unpacked", "holdfast", packs=False),
        Peer("holdfast-wide", "holdfast", narrows=False),
        Peer("holdfast-exact", "holdfast", exact=True),
        Peer("holdfast-paper", "holdfast", as_published=True),
        Peer("holdfast-paper-plain", "holdfast", as_published=True, transforms=False),
        Peer("holdfast-authenticated", "holdfast", protection="authenticated"),
        Peer("holdfast-insecure", "holdfast", protection="insecure"),
        Peer("holdfast-shared", "holdfast", shared_memory=True),
        Peer("gloo", "gloo"),
        Peer("gloo-cubic", "gloo", TcpSettings("cubic", USUAL_RTO_MIN_US)),
        Peer("gloo-bbr", "gloo", TcpSettings("bbr", USUAL_RTO_MIN_US)),
        Peer("gloo-tuned", "gloo", TcpSettings("bbr", TUNED_RTO_MIN_US)),
        Peer("gloo-cubic-bf16", "gloo", TcpSettings("cubic", USUAL_RTO_MIN_US), wire_bytes=2),
        Peer("gloo-bbr-bf16", "gloo", TcpSettings("bbr", USUAL_RTO_MIN_US), wire_bytes=2),
        Peer("gloo-tuned-bf16", "gloo", TcpSettings("bbr", TUNED_RTO_MIN_US), wire_bytes=2),
    )
}


def peer_named(name: str) -> Peer:
    if name not in PEERS:
        raise ConfigError(f"unknown peer {name!r}", what_to_try=f"one of {', '.join(PEERS)}")
    return PEERS[name]


def parse_peers(names: str) -> list[Peer]:
    """A comma list, in its order, each once."""
    listed = [name.strip() for name in names.split(",") if name.strip()]
    return [peer_named(name) for name in dict.fromkeys(listed)]
