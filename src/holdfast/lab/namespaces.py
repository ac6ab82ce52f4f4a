"""Anonymous network namespaces: held by descriptors only, so the kernel takes them away with their last holder.

Namespaces belong to threads. All work inside one happens on a thread that enters it and then ends, so the rest of the
process never leaves its own network.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import LabUnavailable

_CLONE_NEWNET = 0x40000000
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)

Result = TypeVar("Result")


class NetworkNamespace:
    """A network of its own, with nothing in it but a loopback device that is down."""

    def __init__(self) -> None:
        self.descriptor = _on_own_thread(_unshare)

    @property
    def inode(self) -> int:
        """The kernel's name of it: the same for every process inside."""
        return os.fstat(self.descriptor).st_ino

    def run(self, function: Callable[[], Result]) -> Result:
        """Calls the function inside, on a thread of its own, and hands back what it returns or raises."""

        def enter_and_call() -> Result:
            _checked(_libc.setns(self.descriptor, _CLONE_NEWNET), "enter a network namespace")
            return function()

        return _on_own_thread(enter_and_call)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _unshare() -> int:
    _checked(_libc.unshare(_CLONE_NEWNET), "make a network namespace")
    return os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)


def _checked(result: int, what: str) -> None:
    if result == 0:
        return
    reason = os.strerror(ctypes.get_errno())
    raise LabUnavailable(
        f"this process may not {what} ({reason})",
        what_to_try="run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN); plain loopback needs neither",
    )


def _on_own_thread(function: Callable[[], Result]) -> Result:
    returned: list[Result] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            returned.append(function())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, name="holdfast-lab-namespace")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return returned[0]
