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
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if started_by in _lab_owners(entry) and int(entry.name) != started_by:
                found[int(entry.name)] = command
        except OSError:
            continue
    return found


def _lab_owners(process: Path) -> set[int]:
    """Of the labs that a process belongs to."""
    environment = (process / "environ").read_bytes().split(b"\0")
    marks = [variable.decode() for variable in environment if variable.startswith(f"{LAB}=".encode())]
    return {int(mark.split(".")[1]) for mark in marks}


def network_namespaces_left(of_lab: int, ended_at_s: float) -> set[int]:
    """Of all living processes, since those of a lab that is gone must not be among them.

    The kernel gives the number of a namespace that has gone to the next one: what another lab holds, or what was started
    after this one's end (by the clock since boot), is another namespace.
    """
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            started_s = int((entry / "stat").read_text().rpartition(") ")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
            if started_s <= ended_at_s and not _lab_owners(entry) - {of_lab}:
                found.add(os.stat(entry / "ns/net").st_ino)
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
