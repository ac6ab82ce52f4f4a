"""Waiting until every rank is here, beside the order of operations: a rank that has fallen behind in it can still come."""

from __future__ import annotations

import struct
import time

from holdfast.errors import DeadlineExceeded, PeerDead
from holdfast.link.link import Link, require_finite

_CHANNEL = 0x55
_FORM = struct.Struct(">Q")
# How often a wait looks whether those it waits for are still there.
_LOOK_S = 0.1


class Barrier:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._number = 0
        self._heard: dict[int, int] = {}  # how often each peer was here

    def wait(self, deadline_ms: float) -> None:
        """Returns when every rank has called it as often, or raises an error that names those that did not."""
        if not require_finite(deadline_ms) > 0:
            raise ValueError(f"a deadline of {deadline_ms} ms has passed before it begins")
        started = time.monotonic()
        self._number += 1
        peers = set(range(self._link.num_ranks)) - {self._link.rank}
        tickets = [
            (peer, self._link.send_note(peer, _CHANNEL, _FORM.pack(self._number), deadline_ms / 1e3)) for peer in peers
        ]
        while missing := {peer for peer in peers if self._heard.get(peer, 0) < self._number}:
            gone = missing & self._link.gone_peers()  # asked first, so that what they sent before is still heard
            left_s = max(0.0, started + deadline_ms / 1e3 - time.monotonic())
            received = self._link.receive_note(_CHANNEL, 0.0 if gone else min(left_s, _LOOK_S))
            if received is not None:
                self._hear(*received)
            elif gone:
                raise PeerDead("a rank is gone and was waited for", peers=sorted(gone), what_to_try="look at its log")
            elif left_s == 0.0:
                raise DeadlineExceeded(
                    "not every rank came",
                    peers=sorted(missing),
                    elapsed_ms=(time.monotonic() - started) * 1e3,
                    deadline_ms=deadline_ms,
                    what_to_try="the same calls on every rank",
                )
        # Nobody leaves before the others have heard that it was here.
        for peer, ticket in tickets:
            self._link.finish_note(peer, ticket, max(0.0, started + deadline_ms / 1e3 - time.monotonic()))

    def _hear(self, sender: int, note: bytes) -> None:
        if len(note) == _FORM.size:
            self._heard[sender] = max(self._heard.get(sender, 0), *_FORM.unpack(note))
