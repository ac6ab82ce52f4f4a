"""How the ranks of one host get to the same shared memory: the first of them makes it, and hands it to the others.

It has no name in any file system, so nothing is left of it whoever is killed. The first listens on a Unix socket with a
random name, which lives as long as the socket and in this network namespace only (that is what "one host" means here),
and gives the memory to processes of its own user, who in turn take it from such a process only. Where that cannot be
done on every rank, none uses it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import struct
import threading
from collections.abc import Iterator, Sequence

from holdfast import _native
from holdfast.bridge.board import Board

logger = logging.getLogger(__name__)

_MET = b"met"
_NAME = re.compile(rb"[0-9a-f]{32}")
# How long the first rank waits for a connection before it looks whether all have come.
_LISTEN_S = 0.05
# A process that has connected sends and reads one byte; one that does not is no rank.
_HAND_OVER_S = 5.0


def meet_in_shared_memory(board: Board, host_ranks: range, num_meetings: int) -> list[_native.HostMeeting] | None:
    """A collective of all ranks, each with those of its own host. None: at least one could not, and every rank knows."""
    if not 1 < len(host_ranks) <= _native.MAX_MEETING_MEMBERS:
        return None
    first, member = host_ranks[0], board.rank - host_ranks[0]
    with contextlib.ExitStack() as stack:
        meetings: list[_native.HostMeeting] = []
        trouble = ""
        try:
            memories = stack.enter_context(
                _offered(board, len(host_ranks), num_meetings) if member == 0 else _taken(board, first, num_meetings)
            )
            for memory in memories:
                meeting = _native.HostMeeting(descriptor=memory, member=member, num_members=len(host_ranks))
                meetings.append(meeting)
        except (OSError, ValueError, RuntimeError) as error:
            trouble = f": {error}"
        try:
            board.publish("met", _MET if len(meetings) == num_meetings else b"")
            strangers = [rank for rank, said in enumerate(board.wait_for_all("met")) if said != _MET]
        except BaseException:
            _leave(meetings)
            raise
    if not strangers:
        return meetings
    _leave(meetings)
    logger.warning(
        "[rank %d] no shared memory, averages go over the network: rank %s could not take part%s",
        board.rank,
        ", ".join(map(str, strangers)),
        trouble,
    )
    return None


def _leave(meetings: Sequence[_native.HostMeeting]) -> None:
    for meeting in meetings:
        meeting.close()


@contextlib.contextmanager
def _offered(board: Board, num_members: int, num_memories: int) -> Iterator[list[int]]:
    """New memory, given to every process of this user that asks, as long as the context lasts."""
    with contextlib.ExitStack() as stack:
        name = b""
        try:
            memories: list[int] = []
            for _ in range(num_memories):
                memories.append(_native.create_meeting_memory(num_members))
                stack.callback(os.close, memories[-1])
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            unpublished = _native.random_bytes(16).hex().encode()
            listener.bind(_address(unpublished))
            listener.listen(num_members)
            name = unpublished
        finally:
            board.publish("memory", name)
        over = threading.Event()
        giving = threading.Thread(target=_give, args=(listener, memories, over), name="join-memory", daemon=True)
        giving.start()
        try:
            yield memories
        finally:
            over.set()
            giving.join()


def _give(listener: socket.socket, memories: Sequence[int], over: threading.Event) -> None:
    listener.settimeout(_LISTEN_S)
    while not over.is_set():
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_HAND_OVER_S)
                _require_own_user(connection)
                socket.send_fds(connection, [b"m"], memories)


@contextlib.contextmanager
def _taken(board: Board, first: int, num_memories: int) -> Iterator[list[int]]:
    name = board.read("memory", first)
    if not _NAME.fullmatch(name):
        raise OSError(f"rank {first} offers none")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(board.seconds_left())
        connection.connect(_address(name))
        _require_own_user(connection)
        _, descriptors, _, _ = socket.recv_fds(connection, 1, num_memories)
    try:
        if len(descriptors) != num_memories:
            raise OSError(f"rank {first} did not hand it over")
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _address(name: bytes) -> bytes:
    return b"\0holdfast/" + name


def _require_own_user(connection: socket.socket) -> None:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _process, user, _group = struct.unpack("3i", credentials)
    if user != os.geteuid():
        raise PermissionError(f"user {user} is at the other end")
