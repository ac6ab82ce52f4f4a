"""What the lab's tests share: whether a lab can be had here, and what is left of one."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import LabUnavailable
from holdfast.lab.marks import LAB
from holdfast.lab.namespaces import NetworkNamespace


def _missing() -> str:
    try:
        NetworkNamespace().close()
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except (LabUnavailable, OSError) as error:
        return str(error)
    return ""


MISSING = _missing()
needs_lab = pytest.mark.skipif(bool(MISSING), reason=f"no lab here: {MISSING}")


def wait_until(holds: Callable[[], bool], limit_s: float, what: str) -> None:
    give_up = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < give_up, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)  # looking through /proc is work too


def marked_processes(started_by: int) -> dict[int, str]:
    """Living processes of labs whose owner is this process, by a reading of /proc of the test's own."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or (entry / "stat").read_text().rpartition(") ")[2][0] in "ZX":
                continue
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        marks = [variable.decode() for variable in environment if variable.startswith(f"{LAB}=".encode())]
        if any(mark.split(".")[1] == str(started_by) for mark in marks) and int(entry.name) != started_by:
            found[int(entry.name)] = command
    return found


def network_namespaces() -> set[int]:
    """Of all living processes: those of a lab that is gone must not be among them."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.stat(entry).st_ino)
        except OSError:
            continue
    return found


def datagram_arrives(sender: socket.socket, receiver: socket.socket, payload: bytes, limit_s: float = 2.0) -> bool:
    sender.sendto(payload, receiver.getsockname())
    receiver.settimeout(limit_s)
    try:
        return receiver.recv(1 << 16) == payload
    except TimeoutError:
        return False
