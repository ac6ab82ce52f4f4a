"""The notice board on which a job forms: one-shot exchanges through the process group's Store, under one deadline.

The Store is asked on a thread of its own. When its host is stopped, no call to it returns, and torch's own time limits
do not hold: whoever waits for an answer here stops waiting at the deadline.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from holdfast import _native
from holdfast.errors import JoinError, PeerNeverJoined

_POLL_S = 0.02
_CLOSING_PATIENCE_S = 0.2
# torch's Store lives in rank 0, unless a launcher hosts it.
_USUAL_HOST = 0

_Message = TypeVar("_Message", _native.Introduction, _native.Whereabouts, _native.DatagramLimit)
_Answer = TypeVar("_Answer")


class Store(Protocol):
    """The part of `torch.distributed.Store` that is needed here."""

    def set(self, key: str, value: Any, /) -> None: ...  # bytes, though torch's own annotation says str
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...


class Board:
    """What ranks have announced. `deadline` is a time of the monotonic clock."""

    def __init__(self, store: Store, rank: int, num_ranks: int, deadline: float) -> None:
        self.rank = rank
        self.num_ranks = num_ranks
        self.deadline = deadline
        self._store = store
        self._started = time.monotonic()
        self._questions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="join-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, unless the Store keeps it."""
        self._questions.put(None)
        self._thread.join(_CLOSING_PATIENCE_S)

    def seconds_left(self) -> float:
        return max(0.1, self.deadline - time.monotonic())

    def exchange(self, topic: str, own: _Message) -> list[_Message]:
        """Every rank's message. The own one is not believed from the Store."""
        self.publish(topic, own.encode())
        messages = [type(own).decode(octets) for octets in self.wait_for_all(topic)]
        messages[self.rank] = own
        unreadable = [rank for rank, message in enumerate(messages) if message is None]
        if unreadable:
            raise JoinError(
                f"ranks announced something this version cannot read (step {topic!r})",
                peers=unreadable,
                what_to_try="the same version of Holdfast on every rank, and nobody else writing to the Store",
            )
        return [message for message in messages if isinstance(message, type(own))]

    def wait_for_all(self, topic: str, *, suspects: Callable[[], set[int]] = set) -> list[bytes]:
        """Every rank's entry. Of those missing at the deadline, the error names the suspects, or all if there are none."""
        everybody = range(self.num_ranks)
        return [self._read(topic, rank, everybody, suspects) for rank in everybody]

    def publish(self, topic: str, value: bytes) -> None:
        self._ask(lambda: self._store.set(f"{topic}/{self.rank}", value))

    def read(self, topic: str, rank: int) -> bytes:
        return self._read(topic, rank, [rank])

    def _read(self, topic: str, rank: int, publishers: Sequence[int], suspects: Callable[[], set[int]] = set) -> bytes:
        # Polling instead of Store.wait: it can be interrupted, and it can say who is missing.
        while not self._has(topic, rank):
            if time.monotonic() > self.deadline:
                missing = [peer for peer in publishers if not self._has(topic, peer)]
                suspected = suspects()
                missing = [peer for peer in missing if peer in suspected] or missing
                raise PeerNeverJoined(
                    f"{len(missing)} of {self.num_ranks} ranks did not announce themselves (step {topic!r})",
                    peers=missing,
                    elapsed_ms=(time.monotonic() - self._started) * 1e3,
                    what_to_try="check that those ranks run and also call holdfast.attach, or raise join_timeout_s",
                )
            time.sleep(_POLL_S)
        return self._ask(lambda: self._store.get(f"{topic}/{rank}"))

    def _has(self, topic: str, rank: int) -> bool:
        return self._ask(lambda: self._store.check([f"{topic}/{rank}"]))

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        answers: queue.SimpleQueue[tuple[_Answer | None, RuntimeError | None]] = queue.SimpleQueue()

        def answer() -> None:
            try:
                answers.put((question(), None))
            except RuntimeError as error:  # torch's DistError is one
                answers.put((None, error))

        self._questions.put(answer)
        try:
            value, error = answers.get(timeout=self.seconds_left())
        except queue.Empty:
            raise self._silent("") from None
        if error is not None:
            raise self._silent(f": {error}") from error
        return value  # type: ignore[return-value]

    def _silent(self, why: str) -> JoinError:
        return JoinError(
            f"the Store of the process group does not answer{why}",
            peers=[_USUAL_HOST],
            elapsed_ms=(time.monotonic() - self._started) * 1e3,
            what_to_try="check that the process that hosts it (mostly rank 0) still runs",
        )

    def _serve(self) -> None:
        while (question := self._questions.get()) is not None:
            question()
