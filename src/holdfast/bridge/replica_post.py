"""Notes about replicas on their way out. Nobody waits for what becomes of them."""

from __future__ import annotations

from collections import deque

from holdfast.link.link import Link

CHANNEL = 0x61
_NOTE_LIMIT_S = 0.5  # later it is about a step that is long over


class ReplicaPost:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._tickets: deque[int] = deque()
        self.bytes_sent = 0

    def send(self, peer: int, note: bytes) -> None:
        self._tickets.append(self._link.send_note(peer, CHANNEL, note, _NOTE_LIMIT_S))
        self.bytes_sent += len(note)

    def forget_settled(self) -> None:
        """What became of a note does not matter, but it is kept until somebody asks."""
        for _ in range(len(self._tickets)):
            ticket = self._tickets.popleft()
            if not self._link.note_is_settled(ticket):
                self._tickets.append(ticket)
