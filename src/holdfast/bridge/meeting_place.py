"""How the ranks of one host get to the same shared memory: rank 0 makes it, and hands it to the others.

It has no name in any file system, so nothing is left of it whoever is killed. Rank 0 listens on a Unix socket with a
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
from collections.abc import Iterator

from holdfast import _native
from holdfast.bridge.board import Board

logger = logging.getLogger(__name__)

_HOST = 0
_MET = b"met"
_NAME = re.compile(rb"[0-9a-f]{32}")
# How long rank 0 waits for a connection before it looks whether all have come.
_LISTEN_S = 0.05
# A process that has connected sends and reads one byte; one that does not is no rank.
_HAND_OVER_S = 5.0


def meet_in_shared_memory(board: Board) -> _native.HostMeeting | None:
    """A collective. None: at least one rank could not, and every rank knows."""
    if not 1 < board.num_ranks <= _native.MAX_MEETING_MEMBERS:
        return None
    with contextlib.ExitStack() as stack:
        meeting, trouble = None, ""
        try:
            memory = stack.enter_context(_offered(board) if board.rank == _HOST else _taken(board))
            meeting = _native.HostMeeting(descriptor=memory, member=board.rank, num_members=board.num_ranks)
        except (OSError, ValueError, RuntimeError) as error:
            trouble = f": {error}"
        try:
            board.publish("met", _MET if meeting is not None else b"")
            strangers = [rank for rank, said in enumerate(board.wait_for_all("met")) if said != _MET]
        except BaseException:
            _leave(meeting)
            raise
    if not strangers:
        return meeting
    _leave(meeting)
    logger.warning(
        "[rank %d] no shared memory, averages go over loopback: rank %s could not take part%s",
        board.rank,
        ", ".join(map(str, strangers)),
        trouble,
    )
    return None


def _leave(meeting: _native.HostMeeting | None) -> None:
    if meeting is not None:
        meeting.close()


@contextlib.contextmanager
def _offered(board: Board) -> Iterator[int]:
    """New memory, given to every process of this user that asks, as long as the context lasts."""
    with contextlib.ExitStack() as stack:
        name = b""
        try:
            memory = _native.create_meeting_memory(board.num_ranks)
            stack.callback(os.close, memory)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            unpublished = _native.random_bytes(16).hex().encode()
            listener.bind(_address(unpublished))
            listener.listen(board.num_ranks)
            name = unpublished
        finally:
            board.publish("memory", name)
        over = threading.Event()
        giving = threading.Thread(target=_give, args=(listener, memory, over), name="join-memory", daemon=True)
        giving.start()
        try:
            yield memory
        finally:
            over.set()
            giving.join()


def _give(listener: socket.socket, memory: int, over: threading.Event) -> None:
    listener.settimeout(_LISTEN_S)
    while not over.is_set():
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_HAND_OVER_S)
                _require_own_user(connection)
                socket.send_fds(connection, [b"m"], [memory])


@contextlib.contextmanager
def _taken(board: Board) -> Iterator[int]:
    name = board.read("memory", _HOST)
    if not _NAME.fullmatch(name):
        raise OSError("rank 0 offers none")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(board.seconds_left())
        connection.connect(_address(name))
        _require_own_user(connection)
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    if not descriptors:
        raise OSError("rank 0 did not hand it over")
    try:
        yield descriptors[0]
    finally:
        os.close(descriptors[0])


def _address(name: bytes) -> bytes:
    return b"\0holdfast/" + name


def _require_own_user(connection: socket.socket) -> None:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _process, user, _group = struct.unpack("3i", credentials)
    if user != os.geteuid():
        raise PermissionError(f"user {user} is at the other end")
