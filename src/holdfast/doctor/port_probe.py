"""Which of the planned UDP ports are taken, by whom, and which could be taken from under a job."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.doctor.facts import TakenPort

HIGHEST_PORT = 65_535
_FIRST_SUGGESTED = 29_600  # below the range from which Linux hands out ports, and above torch's own
_IPV4 = Path("/proc/sys/net/ipv4")


def planned_ports(first: int, num_local_ranks: int) -> range:
    """Rank k of a host uses the first port + k; none are planned when the kernel is to choose."""
    return range(first, min(first + num_local_ranks, HIGHEST_PORT + 1)) if first else range(0)


def taken(address: str, ports: Sequence[int]) -> Iterator[TakenPort]:
    for port in ports:
        family, kind, protocol, _, local = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(local)
            except OSError as error:
                yield TakenPort(port, error.strerror or str(error), _holder(port))


def ephemeral(ports: Sequence[int]) -> list[int]:
    """Ports in the range for programs that ask for any free one, unless they are reserved."""
    try:
        lowest, highest = map(int, (_IPV4 / "ip_local_port_range").read_text().split())
        reserved = _parse_ranges((_IPV4 / "ip_local_reserved_ports").read_text())
    except (OSError, ValueError):
        return []
    return [port for port in ports if lowest <= port <= highest and not any(port in part for part in reserved)]


def free_range(address: str, count: int) -> int:
    """The first of so many ports in a row that nobody has and that the kernel hands to nobody."""
    for first in range(_FIRST_SUGGESTED, HIGHEST_PORT - count, max(count, 100)):
        ports = range(first, first + count)
        if not ephemeral(ports) and not any(taken(address, ports)):
            return first
    return _FIRST_SUGGESTED


def _parse_ranges(text: str) -> list[range]:
    """Of the form 8080,9148-9150, as the kernel prints it."""
    parts = [part.partition("-") for part in text.strip().split(",") if part]
    return [range(int(first), int(last or first) + 1) for first, _, last in parts]


def _holder(port: int) -> str:
    """Only the own processes can be seen, unless root asks."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if any(os.readlink(entry) in wanted for entry in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()}, process {process.name}"
        except OSError:
            continue  # ended meanwhile, or of another user
    return ""


def _inodes(port: int) -> Iterator[str]:
    for table in ("udp", "udp6"):
        try:
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
